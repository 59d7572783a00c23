#!/usr/bin/env python3
"""Runs programs as users write them, right and with bugs, by devcomm-simulate.

    wild.py check SIMULATE [NAME...]    the programs pass, and each of their bugs is found
    wild.py table SIMULATE [NAME...]    prints as Markdown which mode finds which bug in how many of 20 seeds, how fast,
                                        and the report

SIMULATE is the program devcomm-simulate, or "install" to install it from BUILD_DIR into WORK first. The comment at a
program's head says what it does and has, for each bug, which `-DBUG=N` makes it, the mode that finds it and a regular
expression of the report:

    // bug 1: what is wrong
    //   seen in: where it was public
    //   race: data race .* variable

`// options: --ranks 2` are further options of all its runs. WILD_SEEDS is the number of seeds: 4, and 20 for a table.
The right program runs with as many plain and under the race detector, and 50 for a table.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


class Bug:
    def __init__(self, number, text):
        self.number = number
        self.text = text
        self.seen_in = ""
        self.mode = ""
        self.report = ""


class Program:
    def __init__(self, path):
        self.path = path
        self.name = path.stem
        self.options = []
        self.bugs = []
        description = []
        for line in path.read_text(encoding="utf-8").split("\n"):
            if not line.startswith("//"):
                break
            text = line[2:].strip()
            if match := re.fullmatch(r"bug (\d+): (.*)", text):
                self.bugs.append(Bug(int(match[1]), match[2]))
            elif match := re.fullmatch(r"options: (.*)", text):
                self.options = match[1].split()
            elif match := re.fullmatch(r"seen in: (.*)", text):
                self.bugs[-1].seen_in = match[1]
            elif match := re.fullmatch(r"(plain|race|address): (.*)", text):
                self.bugs[-1].mode, self.bugs[-1].report = match[1], match[2]
            elif self.bugs:
                sys.exit(f"{path}: not understood: {line}")
            elif text:
                description.append(text)
        self.description = " ".join(description)
        if not self.bugs or any(not b.report for b in self.bugs):
            sys.exit(f"{path}: a program has bugs, each with the mode that finds it")


def run(simulate, program, options):
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results.json"
        done = subprocess.run([simulate, program.path, *program.options, *options, "--jobs", "1", "--json", results],
                              capture_output=True, text=True, check=False)  # fmt: skip
        if not results.exists():
            return {"status": done.returncode, "compile_error": done.stderr, "runs": []}
        return json.loads(results.read_text())


def check_right(simulate, program, seeds):
    found = run(simulate, program, ["--plain", "--race", "--seeds", str(seeds)])
    if found["status"] == 0 and found["runs"]:
        return ""
    said = found["compile_error"] or next((r["output"] for r in found["runs"] if r["result"] != "passed"), "nothing")
    return f"{program.name} does not pass:\n{said}"


def reports_of(simulate, program, bug, seeds):
    """The results of all runs with the bug, and the outputs that report it."""
    found = run(simulate, program, [f"-DBUG={bug.number}", f"--{bug.mode}", "--seeds", str(seeds)])
    if found["compile_error"]:
        sys.exit(f"{program.name}, bug {bug.number} does not compile:\n{found['compile_error']}")
    return found["runs"], [r["output"] for r in found["runs"] if re.search(bug.report, r["output"], re.DOTALL)]


def check(simulate, programs, seeds):
    def check_bug(each):
        program, bug = each
        runs, reports = reports_of(simulate, program, bug, seeds)
        if reports:
            return ""
        return (f"{program.name}, bug {bug.number}: none of {len(runs)} runs reports {bug.report!r}; the first ended with "
                f"{runs[0]['result']}:\n{runs[0]['output']}")  # fmt: skip

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        failures = list(pool.map(lambda p: check_right(simulate, p, seeds), programs))
        failures += pool.map(check_bug, [(p, b) for p in programs for b in p.bugs])
    for text in filter(None, failures):
        print(text)
    print(f"{len(programs)} programs with {sum(len(p.bugs) for p in programs)} bugs")
    return any(failures)


def headline(report):
    """The line that says what is wrong."""
    line = next((t for t in report.split("\n") if t.startswith("devcomm simulator: ")), report.split("\n")[0])
    line = re.sub(r" \((seed|0x)[^)]*\)", "", line.removeprefix("devcomm simulator: "))
    return line if len(line) < 160 else line[:157] + "..."


def table(simulate, programs, seeds):
    head = "of 20 seeds | a run | report |\n"
    public = "| what was wrong | seen in | program, `-DBUG=` | mode | " + head + "|---|---|---|---|---|---|---|\n"
    planted = "| what is wrong | program, `-DBUG=` | mode | " + head + "|---|---|---|---|---|---|\n"
    failed = False
    for program in programs:
        wrong = check_right(simulate, program, 50)
        print(f"{program.name}: {wrong or 'right, no report in 50 seeds'}", file=sys.stderr, flush=True)
        failed |= bool(wrong)
        for bug in program.bugs:
            runs, reports = reports_of(simulate, program, bug, seeds)
            seeds_found = {r["seed"] for r in runs if re.search(bug.report, r["output"], re.DOTALL)}
            seconds = sum(r["seconds"] for r in runs) / len(runs)
            said = headline(reports[0]).replace("|", "\\|") if reports else "not found"
            failed |= not reports
            row = f"{program.name}, {bug.number} | {bug.mode} | {len(seeds_found)} | {seconds:.2f} s | {said} |\n"
            if bug.seen_in:
                public += f"| {bug.text} | {bug.seen_in} | {row}"
            else:
                planted += f"| {bug.text} | {row}"
    print(f"{public}\n{planted}")
    return failed


def installed():
    prefix = pathlib.Path(os.environ["WORK"]) / "installed"
    subprocess.run([os.environ["CMAKE"], "--install", os.environ["BUILD_DIR"], "--prefix", prefix], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    os.environ["XDG_CACHE_HOME"] = os.environ["WORK"]
    return prefix / "bin" / "devcomm-simulate"


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("check", "table"):
        sys.exit(__doc__)
    programs = [Program(p) for p in sorted(HERE.glob("*.cu")) if not sys.argv[3:] or p.stem in sys.argv[3:]]
    if not programs:
        sys.exit("there is no such program")
    seeds = int(os.environ.get("WILD_SEEDS", "4" if sys.argv[1] == "check" else "20"))
    simulate = installed() if sys.argv[2] == "install" else sys.argv[2]
    sys.exit({"check": check, "table": table}[sys.argv[1]](simulate, programs, seeds))


if __name__ == "__main__":
    main()
