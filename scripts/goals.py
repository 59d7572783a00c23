#!/usr/bin/env python3
"""Holds devcomm-perf's rows against the goals of benchmarks/goals.txt, which says what a goal is.

    scripts/goals.py FOLDER...

A folder has the rows of one machine, as scripts/gpu_results.sh leaves them, and is named as the goals name the machine:
benchmarks/results/2xH200. Prints a table of Markdown for each operation. 'held' and 'missed' are against the goal; 'ahead' and
'behind' against the fastest peer among the rows. The exit status is 1 where a folder has no goals.
"""
import json
import pathlib
import re
import sys

GOALS = pathlib.Path(__file__).resolve().parent.parent / "benchmarks/goals.txt"
LINE = re.compile(r"(\S+) (\S+) (\d+) (graph|dependent|eager)(?: blocks<=(\d+))? (\S+) (\d+)([KMG]?) ([\d.]+|-) ([\d.]+)$")
SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}


class Goal:
    def __init__(self, match):
        self.machine, self.operation, ranks, self.how, blocks, self.algorithm, size, unit, before, goal = match.groups()
        self.ranks = int(ranks)
        self.max_blocks = int(blocks) if blocks else None
        self.size = f"{size} {unit}iB" if unit else f"{size} B"
        self.bytes = int(size) << SHIFTS[unit]
        self.before = before
        self.goal = float(goal)

    def is_of(self, row):
        how = "dependent" if row["pdl"] else "graph" if row["graph"] else "eager"
        return (row["op"] == self.operation and row["ranks"] == self.ranks and row["bytes"] == self.bytes and
                how == self.how and not row["in_place"])

    def is_met_by(self, row):
        names = (row["algo"], f"{row['algo']}_{row['protocol']}")
        return (row["impl"] == "devcomm" and (self.max_blocks is None or row["blocks"] <= self.max_blocks) and
                (self.algorithm in ("auto", "best") or self.algorithm in names))


def read_goals():
    goals = []
    for number, line in enumerate(GOALS.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.match(line)
        if match is None:
            sys.exit(f"{GOALS}:{number}: not a goal: {line}")
        goals.append(Goal(match))
    return goals


def read_rows(folder):
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            rows += [json.loads(line) for line in lines]
    return [r for r in rows if not r.get("late_us", 0) and not r.get("jitter_us", 0)]


def cells_of(goal, rows):
    """What was measured, the fastest peer, and the verdict."""
    here = [row for row in rows if goal.is_of(row)]
    found = [row["us_median"] for row in here if goal.is_met_by(row)]
    if not found:
        return "", "", "not run"
    measured = min(found) if goal.algorithm == "best" else found[0]
    peer = min((row["us_median"] for row in here if row["impl"] != "devcomm"), default=None)
    verdict = "held" if measured <= goal.goal else "missed"
    if peer is not None:
        verdict += ", ahead" if measured <= peer else ", behind"
    return f"{measured:.2f}", "" if peer is None else f"{peer:.2f}", verdict


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    goals = read_goals()
    for folder in map(pathlib.Path, sys.argv[1:]):
        mine = [goal for goal in goals if goal.machine == folder.resolve().name]
        if not mine:
            sys.exit(f"{folder}: {GOALS} has no goals for a machine '{folder.resolve().name}'")
        rows = read_rows(folder)
        heading = None
        for goal in mine:
            blocks = f", at most {goal.max_blocks} blocks" if goal.max_blocks else ""
            of_goal = f"{goal.operation}, {goal.ranks} ranks, {goal.how}{blocks}, {goal.algorithm}"
            if of_goal != heading:
                heading = of_goal
                print(f"\n{goal.machine}: {heading}, us\n\n| bytes | before | now | goal | peer | |\n|---|---|---|---|---|---|")
            measured, peer, verdict = cells_of(goal, rows)
            print(f"| {goal.size} | {goal.before} | {measured} | {goal.goal:g} | {peer} | {verdict} |")


main()
