"""Tests of kernels without GPUs: under many schedules and the race detector.

`simulate` runs a CUDA program. The marker `simulate` of the pytest plugin runs a Python test:

    @pytest.mark.simulate(seeds=20, ranks=[2, 4])
    def test_all_reduce():
        devcomm.run_ranks(rank)
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from devcomm import _native as native
from devcomm._installation import ROOT

LATE_STORES = 1024  # steps that a store may stay unseen under the race detector


class SimulationFailed(AssertionError):
    """A run has failed; the text has the report, the seed, and the line that repeats it."""


@dataclass(frozen=True)
class Run:
    """One run of a program."""

    mode: str  # plain, race, address or explore
    ranks: int
    seed: int
    result: str  # passed, failed, race or timeout
    seconds: float
    output: str
    repeat: str  # the command line


@dataclass(frozen=True)
class Simulation:
    """All runs of a program."""

    status: int
    runs: list[Run] = field(default_factory=list)

    @property
    def failures(self) -> list[Run]:
        return [run for run in self.runs if run.result != "passed"]


def simulate(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    ranks: int | Sequence[int] = (2, 4),
    race: bool = True,
    plain: bool = False,
    address: bool = False,
    explore: bool = False,
    seeds: int = 8,
    hosts: int = 1,
    schedule: str = "mixed",
    timeout: int = 60,
    options: Sequence[str] = (),
    arguments: Sequence[str] = (),
    check: bool = True,
) -> Simulation:
    """Compiles a CUDA program for simulated GPUs and runs it with each number of ranks and each seed.

    `source` is one file or several; `options` are the compiler's, `arguments` the program's. `race`, `plain`,
    `address` and `explore` say what it runs under, as the options of devcomm-simulate. Raises `SimulationFailed` for
    the first run that does not pass, unless `check` is False.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    counts = [ranks] if isinstance(ranks, int) else list(ranks)
    modes = [
        name
        for name, wanted in (("plain", plain), ("race", race), ("address", address), ("explore", explore))
        if wanted
    ]
    if not modes:
        raise native.InvalidArgument("simulate: none of plain, race, address and explore is asked for")
    words = [os.fspath(each) for each in sources] + [f"--{mode}" for mode in modes]
    words += ["--ranks", ",".join(map(str, counts)), "--seeds", str(seeds), "--hosts", str(hosts)]
    words += ["--schedule", schedule, "--timeout", str(timeout), *options]
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder, "results.json")
        command = [sys.executable, str(ROOT / "bin" / "devcomm-simulate"), *words, "--json", str(results)]
        done = subprocess.run([*command, "--", *arguments], capture_output=True, text=True, check=False)
        if not results.exists():
            raise native.InvalidArgument(
                done.stderr.strip() or f"devcomm-simulate has ended with status {done.returncode}"
            )
        data = json.loads(results.read_text())
    if data["compile_error"]:
        raise SimulationFailed(f"{shlex.join(words)} does not compile:\n{data['compile_error']}")
    runs = [
        Run(r["mode"], r["ranks"], r["seed"], r["result"], r["seconds"], r["output"], r["repeat"]) for r in data["runs"]
    ]
    simulation = Simulation(data["status"], runs)
    if check and simulation.failures:
        run = simulation.failures[0]
        raise SimulationFailed(
            f"{len(simulation.failures)} of {len(runs)} runs have not passed; the first, {run.mode} with {run.ranks} ranks "
            f"and seed {run.seed}, {run.result}:\n{run.output.rstrip()}\nto repeat it: {run.repeat}"
        )
    return simulation


@contextlib.contextmanager
def schedule(seed: int, kind: str = "mixed") -> Iterator[None]:
    """What runs inside has the schedule of this seed, and its stores come late where the race detector watches. Raises
    `SimulationFailed` at its end for data races that were found meanwhile, and for kernels whose failure nobody saw."""
    if native.backend != "simulator":
        raise native.NotSupported("schedule: kernels run on GPUs; set DEVCOMM_BACKEND=simulator or simulator_race")
    native.set_schedule(kind)
    native.set_seed(seed)
    if native.detects_races:
        native.set_store_delay(LATE_STORES)
        native.clear_races()
    native.clear_failure()
    try:
        yield
    except BaseException as error:
        if native.race_reports() > 0 and native.last_race() not in str(error):
            error.add_note(f"a data race was found before: {native.last_race()}")
        raise
    if native.race_reports() > 0:
        raise SimulationFailed(native.last_race())
    if native.last_failure():
        raise SimulationFailed(native.last_failure())


def run_seeds(function: Callable[[], Any], seeds: int | Sequence[int] = 8, kind: str = "mixed") -> None:
    """Calls the function under the schedule of each seed, from 1 on where `seeds` is their number. A failure is raised
    as it is, with its seed in a note."""
    for seed in range(1, seeds + 1) if isinstance(seeds, int) else seeds:
        try:
            with schedule(seed, kind):
                function()
        except BaseException as error:
            error.add_note(f"with seed {seed} of schedule '{kind}'")
            raise
        finally:
            if native.detects_races:
                native.clear_races()
            native.clear_failure()
