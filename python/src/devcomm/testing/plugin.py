"""The pytest plugin: `@pytest.mark.simulate` runs a test on simulated GPUs, under many schedules.

Which extension module a process has is chosen when devcomm is imported, so a test that needs another one runs in a
process of its own, which has pytest run that test alone.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from typing import Any

import pytest

MARKER = "simulate"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("devcomm")
    group.addoption("--devcomm-seed", type=int, help="the one seed for tests marked with simulate, to repeat a failure")
    group.addoption("--devcomm-report", help=argparse.SUPPRESS)  # file for the failure of the one test that runs


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(seeds=8, ranks=None, race=True, schedule='mixed'): run the test on simulated GPUs once for each seed, "
        "and each number of ranks that run_ranks then makes; under the race detector, with late stores",
    )
    if config.getoption("--devcomm-report"):
        config.pluginmanager.register(Reporter(config.getoption("--devcomm-report")))


class Settings:
    def __init__(self, marker: pytest.Mark) -> None:
        known = {"seeds", "ranks", "race", "schedule"}
        if marker.args or set(marker.kwargs) - known:
            raise pytest.UsageError(f"@pytest.mark.{MARKER} takes {', '.join(sorted(known))}, by name")
        self.seeds: int = marker.kwargs.get("seeds", 8)
        ranks: Any = marker.kwargs.get("ranks")
        self.ranks: list[int | None] = [ranks] if ranks is None or isinstance(ranks, int) else list(ranks)
        self.race: bool = marker.kwargs.get("race", True)
        self.schedule: str = marker.kwargs.get("schedule", "mixed")
        numbers = [self.seeds, *(each for each in self.ranks if each is not None)]
        if not self.ranks or not all(isinstance(each, int) and each >= 1 for each in numbers):
            raise pytest.UsageError(f"@pytest.mark.{MARKER}: seeds and ranks are numbers from 1")

    @property
    def backend(self) -> str:
        return "simulator_race" if self.race else "simulator"


class Reporter:
    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.path.write_text(f"failed\n{report.longreprtext}", encoding="utf-8")
        elif report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ").partition("\nwith seed ")[0]
            self.path.write_text(f"skipped\n{reason}", encoding="utf-8")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is None:
        return None
    settings = Settings(marker)
    if os.environ.get("DEVCOMM_BACKEND") == settings.backend:
        run_here(pyfuncitem, settings)
    else:
        run_apart(pyfuncitem, settings)
    return True


def run_here(item: pytest.Function, settings: Settings) -> None:
    from devcomm import _native, testing

    if settings.race:
        _native.set_race_exit_status(0)  # the test's result says it
    given = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    only = item.config.getoption("--devcomm-seed")
    before = os.environ.get("DEVCOMM_RANKS")
    try:
        for ranks in settings.ranks:
            if ranks is not None:
                os.environ["DEVCOMM_RANKS"] = str(ranks)
            for seed in range(1, settings.seeds + 1) if only is None else [only]:
                try:
                    testing.run_seeds(lambda: item.obj(**given), [seed], settings.schedule)
                except BaseException as error:
                    words = [f"DEVCOMM_BACKEND={settings.backend}", "python", "-m", "pytest", item.nodeid]
                    error.add_note(f"to repeat it: {shlex.join(words)} --devcomm-seed {seed}")
                    raise
    finally:
        if before is None:
            os.environ.pop("DEVCOMM_RANKS", None)
        else:
            os.environ["DEVCOMM_RANKS"] = before


def run_apart(item: pytest.Function, settings: Settings) -> None:
    config = item.config
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={config.rootpath}"]
    command.append("--runxfail")  # whether it may fail is decided here
    command.append(f"{item.path}::{item.nodeid.split('::', 1)[1]}")
    if config.getoption("--devcomm-seed") is not None:
        command += ["--devcomm-seed", str(config.getoption("--devcomm-seed"))]
    environment = os.environ | {"DEVCOMM_BACKEND": settings.backend}
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report")
        command += ["--devcomm-report", str(report)]
        folder_of_call = config.invocation_params.dir
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder_of_call,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if report.exists():
            outcome, text = report.read_text(encoding="utf-8").split("\n", 1)
            if outcome == "skipped":
                pytest.skip(text)
            pytest.fail(text, pytrace=False)
    if done.returncode != 0:  # before or after the test, or in the middle of it
        pytest.fail(f"{done.stdout.rstrip()}\n{done.stderr.rstrip()}".strip(), pytrace=False)
