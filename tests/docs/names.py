#!/usr/bin/env python3
"""Fails where docs/from_nccl.md names something of devcomm that no public header has.

usage: names.py SOURCE_DIR
"""
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
headers = "\n".join(
    path.read_text() for folder in ("include", "host/include") for path in sorted((source / folder).rglob("*.[hc][pu]*")))
known = set(re.findall(r"[A-Za-z_]\w*", headers))
assert "barrier_session" in known and "ncclLsaBarrierSession" not in known, "the headers were not read"

missing, seen = [], 0
for line in (source / "docs/from_nccl.md").read_text().splitlines():
    cells = line.split(" | ")
    if not line.startswith("| ") or len(cells) < 2:
        continue
    for code in re.findall(r"`([^`]*)`", cells[-1]):
        for name in re.findall(r"[A-Za-z_]\w{2,}", code):
            seen += 1
            if name not in known:
                missing.append(f"{name}: {line}")
for one in missing:
    print(f"no public header has {one}")
if seen < 80:
    sys.exit(f"only {seen} names were found: the tables are not as they were")
sys.exit(1 if missing else 0)
