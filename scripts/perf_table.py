#!/usr/bin/env python3
"""Makes a table of Markdown from devcomm-perf's lines of JSON.

    scripts/perf_table.py rows.jsonl...

A row for each size: microseconds of devcomm out of place, in place and by programmatic dependent launch, with what ran, and
of the peers. Of several rows of one kind the first counts, so a file's own order decides.
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


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        cells, ran, peers = {}, {}, []
        with open(path, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        for row in rows:
            kind = kind_of(row)
            if kind is None:
                continue
            if row["impl"] != "devcomm" and kind not in peers:
                peers.append(kind)
            cells.setdefault((row["bytes"], kind), row["us_median"])
            if kind == "out of place":
                ran.setdefault(row["bytes"], f"{row['algo']} {row['protocol']}, {row['blocks']} x {row['threads']}")
        columns = ["out of place", "in place", "dependent", *peers]
        print(f"{rows[0]['ranks']} ranks, {rows[0]['dtype']}, us; wrong elements in all rows: {sum(r['wrong'] for r in rows)}\n")
        print("| bytes | " + " | ".join(columns) + " | devcomm ran |")
        print("|---" * (len(columns) + 2) + "|")
        for size in sorted({size for size, _ in cells}):
            values = [f"{cells[size, c]:.2f}" if (size, c) in cells else "" for c in columns]
            print(f"| {size_text(size)} | " + " | ".join(values) + f" | {ran.get(size, '')} |")
        print()


main()
