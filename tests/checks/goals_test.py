#!/usr/bin/env python3
"""scripts/goals.py takes the right row for each goal, and says what became of it."""
import json
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/goals.py"


def row(us, operation="exchange", size=1024, impl="devcomm", algo="one_shot", protocol="lamport", **others):
    return {"op": operation, "impl": impl, "algo": algo, "protocol": protocol, "ranks": 2, "bytes": size, "blocks": 64,
            "in_place": False, "graph": True, "pdl": False, "late_us": 0, "jitter_us": 0, "us_median": us, **others}


ROWS = [
    row(1.5, late_us=50), row(1.6, in_place=True), row(1.7, pdl=True), row(1.8, ranks=4), row(1.9, "all_reduce"),
    row(2.25), row(2.0),  # `auto` is the first
    row(2.2, impl="nccl"), row(2.4, impl="nccl", protocol="window"),
    row(2.3, size=4096), row(6.5, size=4096, impl="nccl"),
    row(190, size=64 << 20), row(207, size=64 << 20, blocks=16), row(205, size=64 << 20, blocks=8),
    row(390, "reduce_scatter", 256 << 20, algo="zero_copy"), row(394, "reduce_scatter", 256 << 20, algo="chunked"),
]
EXPECTED = [
    "| 1 KiB | 2.42 | 2.25 | 2.2 | 2.20 | missed, behind |",
    "| 4 KiB | 2.59 | 2.30 | 2.4 | 6.50 | held, ahead |",
    "| 64 KiB | 2.92 |  | 2.8 |  | not run |",
    "| 64 MiB | 226 | 205.00 | 206 |  | held |",  # the best in at most 16 blocks
    "| 256 MiB | 427 | 394.00 | 395 |  | held |",
]


def run(folder):
    return subprocess.run([sys.executable, SCRIPT, folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


with tempfile.TemporaryDirectory() as place:
    known = pathlib.Path(place, "2xH200")
    known.mkdir()
    (known / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS), encoding="utf-8")
    said = run(known)
    missing = [line for line in EXPECTED if line not in said.stdout.splitlines()]
    unknown = run(place)
    if said.returncode != 0 or missing or unknown.returncode != 1 or "has no goals for a machine" not in unknown.stdout:
        sys.exit("\n".join(["not said:", *missing, "said:", said.stdout, unknown.stdout]))
