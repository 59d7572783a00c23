#!/usr/bin/env python3
"""Mutants that operators make wherever they fit, against the tests that ctest has.

operators.py plant TREE PATH... [--programs REGEX]
    Plants, in place, the mutants of all sources below the PATHs, of host/src or include/devcomm, of TREE, a clone made
    for this, without those that do not compile: in the host library, or in the programs, by their sources, that the
    REGEX selects, which are those to be tested. Each is behind a switch at run time, so that one build serves all;
    TREE/mutants.json lists them. Then configure TREE with
    -DCMAKE_CXX_FLAGS="-w -include TREE/tests/mutation/operators.hpp", and build.

operators.py run TREE BUILD [--sample N --seed S] [--only NUMBER...] [--tests REGEX] [--jobs N] [--budget SECONDS]
    Runs each of ctest's tests once to see which mutants it reaches, then each mutant against the tests that reach it, the
    fastest first, until one fails or the budget is spent. Prints what survives.

Operators: a condition becomes true, or false; a call or an assignment is dropped; == and !=, && and ||, + and -, < and
<=, > and >=, min and max change places; + 1 and - 1 are dropped; a memory order becomes relaxed.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from mutation import Change, Mistake, planted_text

ORDERS = r"memory_order(?:::|_)(?:acquire|release|acq_rel|seq_cst)"
SWAPS = [(r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "), (r" < ", " <= "), (r" <= ", " < "),
         (r" > ", " >= "), (r" >= ", " > "), (r" \+ 1\b(?![.x'])", ""), (r" - 1\b(?![.x'])", ""), (r" \+ (?!1\b)", " - "),
         (r" - (?!1\b)", " + "), (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"), (ORDERS, None)]
NOT_CALLS = {"if", "while", "for", "switch", "return", "throw", "do", "else", "case", "default", "using", "static_assert",
             "delete", "goto", "break", "continue", "try", "catch", "asm", "typedef", "template", "friend", "namespace"}


class Site:
    """One mutant, as planting needs to know it."""

    def __init__(self, kind):
        self.number = 0
        self.kind = kind


def blanked(source):
    """Without comments, literals and directives, each character in its old place."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'(?!\w)|^[ \t]*#(?:\\\n|[^\n])*',
                         re.DOTALL | re.MULTILINE)
    return pattern.sub(lambda m: re.sub(r"[^\n]", "_" if m[0][0] in "\"'R" else " ", m[0]), source)


def matching(text, at):
    """Of the bracket at `at`, the place of its other side."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    raise Mistake(f"a bracket is not closed: {text[at:at + 60]}")


def bodies(text):
    """Of all functions' and lambdas' bodies, outermost, [begin, end)."""
    at, found = 0, []
    while (at := text.find("{", at)) >= 0:
        start = max(text.rfind(c, 0, at) for c in ";{}") + 1
        head = re.sub(r"^\s*(?:template\s*<[^{;]*?>\s*(?=\w))", "", text[start:at])
        head = re.sub(r"\b(?:public|private|protected)\s*:(?!:)", "", head).strip()
        if re.match(r"(?:inline )?namespace\b|(?:enum|class|struct|union)\b(?!.*\)\s*(?:const|noexcept|\s)*$)|extern\b", head):
            at += 1
        elif re.search(r"\)[^=]*$", head) and not re.match(r"constexpr\b.*=", head):
            end = matching(text, at)
            found.append((at + 1, end))
            at = end
        else:
            at = matching(text, at)
    return found


def last_part(text, begin, end):
    """Of a condition with an initializer, the condition."""
    depth, at = 0, begin
    for i in range(begin, end):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if text[i] == ";" and depth == 0:
            at = i + 1
    return at + len(text[at:end]) - len(text[at:end].lstrip()), end


def statement_end(text, at, end):
    """The place behind its ';', or 0 if it has none on its own level."""
    depth = 0
    for i in range(at, end):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth < 0:
            return 0
        if text[i] == ";" and depth == 0:
            return i + 1
    return 0


def swapped(source, text, begin, end):
    """All variants of [begin, end) in which one operator is another: kind and text."""
    for pattern, new in SWAPS:
        for match in re.finditer(pattern, text[begin:end]):
            if match[0] in (" + ", " - ") and re.search(r"__|text|string", text[begin:end]):
                continue  # a sum of texts
            a, b = begin + match.start(), begin + match.end()
            put = new if new is not None else re.sub(r"(acquire|release|acq_rel|seq_cst)$", "relaxed", match[0])
            yield f"{match[0].strip()} becomes {put.strip() or 'nothing'}", source[begin:a] + put + source[b:end]


def sites_of(source):
    """Changes for planting."""
    text = blanked(source)
    changes = []

    def add(begin, end, kind, new):
        changes.append(Change(begin, end, Site(kind), new))

    for begin, end in bodies(text):
        for match in re.finditer(r"\b(?:if|while) \(", text[begin:end]):
            opening = begin + match.end() - 1
            a, b = last_part(text, opening + 1, matching(text, opening))
            part = text[a:b]
            if re.search(r"(?<![=!<>+*/|&-])=(?!=)", part) or not part.strip():
                continue
            if match[0].startswith("if"):
                add(a, b, "condition becomes false", "false")
                add(a, b, "condition becomes true", "true")
            for kind, new in swapped(source, text, a, b):
                add(a, b, kind, f"static_cast<bool>({new})")
        for match in re.finditer(r"(?<=[;{})\n])\s*(?=[\w:*+(-])", text[begin:end]):
            a = begin + match.end()
            before = text[begin - 1:a].rstrip()[-1:]
            if before not in ";{})" and not re.search(r"\belse$", text[begin - 1:a].rstrip()):
                continue
            if before == ")" and not closes_head(text, a):
                continue
            b = statement_end(text, a, end)
            statement = text[a:b]
            if not b or "case " in statement[:5] or re.match(r"(?:static )?constexpr\b|static_assert", statement):
                continue
            word = re.match(r"\w*", statement)[0]
            if word == "return" and statement != "return;":
                for kind, new in swapped(source, text, a, b):
                    add(a, b, kind, new)
            elif word in NOT_CALLS:
                continue
            elif re.match(r"(?:\+\+|--)?[\w:.>\[\]()*-]+?(?:<[\w:, *&]*>)?(?:\(.*\)| (?:[-+*/|&^]|<<|>>)?= .*);$", statement, re.DOTALL) or \
                    re.match(r"(?:\+\+|--)[\w.>\[\]()*-]+;$", statement):
                add(a, b, "call or assignment dropped", "")
                for kind, new in swapped(source, text, a, b):
                    if "[" not in statement:
                        add(a, b, kind, new)
            elif (match2 := re.match(r"(?:const )?[\w:<>,*& ]+? \w+ = (?=[^{\[])", statement)) and "[" not in statement:
                for kind, new in swapped(source, text, a + match2.end(), b - 1):
                    add(a + match2.end(), b - 1, kind, new)
    return changes


def closes_head(text, at):
    """Whether the ')' before `at` is that of an if, for or while."""
    i = text.rfind(")", 0, at)
    depth = 0
    for j in range(i, -1, -1):
        depth += (text[j] == ")") - (text[j] == "(")
        if depth == 0:
            return bool(re.search(r"\b(?:if|for|while)(?: constexpr)? $", text[max(0, j - 20):j]))
    return False


def plant_once(tree, sources, excluded):
    """Writes the sources with all mutants but those that are excluded, by what identifies them; returns them all."""
    mutants = []
    for file, source in sources.items():
        kept = []
        for index, change in enumerate(sorted(sites_of(source), key=lambda c: (c.begin, -c.end))):
            crosses = any(k.begin < change.begin < k.end < change.end for k in kept)
            if crosses or (file, index) in excluded:
                continue
            kept.append(change)
            change.mutant.number = len(mutants) + 1
            mutants.append({"number": len(mutants) + 1, "file": file, "index": index,
                            "line": source.count("\n", 0, change.begin) + 1, "kind": change.mutant.kind,
                            "of": " ".join(source[change.begin:change.end].split())[:160]})
        (tree / file).write_text(planted_text(source, kept))
    return mutants


def compile_errors(command):
    """Of one compile command, the places of its errors."""
    words = re.sub(r" -o \S+ -c ", " -w -fsyntax-only -fmax-errors=0 ", command["command"])
    done = subprocess.run(words, shell=True, cwd=command["directory"], stderr=subprocess.PIPE, text=True)
    found = re.findall(r"^(/[^:\n]+):(\d+):(\d+): error", done.stderr, re.MULTILINE)
    if done.returncode != 0 and not found:
        raise Mistake(done.stderr[-2000:])
    return found


def plant(tree, paths, programs):
    for path in paths:
        if not path.startswith(("host/src", "include/devcomm")) or not (tree / path).exists():
            raise Mistake(f"{path} is no source: give files or folders of host/src or include/devcomm")
    files = [f for path in paths for f in (sorted((tree / path).rglob("*")) if (tree / path).is_dir() else [tree / path])]
    sources = {str(f.relative_to(tree)): f.read_text() for f in files if f.suffix in (".cpp", ".hpp", ".cuh")}
    build = tree / "build/commands"
    subprocess.run(["cmake", "-S", str(tree), "-B", str(build), "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                    "-DDEVCOMM_ENABLE_CUDA=OFF", "-DDEVCOMM_BUILD_BENCHMARKS=OFF", "-DDEVCOMM_BUILD_EXAMPLES=OFF",
                    f"-DCMAKE_CXX_FLAGS=-include {tree.resolve()}/tests/mutation/operators.hpp"],
                   check=True, stdout=subprocess.DEVNULL)
    commands = [c for c in json.loads((build / "compile_commands.json").read_text()) if re.search(programs, c["file"])]
    translated = [c["file"] for c in commands if c["file"].startswith(str(build.resolve()))]
    subprocess.run(["ninja", "-C", str(build), *(os.path.relpath(f, build.resolve()) for f in translated)],
                   check=True, stdout=subprocess.DEVNULL)
    excluded = set()
    while commands:
        mutants = plant_once(tree, sources, excluded)
        index_of = {m["number"]: m["index"] for m in mutants}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            errors = list(pool.map(compile_errors, commands))
        commands = [c for c, found in zip(commands, errors) if found]
        places = set().union(*errors)
        print(f"-- {len(mutants)} mutants, {len(places)} errors", flush=True)
        before = len(excluded)
        for path, line, _ in places:
            file = os.path.relpath(path, tree.resolve())
            text = (tree / file).read_text().split("\n")[int(line) - 1]
            excluded.update((file, index_of[int(n)]) for n in re.findall(r"devcomm_mutant\((\d+)u\)", text))
        if places and len(excluded) == before:
            raise Mistake(f"an error is of no mutant: {sorted(places)[0]}")
    (tree / "mutants.json").write_text(json.dumps(mutants, indent=1))


# --- running ---


class Test:
    def __init__(self, entry):
        self.name = entry["name"]
        self.command = entry["command"]
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        self.folder = properties["WORKING_DIRECTORY"]
        self.reaches = set()
        self.seconds = 0.0

    def run(self, number, limit, coverage=None):
        """Whether it passed; None where it is not to be used."""
        environment = {**os.environ, **self.environment, "PLANTED_MUTANT": str(number)}
        if coverage:
            environment["PLANTED_COVERAGE"] = coverage
        begin = time.monotonic()
        with subprocess.Popen(self.command, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = -1
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
        self.took = time.monotonic() - begin
        return status == 0


def tests_of(build, pattern):
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, stdout=subprocess.PIPE, text=True)
    entries = [e for e in json.loads(shown.stdout)["tests"] if "command" in e and re.search(pattern, e["name"])]
    return [Test(e) for e in entries if pathlib.Path(e["command"][0]).exists()]


def find_reached(tests, count, jobs):
    def look(test):
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(count + 1)
            passed = test.run(0, 300, file.name)
            test.seconds = test.took
            data = pathlib.Path(file.name).read_bytes()
            test.reaches = {i for i, byte in enumerate(data) if byte} if passed else set()
        if not passed:
            print(f"-- {test.name} fails without a mutant: not used", flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(look, tests))


def run(tree, build, options):
    mutants = json.loads((tree / "mutants.json").read_text())
    tests = tests_of(build, options.tests)
    begin = time.monotonic()
    find_reached(tests, len(mutants), options.jobs)
    reached = set().union(*(t.reaches for t in tests))
    print(f"-- {len(tests)} tests reach {len(reached)} of {len(mutants)} mutants, {time.monotonic() - begin:.0f} s", flush=True)
    chosen = [m for m in mutants if m["number"] in options.only] if options.only else list(mutants)
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))

    def kill(mutant):
        number = mutant["number"]
        order = sorted((t for t in tests if number in t.reaches), key=lambda t: t.seconds)
        spent = 0.0
        for test in order:
            if not test.run(number, 10 + 4 * test.seconds):
                return mutant, test.name
            spent += test.seconds
            if spent > options.budget:
                return mutant, None
        return mutant, None if order else ""

    ends = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, by in pool.map(kill, chosen):
            end = "killed" if by else "SURVIVED" if by is None else "never reached"
            ends[end] += 1
            print(f"{end:14}{mutant['number']:5} {mutant['file']}:{mutant['line']}: {mutant['kind']}: {mutant['of']}" +
                  (f"  [{by}]" if by else ""), flush=True)
    print(f"-- {sum(ends.values())} mutants in {time.monotonic() - begin:.0f} s: " +
          ", ".join(f"{count} {end.lower()}" for end, count in ends.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    planting = commands.add_parser("plant")
    planting.add_argument("tree", type=pathlib.Path)
    planting.add_argument("paths", nargs="+")
    planting.add_argument("--programs", default="/host/src/")
    running = commands.add_parser("run")
    running.add_argument("tree", type=pathlib.Path)
    running.add_argument("build", type=pathlib.Path)
    running.add_argument("--sample", type=int, default=0)
    running.add_argument("--seed", default="1")
    running.add_argument("--only", type=int, nargs="+", default=[])
    running.add_argument("--tests", default="")
    running.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    running.add_argument("--budget", type=float, default=60)
    options = parser.parse_args()
    if options.command == "plant":
        plant(options.tree, options.paths, options.programs)
    else:
        run(options.tree, options.build, options)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Mistake as mistake:
        sys.exit(f"error: {mistake}")
