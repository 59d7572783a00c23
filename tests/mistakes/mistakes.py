#!/usr/bin/env python3
"""Runs the programs with mistakes, and checks that each is found where the catalogue says, and nothing without it.

    mistakes.py check PROGRAMS NAME        fails unless each mode of its entry finds NAME, and no mode says anything
                                           without the mistake
    mistakes.py pages PROGRAMS             programs and entries name the same mistakes, and docs/mistakes.md shows code
                                           of the programs
    mistakes.py table PROGRAMS [NAME...]   prints which mode finds which mistake in how many of 20 runs, and their
                                           reports, as Markdown

PROGRAMS is the folder of the programs. The catalogue is catalogue.txt, and docs/mistakes.md, of which a section is

    ### Title (`name`)
    ```diff                            lines of the programs, with and without the mistake
    **mode, mode**, exit status 1, 0.1 s:
    ```                                lines of which each is in the output; ... is any text, numbers of ranks,
                                       blocks, threads and seeds any numbers

A mode or a program without a report has no quotation. Its programs run as users run them, and may take no more than ten
times the seconds of the page, and five more: machines are slow and busy, but one who waits for the simulator's grace
period or for a timeout waits longer than that.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "mistakes.md"
CATALOGUE = HERE / "catalogue.txt"

# Of each mode the program, what is set in its environment, and what runs.
MODES = {
    "plain": ("mistakes_none", {}, "the simulator alone, with the program's check of results"),
    "pct": ("mistakes_none", {"DEVCOMM_SIM_SCHEDULE": "pct:4:300"}, "the same under priority schedules with three priority changes"),
    "mixed": ("mistakes_none", {"DEVCOMM_SIM_SCHEDULE": "mixed"},
              "the same under the kind of schedule that the seed selects, including slow ranks, slow blocks and starved warps"),
    "race": ("mistakes_race", {"DEVCOMM_SIM_CHECK_SIDES": "1"}, "the race detector"),
    "store delay": ("mistakes_race", {"DEVCOMM_SIM_STORE_DELAY": "1024", "DEVCOMM_SIM_RACE_EXIT": "0"},
                    "the kernels with a store-buffer delay, and only the check of results"),
    "address": ("mistakes_address", {"ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=1"},
                "AddressSanitizer, UndefinedBehaviorSanitizer and LeakSanitizer over the whole program"),
    "thread": ("mistakes_thread", {}, "ThreadSanitizer"),
    "explorer": ("mistakes_none", {"MISTAKES_EXPLORE": "1"}, "the launch inside `devcomm::simulator::explore()`"),
    "explore": ("explored_none", {"DEVCOMM_SIM_RACE_EXIT": "0"}, "every interleaving"),
    "explore race": ("explored_race", {"DEVCOMM_SIM_RACE_EXIT": "0"}, "the same under the race detector, where a race is a failure"),
}
EXPLORED = ("explore", "explore race")
# A kernel of the catalogue may end in deadlock while another rank's host waits with a time limit: report it soon.
OF_CATALOGUE = {"DEVCOMM_SIM_GRACE_MS": "500", "DEVCOMM_SIM_LEAK_EXIT": "67"}
EVERY_RUN = 4  # runs of a mode of which 'all' must find a mistake, and runs without it


class Expected:
    """What one mode must say of a mistake."""

    def __init__(self, mode, least, runs, patterns, status=None, seconds=None):
        self.mode = mode
        self.least = least  # runs that find it
        self.runs = runs
        self.patterns = patterns  # each in the output of every run that fails
        self.status = status  # None: any that is not 0
        self.seconds = seconds


class Entry:
    def __init__(self, name, kind, environment):
        self.name = name
        self.kind = kind
        self.environment = environment
        self.expected = []
        self.code = []  # lines with their sign


class Run:
    def __init__(self, status, output, seconds, schedule):
        self.status = status
        self.output = output
        self.seconds = seconds
        self.schedule = schedule  # that an exploration has written, or None


def mode_named(text, where):
    if text.replace("_", " ") not in MODES:
        sys.exit(f"{where}: no mode is called '{text}'")
    return text.replace("_", " ")


def read_catalogue():
    entries = []
    for number, line in enumerate(CATALOGUE.read_text().splitlines(), 1):
        where = f"{CATALOGUE}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        if head := re.fullmatch(r"([a-z_]+): (.+)", line):
            entries.append(Entry(head[1], head[2], OF_CATALOGUE))
        elif (said := re.fullmatch(r"  ([a-z_]+) (all|\d+|\d+/\d+) (.+)", line)) and entries:
            least, _, runs = said[2].partition("/")
            runs = int(runs or EVERY_RUN)
            entries[-1].expected.append(
                Expected(mode_named(said[1], where), runs if least == "all" else int(least), runs, [said[3]]))
        else:
            sys.exit(f"{where}: 'name: kind, what it does' or '  mode COUNT what it says' is expected")
    return entries


def quoted_pattern(line):
    """What a quoted line of the page stands for."""
    text = r".*".join(re.escape(part) for part in line.strip().split("..."))
    return re.sub(r"\b(ranks?|blocks?|threads?|seed)\\ [\d\\-]*\d", r"\1 [\\d-]+", text)


def read_page():
    sections, fence, said, kind = [], None, [], ""
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        where = f"{PAGE}:{number}"
        if fence is not None:
            if line == "```":
                fence = None
            elif fence == "diff":
                sections[-1].code.append(line)
            else:
                for one in said:
                    one.patterns.append(quoted_pattern(line))
        elif line.startswith("## "):
            kind = line[3:].lower()
        elif line.startswith("### "):
            title = re.fullmatch(r"### (.*) \(`(\w+)`\)", line)
            if not title:
                sys.exit(f"{where}: a section is called '### Title (`name`)'")
            sections.append(Entry(title[2], f"{kind}, {title[1]}", {}))
        elif line.startswith("```") and sections:
            fence = line[3:]
        elif line.startswith("**") and sections:
            seen = re.fullmatch(r"\*\*([a-z, ]+)\*\*, exit status (\d+|SIGSEGV), ([\d.]+) s[:.]", line)
            if not seen:
                sys.exit(f"{where}: '**mode, mode**, exit status N, N s:' is expected")
            status = -11 if seen[2] == "SIGSEGV" else int(seen[2])
            said = [Expected(mode_named(mode, where), 1, 8 if mode == "store delay" else 1, [], status, float(seen[3]))
                    for mode in seen[1].split(", ")]
            sections[-1].expected += said
    return sections


def run(programs, entry, mode, seed, *more, replay=None):
    program, settings, _ = MODES[mode]
    environment = {key: value for key, value in os.environ.items() if not re.match("DEVCOMM_|NCCL_NVLS", key)}
    environment |= entry.environment | settings | {"DEVCOMM_SIM_SEED": str(seed)}
    if replay:
        environment["DEVCOMM_SIM_REPLAY"] = replay
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:  # for what explorations write
        done = subprocess.run([(programs / program).resolve(), entry.name, *more], env=environment, text=True, cwd=folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=120)
        schedule = pathlib.Path(folder) / "devcomm-schedule.txt"
        written = schedule.read_text() if schedule.exists() else None
    ending = f"ended by signal {-done.returncode}\n" if done.returncode < 0 else ""
    return Run(done.returncode, done.stdout + ending, time.monotonic() - begin, written)


def lacks(expected, one):
    """Why this is not the run that is expected; empty where it is."""
    if expected.status is not None and one.status != expected.status:
        return f"exit status {one.status}, expected {expected.status}"
    missing = [pattern for pattern in expected.patterns if not re.search(pattern, one.output)]
    if missing:
        return "its output lacks: " + "\n    ".join(missing)
    if expected.seconds is not None and one.seconds > 10 * expected.seconds + 5:
        return f"{one.seconds:.1f} s, and the page says {expected.seconds} s"
    return ""


def finds(programs, entry, expected):
    """Empty, or why the mode does not find the mistake as often as expected."""
    found, silent = 0, None
    for seed in range(1, expected.runs + 1):
        one = run(programs, entry, expected.mode, seed)
        if one.status == 0 and expected.status != 0:
            silent = one
            continue
        reason = lacks(expected, one)
        if not reason:
            found += 1
        elif entry.environment:  # of a kernel no run may fail of something else
            return f"seed {seed}: {reason}\n{one.output}"
        else:
            silent = one
            silent.output = f"{reason}\n{one.output}"
        if found == expected.least and expected.runs != expected.least:
            break
    if found >= expected.least:
        return ""
    return f"found with {found} of {expected.runs} seeds, expected {expected.least}\n{silent.output}"


def essence(output):
    """What failed, without how it was found."""
    dropped = r"devcomm simulator|.*executions$|.*to repeat it|$"
    lines = [re.sub(r"^execution \d+ fails: | \(seed [^)]*\)| \(0x[0-9a-f]*\)", "", line) for line in output.splitlines()]
    return [line for line in lines if not re.match(dropped, line)]


def repeats(programs, entry, mode):
    """Whether the schedule that an exploration writes repeats what it found; empty, or why not."""
    found = run(programs, entry, mode, 1)
    if found.schedule is None or "to repeat it: DEVCOMM_SIM_REPLAY=devcomm-schedule.txt" not in found.output:
        return f"no schedule\n{found.output}"
    with tempfile.NamedTemporaryFile("w") as schedule:
        schedule.write(found.schedule)
        schedule.flush()
        again = run(programs, entry, mode, 1, replay=schedule.name)
    if again.status == 0 or not essence(found.output) or essence(found.output) != essence(again.output):
        return f"the schedule does not repeat it\n{found.output}\n--\n{again.output}"
    return ""


def modes_of(entry, programs):
    """Those in which the entry is to say nothing without its mistake."""
    if not entry.environment:
        return list(dict.fromkeys(one.mode for one in entry.expected))
    explored = any(one.mode in EXPLORED for one in entry.expected)
    return [mode for mode in MODES if (mode in EXPLORED) == explored and mode != "explorer" and
            (programs / MODES[mode][0]).exists()]


def check(programs, name):
    entry = next((one for one in read_catalogue() + read_page() if one.name == name), None)
    if entry is None or not entry.expected:
        sys.exit(f"neither {CATALOGUE} nor {PAGE} says what one sees of {name}")
    thread_alone = not (programs / "mistakes_none").exists()
    expected = [one for one in entry.expected if (one.mode == "thread") == thread_alone]
    if not expected:
        sys.exit(f"no mode of {name} has its program in {programs}")
    failed = False

    def report(mode, reason):
        nonlocal failed
        if reason:
            failed = True
            print(f"== {name}, {mode}: {reason}")

    for one in expected:
        report(one.mode, finds(programs, entry, one))
        if one.mode in EXPLORED:
            report(one.mode, repeats(programs, entry, one.mode))
    for mode in modes_of(entry, programs):
        explores = mode in EXPLORED
        for seed in range(1, 1 + (EVERY_RUN if entry.environment and not explores else 1)):
            right = run(programs, entry, mode, seed, "right")
            if right.status != 0 or (not explores and "devcomm" in right.output):
                report(f"{mode}, without its mistake, seed {seed}", f"exit status {right.status}\n{right.output}")
    return failed


def pages(programs):
    failed = False

    def complain(text):
        nonlocal failed
        failed = True
        print(text)

    sections = read_page()
    entries = [entry.name for entry in sections + read_catalogue()]
    listed = []
    for program in ("mistakes_none", "explored_none"):
        listed += subprocess.run([programs / program], capture_output=True, text=True, check=True).stdout.split()
    for name in sorted(set(entries) ^ set(listed)):
        complain(f"{name} has {'no program' if name in entries else 'no entry'}")
    for name in sorted({name for name in entries if entries.count(name) > 1}):
        complain(f"{name} has two entries")
    squeezed = lambda text: re.sub(r"\s+", "", text)
    source = squeezed("".join(path.read_text() for path in sorted(HERE.glob("*.cu*"))))
    for section in sections:
        for line in section.code:
            setting = re.fullmatch(r"([-+])(\w+)=(\w+) ./program", line)
            if setting and setting[1] == "+":
                continue
            code = f'"{setting[2]}", "{setting[3]}"' if setting else line[1:]
            if squeezed(code) not in source:
                complain(f"{section.name}: the programs do not have '{line[1:].strip()}'")
        if {line[:1] for line in section.code} != {"-", "+"}:
            complain(f"{section.name}: the page shows no wrong or no right line")
    if len(sections) < 30:
        complain(f"{PAGE} has {len(sections)} mistakes")
    return failed


def shortened(output):
    """Of a report its first lines; of a sanitizer's, what was done where, and the line that the simulator adds."""
    lines = output.replace(f"{ROOT}/", "").splitlines()
    if "Sanitizer" in output:
        wanted = r"ERROR: |(READ|WRITE)|The signal|.*leak of|.*/mistakes/[a-z_]+\.cu|devcomm"
        lines = [line for line in (re.sub(r"^==\d+==", "", line) for line in lines) if re.match(wanted, line)]
    lines = [line for line in lines if line and not re.match("=+$", line)]
    lines = [re.sub(r" \(0x[0-9a-f]+\)|\(anonymous namespace\)::", "", line)[:300] for line in lines]
    return [re.sub(r"\([^()]*device_comm[^()]*\)", "(...)", line) for line in lines[:8]]


def table(programs, names):
    runs = 20
    modes = [mode for mode in MODES if mode in ("plain", "pct", "mixed", "race", "store delay", "address")]
    entries = [one for one in read_catalogue() + read_page() if all("explore" not in e.mode for e in one.expected)]
    print("# Mistakes and the modes that find them\n")
    print(f"In how many of {runs} runs, with the seeds 1 to {runs}, a mode finds each of the programs of tests/mistakes: by a\n"
          "report, a deadlock, or the check of results.\n\n| mode | what runs |\n|---|---|")
    for mode in modes:
        print(f"| {mode} | {MODES[mode][2]} |")
    print(f"\n| kind | mistake | {' | '.join(modes)} |\n|---|---|{'---|' * len(modes)}")
    details = []
    for entry in entries:
        if names and entry.name not in names:
            continue
        row, said = f"| {entry.kind.replace(', ', ': ', 1)} | [{entry.name}](#{entry.name}) |", set()
        details.append(f"\n### {entry.name}")
        for mode in modes:
            failing = [one for one in (run(programs, entry, mode, seed) for seed in range(1, runs + 1)) if one.status != 0]
            row += f" {len(failing) or '–'} |"
            text = failing[0].output if failing else ""
            if mode == "store delay":  # where races do not count
                text = re.sub(r"(?m)^(.*data race.*|  (read|write|atomic|not ordered|one of them).*|      at .*)\n", "", text)
            text = shortened(text)
            start = re.sub(r"\d+", "", text[0])[:60] if text else ""
            if start and start not in said:
                said.add(start)
                details += [f"\n{mode}:", "```", *text, "```"]
        print(row, flush=True)
    print("\n".join(details))
    return False


def main():
    match sys.argv[1:]:
        case ["check", programs, name]:
            failed = check(pathlib.Path(programs), name)
        case ["pages", programs]:
            failed = pages(pathlib.Path(programs))
        case ["table", programs, *names]:
            failed = table(pathlib.Path(programs), names)
        case _:
            sys.exit(__doc__)
    sys.exit(1 if failed else 0)


main()
