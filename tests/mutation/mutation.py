#!/usr/bin/env python3
"""Mutants of the device headers: plants them, and runs the tests that are to kill them.

mutation.py plant INCLUDE OUT
    Writes to OUT a copy of each header below INCLUDE that mutants.txt changes, with every mutant behind a switch at run
    time (switch.cpp), so that one build serves all. Headers that have not changed are not written again. Stops with the
    name of a mutant whose text is not in its header, or more than once.

mutation.py check [ROOT]
    Whether each mutant's text is in its header of the tree ROOT.

mutation.py run BUILD [--all | --seed N | --only MUTANT...] [--jobs N]
    Builds the programs that are needed in the build folder BUILD, of preset simulator-race, and runs mutants against them:
    all, those that are named, by name or by header, or a sample that the seed selects. Fails if one survives and
    mutants.txt does not say why, or if one of which it says so is killed.

mutation.py list
    Names, kinds and tests of all mutants, and why some survive.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
CHANGE = re.compile(r"\{~~(.*?)~>(.*?)~~\}", re.DOTALL)

# What a mode sets in the environment of a test, and with how many seeds it runs where a mutant's line does not say.
MODES = {
    "plain": ({"DEVCOMM_SIM_RACE_EXIT": "0"}, 2),
    "software": ({"DEVCOMM_SIM_RACE_EXIT": "0", "DEVCOMM_SIM_MULTICAST": "none"}, 1),
    "race": ({}, 2),
    "late": ({"DEVCOMM_SIM_STORE_DELAY": "1024"}, 8),
    "explore": ({}, 1),
    "address": ({"ASAN_OPTIONS": "detect_stack_use_after_return=0"}, 1),
}

# Of a sample: enough for a look at several headers, few enough programs to compile.
SAMPLE_PROGRAMS = 4
SAMPLE_MUTANTS = 24

# Seconds after which one run of a test is ended, which kills the mutant: this, and so many times what it takes without one.
TIME_LIMIT = 20
TIMES_AS_LONG = 4


class Mistake(Exception):
    """In mutants.txt, or in what was asked for."""


class Mutant:
    def __init__(self, name, header, kind, what):
        self.number = zlib.crc32(name.encode())  # stays when others come and go; 0 is no mutant
        self.name = name
        self.header = header
        self.kind = kind
        self.what = what
        self.snippet = ""
        self.tests = []  # (program, mode, seeds, arguments)
        self.equivalent = ""  # why no program can tell
        self.beyond = ""  # why the simulator cannot tell

    def may_survive(self):
        return bool(self.equivalent or self.beyond)


def read_mutants(path):
    mutants = []
    header = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path.name}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("in "):
            header = line[3:].strip()
        elif not line.startswith(" "):
            match = re.fullmatch(r"([a-z0-9_]+): ([a-z ]+), (.+)", line)
            if not match or header is None:
                raise Mistake(f"{where}: expected 'name: kind, what it does' below 'in HEADER': {line}")
            if any(m.number == zlib.crc32(match[1].encode()) for m in mutants):
                raise Mistake(f"{where}: there is another mutant '{match[1]}', or one of the same number")
            mutants.append(Mutant(match[1], header, match[2], match[3]))
        elif not mutants:
            raise Mistake(f"{where}: a line of no mutant: {line}")
        elif line.startswith("  > "):
            match = re.fullmatch(r"([a-z0-9_]+) ([a-z]+)(?:\*(\d+))?(?: (.+))?", line[4:].strip())
            if not match or match[2] not in MODES:
                raise Mistake(f"{where}: expected '> PROGRAM MODE[*SEEDS] [TEST CASE]', with a mode of {', '.join(MODES)}")
            mutants[-1].tests.append((match[1], match[2], int(match[3] or MODES[match[2]][1]), match[4] or ""))
        elif line.startswith("  = "):
            mutants[-1].equivalent = f"{mutants[-1].equivalent} {line[4:].strip()}".strip()
        elif line.startswith("  ! "):
            mutants[-1].beyond = f"{mutants[-1].beyond} {line[4:].strip()}".strip()
        else:
            mutants[-1].snippet += line[2:] + "\n"
    for mutant in mutants:
        if len(CHANGE.findall(mutant.snippet)) != 1:
            raise Mistake(f"mutant '{mutant.name}' needs one change, {{~~old~>new~~}}")
        if not mutant.tests:
            raise Mistake(f"mutant '{mutant.name}' names no test that is to kill it")
    return mutants


# --- planting ---


SPACE = r"(?:\s|//[^\n]*)+"


def as_pattern(text):
    """Of the text with any space, or comments, between its words."""
    return SPACE.join(re.escape(word) for word in text.split())


class Change:
    def __init__(self, begin, end, mutant, new):
        self.begin = begin
        self.end = end
        self.mutant = mutant
        self.new = new


def has_bare_comma(text):
    depth = 0
    for character in re.sub(r"<[\w:, ]*>", "", text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            return True
    return False


def find_change(mutant, source):
    before, old, new, after = re.fullmatch(r"(.*?)\{~~(.*?)~>(.*?)~~\}(.*)", mutant.snippet, re.DOTALL).groups()
    where = f"mutant '{mutant.name}' in {mutant.header}"
    pattern = as_pattern(before)
    if before and before[-1].isspace() and before.strip():
        pattern += SPACE
    pattern += f"(?P<old>{as_pattern(old)})"
    if after.strip():
        pattern += (SPACE if after[0].isspace() else "") + as_pattern(after)
    matches = list(re.finditer(pattern, source))
    if len(matches) != 1:
        times = "no longer there" if not matches else f"there {len(matches)} times"
        raise Mistake(f"{where}: its text is {times}; mend tests/mutation/mutants.txt:\n{mutant.snippet}")
    if not new.strip() and old.rstrip()[-1] not in ";}":
        raise Mistake(f"{where}: nothing can stand in place of an expression")
    if old.rstrip()[-1] not in ";}" and any(has_bare_comma(text) for text in (old, new)):
        raise Mistake(f"{where}: a list is no expression; take the whole statement")
    return Change(*matches[0].span("old"), mutant, new.strip())


def planted_text(source, changes):
    """The source with every change behind a switch; changes may lie within others, or be of the same text."""

    def rewrite(begin, end, inside):
        result = ""
        at = begin
        while inside:
            outer = inside[0]
            same = [c for c in inside if (c.begin, c.end) == (outer.begin, outer.end)]
            within = [c for c in inside if c.begin >= outer.begin and c.end <= outer.end and c not in same]
            crossing = [c for c in inside if c.begin < outer.end < c.end]
            if crossing:
                raise Mistake(f"mutants '{outer.mutant.name}' and '{crossing[0].mutant.name}' overlap")
            result += source[at : outer.begin]
            body = rewrite(outer.begin, outer.end, within)
            for change in same:
                old = source[change.begin : change.end]
                switch = f"devcomm_mutant({change.mutant.number}u)"
                if old.rstrip()[-1] in ";}":
                    body = f"{{ if ({switch}) {{ {change.new} }} else {{ {body} }} }}"
                else:
                    body = f"({switch} ? ({change.new}) : ({body}))"
            result += body
            at = outer.end
            inside = [c for c in inside if c.begin >= outer.end]
        return result + source[at:end]

    changes = sorted(changes, key=lambda c: (c.begin, -c.end))
    return rewrite(0, len(source), changes)


def planted(source, changes):
    return planted_text(source, changes).replace("#pragma once\n", "#pragma once\n\n#include <devcomm_mutant.hpp>\n", 1)


def write_if_changed(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def plant(mutants, include, out=None):
    """Without OUT only looks whether it can be done."""
    by_header = collections.defaultdict(list)
    for mutant in mutants:
        by_header[mutant.header].append(mutant)
    mistakes = []
    for header, mutants in by_header.items():
        path = include / "devcomm" / header
        if not path.exists():
            raise Mistake(f"mutant '{mutants[0].name}': there is no header {path}")
        source = path.read_text()
        changes = []
        for mutant in mutants:
            try:
                changes.append(find_change(mutant, source))
            except Mistake as mistake:
                mistakes.append(str(mistake))
        text = planted(source, changes)
        if out is not None:
            write_if_changed(out / "devcomm" / header, text)
    if mistakes:
        raise Mistake("\n".join(mistakes))
    if out is not None:
        # A copy of a header without mutants would hide the header.
        for path in (out / "devcomm").rglob("*"):
            if path.is_file() and path.relative_to(out / "devcomm").as_posix() not in by_header:
                path.unlink()


# --- running ---

# What says how a mutant was killed, in the order in which they are looked for.
SIGNS = [
    ("race report", r"data race"),
    ("deadlock report", r"deadlock"),
    ("sanitizer", r"AddressSanitizer|runtime error:"),
    ("misuse or fault report", r"devcomm simulator:"),
    ("failure record", r"timed out|did not arrive|mismatch|gave up|within \d+ ms"),
    ("interleaving", r"interleaving|execution"),
]


class Outcome:
    def __init__(self, mutant, how="", test=None, seed=0, seconds=0.0, output="", reached=True):
        self.mutant = mutant
        self.how = how  # empty: it survived
        self.test = test
        self.seed = seed
        self.seconds = seconds
        self.output = output
        self.reached = reached


def how_it_ended(mode, status, output):
    """Empty where the test passed."""
    if status == 0:
        return ""
    for how, sign in SIGNS:
        if how == "race report" and mode in ("plain", "software"):
            continue  # there they do not count
        if re.search(sign, output):
            return how
    return f"signal {-status}" if status < 0 else "wrong result"


class Runner:
    def __init__(self, build):
        self.programs = build / "bin"
        self.taken = {}  # seconds, of a program's cases without a mutant

    def run(self, number, test, seed):
        """How it ended, the output, and whether the mutant was reached."""
        program, mode, _, arguments = test
        command = [str(self.programs / f"mutation_{program}")]
        if mode == "explore":
            command += [arguments] if arguments else []
        else:
            command += ["--abort"] + ([arguments] if arguments else [])
        environment = {k: v for k, v in os.environ.items() if not re.match(r"DEVCOMM_|NCCL_NVLS", k)}
        environment.update(PLANTED_MUTANT=str(number), DEVCOMM_SIM_SEED=str(seed), DEVCOMM_SIM_GRACE_MS="500")
        if mode != "explore":
            environment["DEVCOMM_SIM_SCHEDULE"] = "mixed"
        environment.update(MODES[mode][0])
        begin = time.monotonic()
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=self.limit(test), text=True, errors="replace")
        except subprocess.TimeoutExpired as late:
            return "time limit", str(late.stdout or ""), True
        if re.search(r"No test cases matched|No tests ran", done.stdout) or done.returncode == 127:
            raise Mistake(f"{program} has no test case {arguments}")
        if number == 0:
            self.taken[program, arguments] = time.monotonic() - begin
        reached = "devcomm mutant: not reached" not in done.stdout
        return how_it_ended(mode, done.returncode, done.stdout), done.stdout, reached

    def limit(self, test):
        return TIME_LIMIT + TIMES_AS_LONG * self.taken.get((test[0], test[3]), 5 * TIME_LIMIT)

    def run_mutant(self, mutant):
        begin = time.monotonic()
        reached = False
        for test in mutant.tests:
            for seed in range(1, test[2] + 1):
                how, output, here = self.run(mutant.number, test, seed)
                reached = reached or here
                if how:
                    return Outcome(mutant, how, test, seed, time.monotonic() - begin, output)
        return Outcome(mutant, seconds=time.monotonic() - begin, reached=reached)


def sample_of(mutants, seed):
    """Of mutants in the order that the seed gives, the first that few programs serve."""
    order = list(mutants)
    random.Random(seed).shuffle(order)
    programs, chosen = set(), []
    for mutant in order:
        needed = {test[0] for test in mutant.tests}
        if len(programs | needed) > SAMPLE_PROGRAMS:
            continue
        programs |= needed
        chosen.append(mutant)
        if len(chosen) == SAMPLE_MUTANTS:
            break
    return chosen


def described(test):
    program, mode, _, arguments = test
    return f"{program}, {mode}" + (f": {arguments}" if arguments else "")


def run(build, mutants, jobs):
    """Outcomes by name, in the order of the mutants; None where the programs fail without a mutant."""
    programs = sorted({test[0] for mutant in mutants for test in mutant.tests})
    begin = time.monotonic()
    targets = [f"mutation_{program}" for program in programs]
    built = subprocess.run(["cmake", "--build", str(build), "-j", str(jobs), "--target", *targets], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode != 0:
        print("\n".join(line for line in built.stdout.splitlines() if not re.match(r"\[\d+/\d+\]", line))[-8000:])
        return None
    print(f"-- {len(programs)} programs built in {time.monotonic() - begin:.0f} s: {', '.join(programs)}", flush=True)

    runner = Runner(build)
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        # Each of a program's cases once, in one of the modes that it is used in.
        tests = list({(test[0], test[3]): test for mutant in mutants for test in mutant.tests}.values())
        right = True
        for test, (how, output, _) in zip(tests, pool.map(lambda t: runner.run(0, t, 1), tests)):
            if how:
                print(f"-- without a mutant, {described(test)} fails ({how}):\n{output[-4000:]}")
                right = False
        if not right:
            return None
        print(f"-- {len(tests)} tests pass without a mutant, in {time.monotonic() - begin:.0f} s", flush=True)
        outcomes = []
        for outcome in pool.map(runner.run_mutant, mutants):
            outcomes.append(outcome)
            mutant = outcome.mutant
            if outcome.how:
                mode = f"{outcome.test[0]}, {outcome.test[1]}, seed {outcome.seed}"
                line = f"killed    {mutant.name} ({mutant.kind}): {outcome.how}; {mode}"
                line += "  BUT SAID TO SURVIVE" if mutant.may_survive() else ""
            elif mutant.may_survive():
                why = "equivalent" if mutant.equivalent else "beyond the simulator"
                line = f"survived  {mutant.name} ({mutant.kind}): {why}, see mutants.txt"
            else:
                line = f"SURVIVED  {mutant.name} ({mutant.kind})" + ("" if outcome.reached else ": never reached")
            print(f"   {line}  {outcome.seconds:.1f} s", flush=True)
    return outcomes


def summary(outcomes, seconds):
    killed = [o for o in outcomes if o.how]
    ways = collections.Counter(o.how for o in killed)
    text = ", ".join(f"{count} by {how}" for how, count in ways.most_common())
    return (f"{len(outcomes)} mutants in {seconds:.0f} s: {len(killed)} killed ({text}), "
            f"{len(outcomes) - len(killed)} survived")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    planting = commands.add_parser("plant")
    planting.add_argument("include", type=pathlib.Path)
    planting.add_argument("out", type=pathlib.Path)
    running = commands.add_parser("run")
    running.add_argument("build", type=pathlib.Path)
    running.add_argument("--all", action="store_true")
    running.add_argument("--seed", default=None)
    running.add_argument("--jobs", type=int, default=os.cpu_count())
    running.add_argument("--verbose", action="store_true", help="prints what the tests said")
    running.add_argument("--only", nargs="+", metavar="MUTANT", default=[])
    commands.add_parser("list")
    checking = commands.add_parser("check")
    checking.add_argument("root", type=pathlib.Path, nargs="?", default=HERE.parent.parent)
    options = parser.parse_args()

    if options.command == "plant":
        plant(read_mutants(HERE / "mutants.txt"), options.include, options.out)
        return 0
    if options.command == "check":
        mutants = read_mutants(options.root / "tests/mutation/mutants.txt")
        plant(mutants, options.root / "include")
        return 0
    mutants = read_mutants(HERE / "mutants.txt")
    if options.command == "list":
        for mutant in mutants:
            print(f"{mutant.name} ({mutant.kind}, {mutant.header}): {mutant.what}")
            for test in mutant.tests:
                print(f"    {described(test)}")
            if mutant.may_survive():
                print(f"    survives: {mutant.equivalent or mutant.beyond}")
        return 0
    if bool(options.only) + options.all + (options.seed is not None) > 1:
        raise Mistake("give one of --all, --seed and --only")
    chosen = mutants
    if options.only:
        chosen = [m for m in mutants if m.name in options.only or str(m.header) in options.only]
        unknown = set(options.only) - {m.name for m in chosen} - {m.header for m in chosen}
        if unknown:
            raise Mistake(f"there is no mutant, and no header with mutants, '{sorted(unknown)[0]}'; mutation.py list names all")
    elif not options.all:
        seed = options.seed if options.seed is not None else hashlib.sha1(os.urandom(8)).hexdigest()[:8]
        chosen = sample_of(mutants, seed)
        print(f"-- a sample of {len(chosen)} of {len(mutants)} mutants, by seed {seed}")
    begin = time.monotonic()
    outcomes = run(options.build, chosen, options.jobs)
    if outcomes is None:
        return 1
    print(f"-- {summary(outcomes, time.monotonic() - begin)}")
    if options.verbose:
        for outcome in outcomes:
            print(f"== {outcome.mutant.name}\n{outcome.output[-6000:]}")
    wrong = [o for o in outcomes if bool(o.how) == o.mutant.may_survive()]
    for outcome in wrong:
        name = outcome.mutant.name
        if outcome.how:
            print(f"error: '{name}' is said to survive, and was killed: {described(outcome.test)}")
        else:
            print(f"error: '{name}' survived: {outcome.mutant.what}. A test is missing, or it is "
                  "equivalent: then say in mutants.txt why")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Mistake as mistake:
        sys.exit(f"error: {mistake}")
