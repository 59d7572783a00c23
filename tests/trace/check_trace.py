#!/usr/bin/env python3
"""Checks a trace: valid JSON, every begin has its end, spans nest, times never go back, each rank's blocks are there.

usage: check_trace.py FILE RANKS [BLOCKS [NAME...]]
Each NAME must be the name of a span on every block of every rank; % is replaced by the block. Exit status 1 names what is wrong.
"""
import json
import sys


def fail(text):
    sys.exit(f"check_trace: {text}")


def main():
    path, ranks = sys.argv[1], int(sys.argv[2])
    blocks = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    names = sys.argv[4:]
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    data = trace["otherData"]
    for field in ("backend", "lost_spans", "spans_without_room", "clock_step_ns", "clocks"):
        if field not in data:
            fail(f"otherData has no {field}")
    if [clock["rank"] for clock in data["clocks"]] != list(range(ranks)):
        fail(f"the clocks are those of {data['clocks']}, not of ranks 0 to {ranks - 1}")

    open_spans, seen, last, spans = {}, {}, {}, 0
    earliest = None
    for event in trace["traceEvents"]:
        track = (event["pid"], event["tid"])
        phase = event["ph"]
        if phase == "M":
            continue
        if event["ts"] < last.get(track, 0):
            fail(f"time goes back on track {track}: {event}")
        last[track] = event["ts"]
        if phase == "B":
            for field in ("name", "cat"):
                if not event[field]:
                    fail(f"no {field}: {event}")
            open_spans.setdefault(track, []).append(event["name"])
            seen.setdefault(track, set()).add(event["name"])
            earliest = event["ts"] if earliest is None else min(earliest, event["ts"])
        elif phase == "E":
            if not open_spans.get(track):
                fail(f"an end without a begin on track {track}: {event}")
            open_spans[track].pop()
            spans += 1
        elif phase != "i":
            fail(f"unknown phase: {event}")
    for track, names_left in open_spans.items():
        if names_left:
            fail(f"no end of {names_left} on track {track}")
    if earliest != 0:
        fail(f"the first span begins at {earliest}, not at 0")
    if {pid for pid, _ in seen} != set(range(ranks)):
        fail(f"there are spans of ranks {sorted({pid for pid, _ in seen})}, not of {ranks} ranks")
    for rank in range(ranks):
        for block in range(blocks):
            missing = {name.replace("%", str(block)) for name in names} - seen.get((rank, 32 * block), set())
            if missing:
                fail(f"rank {rank}, block {block} has no {sorted(missing)}")
    print(f"{path}: {spans} spans on {len(seen)} tracks of {ranks} ranks")


if __name__ == "__main__":
    main()
