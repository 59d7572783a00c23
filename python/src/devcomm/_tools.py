"""The programs that come with the package."""

import os
import sys

from devcomm._installation import ROOT


def _run(name: str) -> None:
    program = str(ROOT / "bin" / name)
    os.execv(sys.executable, [sys.executable, program, *sys.argv[1:]])


def simulate() -> None:
    _run("devcomm-simulate")


def litmus() -> None:
    _run("devcomm-litmus")
