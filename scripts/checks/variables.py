#!/usr/bin/env python3
"""Environment variables: host/src/util/known_variables.hpp has all of them, docs/environment.md lists them.

usage: variables.py [--fix] [ROOT]
--fix writes the list anew. Fails where the page differs, and where a source or a script reads a variable that is not listed.
"""
import pathlib
import re
import sys

ARGUMENTS = [a for a in sys.argv[1:] if a != "--fix"]
ROOT = pathlib.Path(ARGUMENTS[0]) if ARGUMENTS else pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "host/src/util/known_variables.hpp"
PAGE = ROOT / "docs/environment.md"
BEGIN, END = "<!-- begin: list -->\n", "<!-- end: list -->\n"

ENTRY = re.compile(r'\{"(DEVCOMM_\w+)",\s*"([^"]*)",\s*"([^"]*)"\}')
# How sources and scripts read one.
READS = re.compile(
    r'getenv\("(DEVCOMM_\w+)"'
    r'|(?:variables?|process_variables\(\)|number|picture_file|\w+_variable)\((?:\w+, )?"(DEVCOMM_\w+)"'
    r"|\$\{?(DEVCOMM_\w+)"
    r'|environ(?:\.get\(|\[)"(DEVCOMM_\w+)"'
)


def listed():
    return ENTRY.findall(LIST.read_text()) if LIST.exists() else []


def table(entries):
    lines = ["| variable | read by | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {user} | {meaning} |" for name, user, meaning in entries]
    return "\n".join(lines) + "\n"


def sources():
    for room in ("host", "simulator", "benchmarks", "scripts", "examples", ".ci", "cmake", "tests"):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".cu", ".cuh", ".sh", ".py") and path.is_file():
                name = str(path.relative_to(ROOT))
                # Two ask for others on purpose.
                if name not in ("tests/host/util/environment_test.cpp", "scripts/checks/selftest.sh"):
                    yield name, path.read_text(errors="replace")


def main():
    entries = listed()
    names = {name for name, _, _ in entries}
    failed = False
    if not entries or len(names) != len(entries):
        print(f"{LIST.relative_to(ROOT)}: no entries, or one twice")
        failed = True
    page = PAGE.read_text() if PAGE.exists() else BEGIN + END
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    wanted = before + BEGIN + table(entries) + END + after
    if page != wanted:
        if "--fix" in sys.argv:
            PAGE.write_text(wanted)
        else:
            print(f"{PAGE.relative_to(ROOT)} differs from the list; scripts/checks/variables.py --fix writes it")
            failed = True
    for name, text in sources():
        for found in READS.findall(text):
            variable = next(filter(None, found))
            if variable not in names and not variable.endswith("_"):
                print(f"{name}: {variable} is not in {LIST.relative_to(ROOT)}")
                failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
