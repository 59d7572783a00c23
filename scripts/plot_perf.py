#!/usr/bin/env python3
"""Draws devcomm-perf's lines of JSON: microseconds and bus bandwidth over the size of the message.

    scripts/plot_perf.py rows.jsonl... --out FILE [--title TEXT]

FILE ends in .svg or .png. A line for each implementation, algorithm and protocol, apart for dependent launch, launches one
by one and each lateness of the ranks (`--late`, `--jitter`); of several rows of one size, such as those in and out of place,
the fastest. Where the rows are of several operations, types or numbers of ranks, the names of the lines say which. Needs
matplotlib.
"""
import argparse
import json
import sys

COLORS = ["#0b6e4f", "#c1292e", "#235789", "#f1a208", "#7b2d8b", "#5c5c5c", "#00a6a6", "#8c510a"]
STYLES = ["-", "--", ":", "-."]  # from one round of the colors to the next


def size_text(size):
    for suffix, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{suffix}"
    return str(size)


def read_rows(paths):
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    rows.append(json.loads(line))
                    line_name(rows[-1])
                    measured_of(rows[-1])
                except (ValueError, KeyError, TypeError) as error:
                    sys.exit(f"plot_perf.py: {path}:{number}: no row of devcomm-perf --json: {error!r}")
    if not rows:
        sys.exit(f"plot_perf.py: no rows to draw in {', '.join(paths)}")
    return rows


def line_name(row):
    """Rows of old files have no lateness."""
    name = f"devcomm {row['algo']} {row['protocol']}" if row["impl"] == "devcomm" else f"{row['impl']} {row['protocol']}"
    if row["pdl"]:
        name += ", dependent launch"
    if not row["graph"]:
        name += ", launched one by one"
    if row.get("late_us", 0):
        name += f", {row['late_us']} us late"
    if row.get("jitter_us", 0):
        name += f", jitter of {row['jitter_us']} us"
    return name


def measured_of(row):
    """Operation, type and ranks, and then the numbers that are drawn."""
    return row["op"], row["dtype"], f"{row['ranks']} ranks", int(row["bytes"]), float(row["us_median"]), float(row["busbw"])


def common_and_different(rows):
    """What all rows are of, as text, and which of operation, type and ranks differ between them."""
    parts = [list(dict.fromkeys(measured_of(row)[i] for row in rows)) for i in range(3)]
    return ", ".join(part[0] for part in parts if len(part) == 1), [i for i in range(3) if len(parts[i]) > 1]


def collect(rows, different):
    """By name of the line, and then by size: the least time and the most bandwidth."""
    times, bandwidths = {}, {}
    for row in rows:
        measured = measured_of(row)
        name = ", ".join([line_name(row), *(measured[i] for i in different)])
        size, time, bandwidth = measured[3:]
        line = times.setdefault(name, {})
        line[size] = min(line.get(size, time), time)
        line = bandwidths.setdefault(name, {})
        line[size] = max(line.get(size, bandwidth), bandwidth)
    return times, bandwidths


def draw(axes, lines, title):
    from matplotlib.ticker import NullLocator

    for i, name in enumerate(sorted(lines)):
        sizes = sorted(lines[name])
        axes.plot(sizes, [lines[name][size] for size in sizes], label=name, linewidth=1.8, marker="o", markersize=3,
                  color=COLORS[i % len(COLORS)], linestyle=STYLES[i // len(COLORS) % len(STYLES)])
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xscale("log", base=2)
    all_sizes = [size for line in lines.values() for size in line]
    ticks = [min(all_sizes)]
    while ticks[-1] * 4 <= max(all_sizes):
        ticks.append(ticks[-1] * 4)
    axes.set_xticks(ticks)
    axes.set_xticklabels([size_text(size) for size in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="ROWS.jsonl")
    parser.add_argument("--out", required=True, metavar="FILE", help="the picture, .svg or .png")
    parser.add_argument("--title", help="instead of operation, type and ranks")
    arguments = parser.parse_args()
    if not arguments.out.endswith((".svg", ".png")):
        parser.error(f"--out {arguments.out}: give a name that ends in .svg or .png")
    try:
        rows = read_rows(arguments.rows)
    except OSError as error:
        sys.exit(f"plot_perf.py: {error}")
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
    except ImportError as error:
        sys.exit(f"plot_perf.py: needs matplotlib ({error}): apt install python3-matplotlib, or pip install matplotlib")

    # Text stays text in an SVG, and the same rows give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "devcomm", "font.family": "sans-serif"})
    common, different = common_and_different(rows)
    times, bandwidths = collect(rows, different)
    title = arguments.title if arguments.title is not None else common
    title += ": " if title else ""
    figure = Figure(figsize=(9, 8), layout="constrained")
    above, below = figure.subplots(2, 1)
    draw(above, times, title + "microseconds")
    above.set_yscale("log")
    above.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    above.yaxis.set_minor_locator(NullLocator())
    above.legend(fontsize=8, loc="upper left")
    draw(below, bandwidths, title + "bus bandwidth, GB/s")
    below.set_ylim(bottom=0)
    below.set_xlabel("bytes")
    try:
        figure.savefig(arguments.out, dpi=120, metadata={"Date": None} if arguments.out.endswith(".svg") else None)
    except OSError as error:
        sys.exit(f"plot_perf.py: {error}")


if __name__ == "__main__":
    main()
