"""The examples run, as threads and as processes, and under the race detector."""

import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = sorted((pathlib.Path(__file__).parent.parent / "examples").glob("*.py"))
EXAMPLES = [each for each in EXAMPLES if each.stem != "torch_extension"]  # of GPUs alone


@pytest.mark.parametrize("backend", ["simulator", "simulator_race"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, backend):
    done = subprocess.run(
        [sys.executable, str(example)],
        env=os.environ | {"DEVCOMM_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and "right" in done.stdout, done.stdout + done.stderr
