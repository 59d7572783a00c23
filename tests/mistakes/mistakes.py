#!/usr/bin/env python3
"""Checks docs/mistakes.md: its programs are run, and must say what the page says that one sees.

    mistakes.py check PROGRAMS NAME    runs NAME in each mode of its section, and without its mistake
    mistakes.py pages PROGRAMS         the page and the programs name the same mistakes; the code is that of the programs
    mistakes.py times PROGRAMS         prints the seconds of each mistake and mode

PROGRAMS is the folder of mistakes_none and the others. A section of the page is

    ### Title (`name`)
    ```diff                            lines of the programs, with and without the mistake
    **mode, mode**, exit status 1, 0.1 s:
    ```                                lines of which each is in the output; ... is any text, numbers of ranks,
                                       blocks, threads and seeds any numbers

A mode or a program without a report has no quotation. `check` fails as well where a run takes far longer than the page
says.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "mistakes.md"

# Mode: program, environment, and the seeds of which one must find it.
MODES = {
    "plain": ("mistakes_none", {}, [1]),
    "race": ("mistakes_race", {"DEVCOMM_SIM_CHECK_SIDES": "1"}, [1]),
    "address": ("mistakes_address", {}, [1]),
    "store delay": ("mistakes_race", {"DEVCOMM_SIM_STORE_DELAY": "1024", "DEVCOMM_SIM_RACE_EXIT": "0"}, range(1, 9)),
    "explorer": ("mistakes_none", {"MISTAKES_EXPLORE": "1"}, [1]),
}


class Section:
    def __init__(self, name):
        self.name = name
        self.code = []  # lines with their sign
        self.seen = []  # (modes, exit status, seconds, quoted lines)


def read_page():
    sections, fence = [], None
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if fence is not None:
            if line == "```":
                fence = None
            elif fence == "diff":
                sections[-1].code.append(line)
            else:
                sections[-1].seen[-1][3].append(line)
        elif line.startswith("### "):
            title = re.fullmatch(r"### .* \(`(\w+)`\)", line)
            if not title:
                sys.exit(f"{PAGE}:{number}: a section is called '### Title (`name`)'")
            sections.append(Section(title[1]))
        elif line.startswith("```") and sections:
            fence = line[3:]
        elif line.startswith("**") and sections:
            seen = re.fullmatch(r"\*\*([a-z, ]+)\*\*, exit status (\d+|SIGSEGV), ([\d.]+) s[:.]", line)
            if not seen:
                sys.exit(f"{PAGE}:{number}: '**mode, mode**, exit status N, N s:' is expected")
            modes = seen[1].split(", ")
            unknown = [mode for mode in modes if mode not in MODES]
            if unknown:
                sys.exit(f"{PAGE}:{number}: no mode is called '{unknown[0]}'")
            status = -11 if seen[2] == "SIGSEGV" else int(seen[2])
            sections[-1].seen.append((modes, status, float(seen[3]), []))
    return sections


def run(programs, mode, name, seed, *more):
    program, settings, _ = MODES[mode]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DEVCOMM_")}
    environment |= settings | {"DEVCOMM_SIM_SEED": str(seed)}
    environment["ASAN_OPTIONS"] = "detect_stack_use_after_return=0:detect_leaks=1"
    done = subprocess.run([programs / program, name, *more], env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def pattern(line):
    """What a quoted line stands for."""
    text = r".*".join(re.escape(part) for part in line.strip().split("..."))
    return re.sub(r"\b(ranks?|blocks?|threads?|seed)\\ [\d\\-]*\d", r"\1 [\\d-]+", text)


def missing(quoted, output):
    return [line for line in quoted if not re.search(pattern(line), output)]


def longest(seconds):
    """How long a run may take of which the page says so many seconds: machines are slow and busy, but one who waits for
    the simulator's grace period or for a timeout waits longer than that."""
    return 10 * seconds + 5


def check(programs, name):
    failed = False
    section = next((one for one in read_page() if one.name == name), None)
    if section is None or not section.seen:
        sys.exit(f"{PAGE} does not say what one sees of {name}")
    for modes, status, seconds, quoted in section.seen:
        for mode in modes:
            told = []
            for seed in MODES[mode][2]:
                begin = time.monotonic()
                got, output = run(programs, mode, name, seed)
                took = time.monotonic() - begin
                lacks = missing(quoted, output)
                if took > longest(seconds):
                    told = [f"{name}, {mode}, seed {seed}: {took:.1f} s, and the page says {seconds} s\n{output}"] + told
                elif got == status and not lacks:
                    break
                told.append(f"{name}, {mode}, seed {seed}: exit status {got}, expected {status}\n" +
                            "".join(f"  lacks: {line}\n" for line in lacks) + output)
            else:
                failed = True
                print(told[0])
    for mode in dict.fromkeys(mode for modes, *_ in section.seen for mode in modes):
        got, output = run(programs, mode, name, 1, "right")
        if got != 0 or "devcomm" in output:
            failed = True
            print(f"{name} without its mistake, {mode}: exit status {got}\n{output}")
    return failed


def pages(programs):
    failed = False
    sections = read_page()
    on_page = [section.name for section in sections]
    listed = subprocess.run([programs / "mistakes_none"], capture_output=True, text=True, check=True).stdout.split()
    for name in sorted(set(on_page) ^ set(listed)):
        print(f"{name} is {'only on the page' if name in on_page else 'not on the page'}")
        failed = True
    squeezed = lambda text: re.sub(r"\s+", "", text)
    source = squeezed("".join(path.read_text() for path in sorted(HERE.glob("*.cu*"))))
    for section in sections:
        for line in section.code:
            setting = re.fullmatch(r"([-+])(\w+)=(\w+) ./program", line)
            if setting and setting[1] == "+":
                continue
            code = f'"{setting[2]}", "{setting[3]}"' if setting else line[1:]
            if squeezed(code) not in source:
                print(f"{section.name}: the programs do not have '{line[1:].strip()}'")
                failed = True
        signs = {line[:1] for line in section.code}
        if signs != {"-", "+"}:
            print(f"{section.name}: the page shows no wrong or no right line")
            failed = True
    if len(on_page) < 30 or len(set(on_page)) != len(on_page):
        print(f"{len(on_page)} mistakes, or one twice")
        failed = True
    return failed


def times(programs):
    for section in read_page():
        for modes, *_ in section.seen:
            for mode in modes:
                begin = time.monotonic()
                got, _ = run(programs, mode, section.name, 1)
                print(f"{section.name}, {mode}: exit status {got}, {time.monotonic() - begin:.1f} s")
    return False


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    programs = pathlib.Path(sys.argv[2])
    what = {"check": lambda: check(programs, sys.argv[3]), "pages": lambda: pages(programs),
            "times": lambda: times(programs)}
    sys.exit(1 if what[sys.argv[1]]() else 0)


main()
