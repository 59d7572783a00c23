#!/usr/bin/env python3
"""Draws a trace of devcomm as an SVG picture: a row for each block of each rank, time from left to right.

usage: trace_to_svg.py TRACE.json PICTURE.svg [--from US] [--to US] [--blocks N] [--title TEXT]

--from and --to limit the time shown, in microseconds; --blocks the blocks of each rank (all by default).
"""
import argparse
import html
import json

COLORS = {"wait": "#d1495b", "reduction": "#2e86ab", "copy": "#3fa34d", "user": "#c9c9d4", "call": "#c9c9d4"}
WIDTH, LEFT, RIGHT, TOP, ROW, GAP = 1000, 120, 16, 64, 14, 6


def read_spans(path):
    """Names of the ranks, and (rank, track, depth, begin, end, name, category) of all spans."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names, tracks, stacks, spans, notes = {}, {}, {}, [], []
    for event in events:
        track = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] == "process_name":
                names[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                tracks[track] = event["args"]["name"]
        elif event["ph"] == "B":
            stacks.setdefault(track, []).append(event)
        elif event["ph"] == "E":
            begin = stacks[track].pop()
            spans.append((*track, len(stacks[track]), begin["ts"], event["ts"], begin["name"], begin["cat"]))
        elif event["ph"] == "i":
            notes.append(f"{names.get(event['pid'], '')}: {event['name']}")
    return names, tracks, spans, notes


def nice_step(length):
    step = 10 ** (len(str(int(max(length, 1)))) - 2)
    for factor in (1, 2, 5, 10, 20, 50):
        if length / (step * factor) <= 10:
            return step * factor
    return step * 100


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--from", dest="first", type=float, default=None)
    parser.add_argument("--to", dest="last", type=float, default=None)
    parser.add_argument("--blocks", type=int, default=None)
    parser.add_argument("--title", default=None)
    arguments = parser.parse_args()

    names, tracks, spans, notes = read_spans(arguments.trace)
    first = arguments.first if arguments.first is not None else min((s[3] for s in spans), default=0)
    last = arguments.last if arguments.last is not None else max((s[4] for s in spans), default=1)
    length = max(last - first, 1e-6)
    shown = [s for s in spans if s[4] >= first and s[3] <= last]
    if arguments.blocks is not None:
        shown = [s for s in shown if s[1] // 32 < arguments.blocks]

    # Rows in the order of ranks and blocks, with a gap between ranks.
    rows, y, rank_before = {}, TOP, None
    labels = []
    for track in sorted({(s[0], s[1]) for s in shown}):
        if track[0] != rank_before:
            y += GAP
            labels.append(f'<text x="8" y="{y + ROW - 3}" font-weight="bold">{html.escape(names[track[0]].split(" (")[0])}</text>')
            rank_before = track[0]
        labels.append(f'<text x="{LEFT - 8}" y="{y + ROW - 3}" text-anchor="end">{html.escape(tracks[track])}</text>')
        rows[track] = y
        y += ROW + 2
    height = y + 44

    def at(time):
        return LEFT + (min(max(time, first), last) - first) / length * (WIDTH - LEFT - RIGHT)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="10">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-size="14">{html.escape(arguments.title or "devcomm trace")}</text>',
    ]
    x = 8
    outer = {kind: ", ".join(sorted({s[5] for s in shown if s[6] == kind})) for kind in ("call", "user")}
    legend = [("wait", "waits for peers"), ("reduction", "reduction"), ("copy", "copy"), *outer.items()]
    for category, text in legend:
        if any(s[6] == category for s in shown):
            out.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{COLORS[category]}"/>')
            out.append(f'<text x="{x + 16}" y="42">{html.escape(text)}</text>')
            x += 40 + 6 * len(text)
    step = nice_step(length)
    tick = -(-first // step) * step
    while tick <= last:
        out.append(f'<line x1="{at(tick):.1f}" y1="{TOP}" x2="{at(tick):.1f}" y2="{y}" stroke="#e4e4ea"/>')
        out.append(f'<text x="{at(tick):.1f}" y="{y + 14}" text-anchor="middle">{tick:g}</text>')
        tick += step
    out.append(f'<text x="{WIDTH - RIGHT}" y="{y + 28}" text-anchor="end">microseconds</text>')
    if notes:
        out.append(f'<text x="8" y="{y + 28}" fill="#a33">{html.escape("; ".join(notes[:3]))}</text>')
    out += labels
    for rank, thread, depth, begin, end, name, category in sorted(shown, key=lambda s: s[2]):
        inset = min(2 * depth, 6)
        x0, x1 = at(begin), at(end)
        out.append(
            f'<rect x="{x0:.2f}" y="{rows[(rank, thread)] + inset / 2:.1f}" width="{max(x1 - x0, 0.3):.2f}" '
            f'height="{ROW - inset}" fill="{COLORS.get(category, "#888")}">'
            f"<title>{html.escape(name)}: {end - begin:.3f} us</title></rect>"
        )
    out.append("</svg>")
    with open(arguments.picture, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
