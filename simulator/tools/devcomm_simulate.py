#!/usr/bin/env python3
"""Compiles CUDA programs for devcomm's simulated GPUs and runs them; needs a C++ compiler, and no GPU.

    devcomm-simulate program.cu... [OPTION...] [-- ARGUMENT...]

Sources and compiler options are given as to a compiler: -I DIR, -D NAME, -O LEVEL, --std=c++20, -l LIBRARY, -L DIR.

what runs (several may be given; plain and race where none is)
  --plain               the program, with its own check of results
  --race                with the race detector and late stores
  --address             with AddressSanitizer and UndefinedBehaviorSanitizer
  --explore             in every interleaving of its kernels, with the race detector; for a few threads
how often
  --ranks 1,2,4,8       numbers of ranks, and of simulated GPUs (2,4)
  --hosts N             hosts that the ranks are spread over (1)
  --seeds N             runs with the seeds 1 to N (8)
  --seed N              one run, with this seed
  --schedule KIND       random, pct, slow_rank, slow_block, starve_warp, mixed (mixed)
  --replay FILE         one run, by the schedule of DEVCOMM_SIM_RECORD
  --timeout SECONDS     of each run (60)
  --jobs N              runs at a time (the processors)
how the program is understood
  --arch sm_90          the simulated GPUs, and __CUDA_ARCH__ (sm_90)
  --volatile KIND       accesses to volatile are relaxed atomics, as PTX has them, or plain (relaxed)
  --fails-with REGEX    a run whose output matches has failed, whatever its exit status
  --cccl DIR            CCCL's headers (those of a CUDA toolkit, where there is one)
  --nccl                a program for NCCL, whose <nccl.h> and <nccl_device.h> are devcomm's
  --mpi 2,8             a program for MPI, with so many ranks; its <mpi.h> is devcomm's
what is written
  --json FILE           all results; docs/devcomm_simulate.md has the schema
  --verbose             the compiler's commands, and the output of all runs

Exit status: 0 all runs passed; 1 a run failed; 2 wrong arguments; 3 the program does not compile; 4 a race; 5 a run took
longer than its timeout; 130 interrupted. Where runs end in several ways, the first of race, failure, timeout.

$CXX is the compiler, or else c++. What has been built is kept in $XDG_CACHE_HOME/devcomm-simulate, or below ~/.cache.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = [HERE, *HERE.parent.glob("lib*/cmake/devcomm"), *HERE.parent.glob("lib*/*/cmake/devcomm")]
sys.dont_write_bytecode = True
sys.path[:0] = map(str, PACKAGES)

from devcomm_builder import Builder, BuildOptions, Installation, NotCompiled, WrongUse  # noqa: E402

FAILED, WRONG_ARGUMENTS, NOT_COMPILED, RACE, TIMED_OUT, INTERRUPTED = 1, 2, 3, 4, 5, 130
RACE_STATUS = 66  # of a program with race reports
SCHEDULES = ("random", "pct", "slow_rank", "slow_block", "starve_warp", "mixed")
LATE_STORES = 1024  # steps
SHOWN_LINES = 40


def fail(status, text):
    print(f"devcomm-simulate: {text}", file=sys.stderr)
    sys.exit(status)


# --- arguments ---


class Options(BuildOptions):
    def __init__(self):
        super().__init__()
        self.ranks = [2, 4]
        self.hosts = 1
        self.seeds = 8
        self.seed = None
        self.schedule = "mixed"
        self.replay = None
        self.timeout = 60
        self.jobs = os.cpu_count() or 1
        self.fails_with = None
        self.json = None
        self.arguments = []

    def number(self, option, text, least=1):
        if not re.fullmatch(r"\d+", text) or int(text) < least:
            fail(WRONG_ARGUMENTS, f"{option} takes a whole number from {least}; it has '{text}'")
        return int(text)

    def parse(self, words):
        """Ends with a message where the command line is wrong."""
        words = list(words)

        def next_value(option):
            if not words:
                fail(WRONG_ARGUMENTS, f"nothing follows {option}")
            return words.pop(0)

        while words:
            word = words.pop(0)
            option, equals, given = word.partition("=")
            if word == "--":
                self.arguments = words
                break
            if word in ("-h", "--help"):
                print(__doc__)
                sys.exit(0)
            if word in ("--plain", "--race", "--address", "--explore"):
                self.modes.append(word[2:])
            elif word in ("--verbose", "--nccl"):
                setattr(self, word[2:], True)
            elif option in ("--ranks", "--mpi", "--hosts", "--seeds", "--seed", "--schedule", "--replay", "--timeout", "--jobs",
                            "--arch", "--volatile", "--fails-with", "--cccl", "--json"):
                self.set(option, given if equals else next_value(option))
            elif option in ("--std", "-std"):
                self.standard = given if equals else next_value(option)
            elif word in ("-I", "-D", "-U", "-L", "-l", "-isystem", "-include"):
                self.compiler_option(word, next_value(word))
            elif re.match(r"-[IDULl].", word):
                self.compiler_option(word[:2], word[2:])
            elif re.match(r"-(O|g|W|f|m|pthread)", word):
                self.compiler.append(word)
            elif word.startswith("-"):
                fail(WRONG_ARGUMENTS, f"unknown option '{word}'; devcomm-simulate --help lists all. Arguments of the program "
                     "follow --")
            else:
                self.sources.append(word)
        self.check()

    def compiler_option(self, option, value):
        if option == "-I":
            if not pathlib.Path(value).is_dir():
                fail(WRONG_ARGUMENTS, f"-I {value}: there is no such folder")
            self.folders.append(pathlib.Path(value).resolve())
        elif option == "-L":
            self.linker += ["-L" + str(pathlib.Path(value).resolve())]
        elif option == "-l":
            self.linker += ["-l" + value]
        elif option in ("-isystem", "-include"):
            self.compiler += [option, value]
        else:
            self.compiler.append(option + value)

    def set(self, option, value):
        if option in ("--ranks", "--mpi"):
            self.mpi = self.mpi or option == "--mpi"
            self.ranks = [self.number(option, one) for one in value.split(",")]
        elif option in ("--hosts", "--seeds", "--timeout", "--jobs"):
            setattr(self, option[2:], self.number(option, value))
        elif option == "--seed":
            self.seed = self.number(option, value, 0)
        elif option == "--schedule":
            if value.split(":")[0] not in SCHEDULES:
                fail(WRONG_ARGUMENTS, f"--schedule takes one of {', '.join(SCHEDULES)}; it has '{value}'")
            self.schedule = value
        elif option == "--arch":
            match = re.fullmatch(r"(?:sm_|compute_)?(\d{2,3})[af]?", value)
            if not match or int(match[1]) < 70:
                fail(WRONG_ARGUMENTS, f"--arch takes a GPU as sm_90, from sm_70 on; it has '{value}'")
            self.arch = int(match[1])
        elif option == "--volatile":
            if value not in ("relaxed", "plain"):
                fail(WRONG_ARGUMENTS, f"--volatile takes relaxed or plain; it has '{value}'")
            self.volatile = value
        elif option == "--fails-with":
            try:
                self.fails_with = re.compile(value)
            except re.error as error:
                fail(WRONG_ARGUMENTS, f"--fails-with takes a regular expression; '{value}': {error}")
        elif option == "--replay":
            if not pathlib.Path(value).is_file():
                fail(WRONG_ARGUMENTS, f"--replay: there is no file {value}; DEVCOMM_SIM_RECORD=FILE makes one")
            self.replay = str(pathlib.Path(value).resolve())
        elif option == "--cccl":
            if not (pathlib.Path(value) / "cuda/std/version").exists():
                fail(WRONG_ARGUMENTS, f"--cccl {value}: there is no cuda/std/version below it")
            self.cccl = pathlib.Path(value).resolve()
        else:
            self.json = value

    def check(self):
        if not self.sources:
            fail(WRONG_ARGUMENTS, "no source; give a .cu file: devcomm-simulate program.cu (--help lists the options)")
        for source in self.sources:
            if pathlib.Path(source).suffix not in (".cu", ".cpp", ".cc", ".cxx", ".c", ".o", ".a"):
                fail(WRONG_ARGUMENTS, f"'{source}' is no source: sources end in .cu, .cpp, .cc or .cxx, and arguments of the "
                     "program follow --")
            if not pathlib.Path(source).is_file():
                fail(WRONG_ARGUMENTS, f"there is no file {source}")
        for ranks in self.ranks:
            if ranks % self.hosts != 0:
                fail(WRONG_ARGUMENTS, f"{ranks} ranks cannot be spread over {self.hosts} hosts evenly; choose others by --ranks")
        self.modes = list(dict.fromkeys(self.modes)) or ["plain", "race"]
        if self.mpi and "explore" in self.modes:
            fail(WRONG_ARGUMENTS, "--explore and --mpi do not go together: give the program a main that starts its ranks as threads")
        if self.replay and (len(self.modes) > 1 or len(self.ranks) > 1):
            fail(WRONG_ARGUMENTS, "--replay repeats one run: give its mode, as --race or --explore, and its number of ranks, as --ranks 2")


# --- running ---


class Run:
    def __init__(self, mode, ranks, seed):
        self.mode = mode
        self.ranks = ranks
        self.seed = seed
        self.result = ""  # passed, failed, race, timeout
        self.status = 0
        self.seconds = 0.0
        self.output = ""

    def ending(self):
        if self.result == "timeout":
            return "did not end in time"
        if self.status < 0:
            return f"ended by signal {-self.status} ({signal.Signals(-self.status).name})"
        return f"exit status {self.status}"


class Runner:
    def __init__(self, options, programs):
        self.options = options
        self.programs = programs
        self.running = set()
        self.guard = threading.Lock()
        self.stopped = False

    @staticmethod
    def detects_races(run):
        return run.mode in ("race", "explore")

    def environment(self, run):
        o = self.options
        dropped = r"DEVCOMM_(RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|ROOT|RANKS|LSA_SIZE)$|RANK$|OMPI_COMM_WORLD_RANK$|SLURM_PROCID$"
        result = {key: value for key, value in os.environ.items() if not re.match(dropped, key)}
        for key, value in {"DEVCOMM_SIM_SCHEDULE": o.schedule, "DEVCOMM_SIM_CHECK_SIDES": "1" if self.detects_races(run) else "0",
                           "ASAN_OPTIONS": "detect_stack_use_after_return=0", "UBSAN_OPTIONS": "print_stacktrace=1"}.items():  # fmt: skip
            result.setdefault(key, value)
        result |= {"DEVCOMM_RANKS": str(run.ranks), "DEVCOMM_SIM_DEVICES": str(run.ranks), "DEVCOMM_SIM_SEED": str(run.seed),
                   "DEVCOMM_SIM_RACE_EXIT": str(RACE_STATUS), "DEVCOMM_SIM_ARCH": str(o.arch)}  # fmt: skip
        if o.hosts > 1:
            result["DEVCOMM_LSA_SIZE"] = str(run.ranks // o.hosts)
        if o.replay:
            result["DEVCOMM_SIM_REPLAY"] = o.replay
        if run.mode == "race" and not o.replay:
            result.setdefault("DEVCOMM_SIM_STORE_DELAY", str(LATE_STORES))
        return result

    def run(self, run):
        with self.guard:
            if self.stopped:
                return run
            begin = time.monotonic()
            process = subprocess.Popen([str(self.programs[run.mode]), *self.options.arguments], env=self.environment(run),
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       start_new_session=True)  # fmt: skip
            self.running.add(process)
        try:
            data, _ = process.communicate(timeout=self.options.timeout)
        except subprocess.TimeoutExpired:
            self.kill(process)
            data, _ = process.communicate()
            run.result = "timeout"
        with self.guard:
            self.running.discard(process)
        run.seconds = time.monotonic() - begin
        run.status = process.returncode
        run.output = data.decode("utf-8", errors="replace")
        if not run.result:
            said = self.options.fails_with is not None and self.options.fails_with.search(run.output) is not None
            is_race = self.detects_races(run) and run.status == RACE_STATUS
            run.result = "race" if is_race else "failed" if run.status != 0 or said else "passed"
        return run

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def stop(self):
        with self.guard:
            self.stopped = True
            for process in self.running:
                self.kill(process)


def repeat_command(options, run):
    words = ["devcomm-simulate", *options.sources]
    words += [word for folder in options.folders for word in ("-I", str(folder))]
    words += options.compiler + options.linker
    defaults = Options()
    words += [f"--std={options.standard}"] if options.standard != defaults.standard else []
    words += [f"--{run.mode}", "--mpi" if options.mpi else "--ranks", str(run.ranks)]
    words += ["--hosts", str(options.hosts)] if options.hosts > 1 else []
    words += ["--seed", str(run.seed)] if run.mode != "explore" else []
    schedule = options.replay
    if run.mode == "explore" and run.result in ("failed", "race") and "to repeat it: DEVCOMM_SIM_REPLAY=" in run.output:
        schedule = f"devcomm-schedule-ranks{run.ranks}.txt"
    words += ["--replay", schedule] if schedule else []
    for name in ("schedule", "volatile", "timeout"):
        if getattr(options, name) != getattr(defaults, name):
            words += [f"--{name}", str(getattr(options, name))]
    words += ["--arch", f"sm_{options.arch}"] if options.arch != defaults.arch else []
    words += ["--fails-with", options.fails_with.pattern] if options.fails_with else []
    words += ["--cccl", str(options.cccl)] if options.cccl else []
    words += ["--nccl"] if options.nccl else []
    words += ["--", *options.arguments] if options.arguments else []
    return shlex.join(words)


def shorten(output):
    lines = output.rstrip().splitlines()
    if len(lines) <= SHOWN_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:SHOWN_LINES], f"... {len(lines) - SHOWN_LINES} more lines; --verbose prints all"])


def run_all(options, runner):
    """All runs in their order; prints a line for each as it ends, and the output of the first of its kind that fails."""
    seeds = range(1, 2 if options.replay else options.seeds + 1)
    if options.seed is not None:
        seeds = [options.seed]
    runs = [Run(mode, ranks, seed) for mode in options.modes for ranks in options.ranks
            for seed in (seeds if mode != "explore" else [1])]
    shown = set()
    done = 0
    progress = sys.stdout.isatty()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        try:
            for run in pool.map(runner.run, runs):
                done += 1
                if progress:
                    print("\r\033[K", end="")
                detail = "" if run.result == "passed" else f"  {run.ending()}"
                if found := run.mode == "explore" and re.search(r"^\d+ executions.*", run.output, re.MULTILINE):
                    detail += f"  {found[0]}"
                print(f"{run.mode:8} ranks {run.ranks:<3} seed {run.seed:<4} {run.result:8} {run.seconds:6.2f} s{detail}", flush=True)
                if options.verbose or (run.result != "passed" and (run.mode, run.result) not in shown):
                    if run.output.strip():
                        print(run.output.rstrip() if options.verbose else shorten(run.output))
                    if run.result != "passed":
                        shown.add((run.mode, run.result))
                        print(f"-- to repeat: {repeat_command(options, run)}", flush=True)
                if progress:
                    print(f"{done} of {len(runs)} runs", end="", flush=True)
        except (KeyboardInterrupt, BrokenPipeError):
            runner.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if progress:
        print("\r\033[K", end="")
    return runs


def status_of(runs):
    results = {run.result for run in runs}
    return RACE if "race" in results else FAILED if "failed" in results else TIMED_OUT if "timeout" in results else 0


def write_json(options, runs, status, seconds, problem=""):
    if options.json is None:
        return
    data = {
        "schema": 1, "status": status, "sources": options.sources, "arch": f"sm_{options.arch}", "hosts": options.hosts,
        "schedule": options.schedule, "build_seconds": round(seconds, 3), "compile_error": problem,
        "runs": [{"mode": run.mode, "ranks": run.ranks, "seed": run.seed, "result": run.result, "exit_status": run.status,
                  "seconds": round(run.seconds, 3), "output": "" if run.result == "passed" else run.output,
                  "repeat": repeat_command(options, run)} for run in runs],
    }  # fmt: skip
    try:
        pathlib.Path(options.json).write_text(json.dumps(data, indent=1) + "\n")
    except OSError as error:
        fail(WRONG_ARGUMENTS, f"--json {options.json}: {error.strerror}")


def main():
    options = Options()
    options.parse(sys.argv[1:])
    begin = time.monotonic()
    try:
        builder = Builder(options, Installation())  # keeps others from the folder until this process ends
        programs = builder.build()
    except WrongUse as problem:
        fail(WRONG_ARGUMENTS, str(problem))
    except NotCompiled as problem:
        print(str(problem).rstrip(), file=sys.stderr)
        write_json(options, [], NOT_COMPILED, time.monotonic() - begin, str(problem))
        fail(NOT_COMPILED, "the program does not compile for the simulator")
    built = time.monotonic() - begin
    print(f"built for {', '.join(options.modes)} in {built:.1f} s", flush=True)
    for note in options.notes:
        print(note, flush=True)
    runs = run_all(options, Runner(options, programs))
    status = status_of(runs)
    counts = [f"{n} {what}" for what in ("passed", "race", "failed", "timeout")
              if (n := sum(run.result == what for run in runs))]
    print(f"{len(runs)} runs: {', '.join(counts)}")
    write_json(options, runs, status, built)
    sys.exit(status)


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, BrokenPipeError):  # also by who reads its output, and goes
        os._exit(INTERRUPTED)
