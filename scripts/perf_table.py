#!/usr/bin/env python3
"""Makes a table of Markdown from devcomm-perf's lines of JSON.

    scripts/perf_table.py rows.jsonl...

A row for each size: microseconds of devcomm out of place, in place and by programmatic dependent launch, with what ran, and
of the peers. Of several rows of one kind the first counts, so a file's own order decides. A table for each lateness of the
ranks (`--late`, `--jitter`), and for calls launched one by one; times include the lateness.
"""
import json
import sys


def size_text(size):
    for suffix, shift in (("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {suffix}iB"
    return f"{size} B"


def kind_of(row):
    if row["impl"] != "devcomm":
        return f"{row['impl']} {row['protocol']}" if not row["in_place"] else None
    if row["pdl"]:
        return "dependent" if not row["in_place"] else None
    return "in place" if row["in_place"] else "out of place"


def lateness_of(row):
    """Microseconds late once, random lateness of each call, and whether in a graph; rows of old files have no lateness."""
    return row.get("late_us", 0), row.get("jitter_us", 0), row.get("graph", True)


def lateness_text(lateness):
    late, jitter, graph = lateness
    text = f", one rank {late} us late for all calls" if late else f", each rank up to {jitter} us late for each call" if jitter else ""
    return text + ("" if graph else ", launched one by one")


def print_table(rows, lateness):
    cells, ran, peers, mean_late = {}, {}, [], {}
    for row in rows:
        kind = kind_of(row)
        if kind is None:
            continue
        if row["impl"] != "devcomm" and kind not in peers:
            peers.append(kind)
        cells.setdefault((row["bytes"], kind), row["us_median"])
        if lateness[0] or lateness[1]:
            mean_late[row["bytes"]] = row["mean_late_us"]
        if kind == "out of place":
            ran.setdefault(row["bytes"], f"{row['algo']} {row['protocol']}, {row['blocks']} x {row['threads']}")
    columns = ["out of place", "in place", "dependent", *peers]
    if mean_late:
        columns = [column for column in columns if any(c == column for _, c in cells)]
    heading = f"{rows[0]['ranks']} ranks, {rows[0]['dtype']}, us{lateness_text(lateness)}"
    print(f"{heading}; wrong elements in all rows: {sum(r['wrong'] for r in rows)}\n")
    names = columns + (["of it mean lateness"] if mean_late else [])
    print("| bytes | " + " | ".join(names) + " | devcomm ran |")
    print("|---" * (len(names) + 2) + "|")
    for size in sorted({size for size, _ in cells}):
        values = [f"{cells[size, c]:.2f}" if (size, c) in cells else "" for c in columns]
        if mean_late:
            values.append(f"{mean_late[size]:.2f}")
        print(f"| {size_text(size)} | " + " | ".join(values) + f" | {ran.get(size, '')} |")
    print()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        for lateness in dict.fromkeys(lateness_of(row) for row in rows):
            print_table([row for row in rows if lateness_of(row) == lateness], lateness)


main()
