#!/usr/bin/env python3
"""Refuses words that this project has replaced by those of the field, and paths of machines in results.

usage: words.py [ROOT]
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])

# Each with what to write instead.
WORDS = {
    r"\b(most|least)_\w+": "max_, min_",
    r"(?i)farewell": "shutdown notice",
    r"(?i)companion": "background task",
    r"(?i)\bmeetings?\b": "barrier, rendezvous, sync",
    r"(?i)\bflights?\b(?<!in flight)": "operation",
    r"(?i)\blanding\b|\b(to|from)_land\b": "bounce buffer, staging",
    r"(?i)whole_lines": "ll128, round_up_to_line",
    r"(?i)\bstands? for the\b": "is counted as, replaces",
    r"(?i)brought on|brings? on\b": "makes progress on",
    r"has so many": "uses 2 proxies",
    r"gave up after": "timed out after",
    r"(?i)synchronis|neighbour|behaviour|initialis|optimis(e|ation)|colour|specialis|normalis": "American spelling",
    r"(?i)acknowledgement": "acknowledgment",
}
# Where a word is right: text of the line, and why.
EXCEPTIONS = [
    (r"\bmost_common\(", "Python's"),
    (r"max_in_flight|bytes_in_flight|in_flight", "the field's"),
]


def files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 and listed.stdout else \
        [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()]
    for name in names:
        skipped = name.startswith(("benchmarks/results/", "tests/fuzz/corpus/")) or name in ("LICENSE", "scripts/checks/words.py")
        if not skipped and pathlib.Path(name).suffix in (".hpp", ".cpp", ".cuh", ".cu", ".md", ".py", ".sh", ".txt", ".cmake"):
            yield name


def machine_paths():
    """In the logs of results."""
    for path in sorted((ROOT / "benchmarks/results").rglob("*")):
        if path.suffix not in (".log", ".jsonl", ".json", ".md", ".txt"):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if found := re.search(r"(?<![\w.])/(root|home|tmp|work|mnt|data)/\S*", line):
                yield f"{path.relative_to(ROOT)}:{number}: a path of the machine that it was measured on: {found[0]}"


def main():
    found = 0
    for line in machine_paths():
        print(line)
        found += 1
    for name in files():
        path = ROOT / name
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for word, instead in WORDS.items():
                if re.search(word, line) and not any(re.search(right, line) for right, _ in EXCEPTIONS):
                    print(f"{name}:{number}: write '{instead}': {line.strip()[:120]}")
                    found += 1
    return 1 if found else 0


sys.exit(main())
