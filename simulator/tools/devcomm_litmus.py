#!/usr/bin/env python3
"""Runs PTX litmus tests on simulated GPUs, and says what PTX's memory model allows.

    devcomm-litmus FILE... [OPTION...]

  --model               PTX's axioms alone; nothing is compiled
  --gpu                 on this machine's GPU as well, by nvcc
  --rounds N            random schedules of a test with late stores (2000), and runs on a GPU (1000000)
  --json FILE           all results
  --verbose             every outcome

A line for each test: whether PTX allows an outcome with the condition, whether there is a data race, and whether the
simulator shows the same. docs/litmus.md has the format, and what the simulator does not show.

Exit status: 0 each condition holds, and simulator and GPU show only what PTX allows; 1 something does not; 2 wrong
arguments, or a file that cannot be read; 3 the tests do not compile. A race alone is no failure.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = [HERE, *HERE.parent.glob("lib*/cmake/devcomm"), *HERE.parent.glob("lib*/*/cmake/devcomm")]
sys.dont_write_bytecode = True
sys.path[:0] = map(str, PACKAGES)

import devcomm_ptx_model as model  # noqa: E402

ORDERS = ("weak", "relaxed", "acquire", "release", "acq_rel", "sc")
ALLOWED_ORDERS = {
    "ld": ("weak", "relaxed", "acquire"),
    "st": ("weak", "relaxed", "release"),
    "atom": ("relaxed", "acquire", "release", "acq_rel"),
    "fence": ("sc", "acq_rel", "acquire", "release"),
}
OPERATIONS = ("add", "exch", "cas", "and", "or", "xor", "min", "max", "inc", "dec")
TYPES = ("u32", "s32", "b32")
SPACES = ("global",)
MAX_THREADS, MAX_WORDS = 8, 16  # as in devcomm_litmus.hpp


class BadTest(Exception):
    pass


# --- reading ---


def registers(thread):
    """Names of all that a thread computes or uses, in their order."""
    return sorted(
        {i.target for i in thread.code if i.target and i.kind not in ("label", "goto", "beq", "bne")}
        | {o for i in thread.code for o in i.operands if isinstance(o, str)}
    )


class Test:
    """`threads`, `initial` and `aliases` as `devcomm_ptx_model.judge` takes them; `condition(values)` of an outcome."""

    def __init__(self, path, text):
        self.path, self.threads, self.initial, self.aliases = path, [], {}, {}
        self.started = {}  # thread's name -> instructions that set its registers
        without_comments = re.sub(r"\(\*.*?\*\)", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
        self.lines = [re.sub(r"//.*", "", line).strip() for line in without_comments.split("\n")]
        self.number = 0
        self.name = self.header()
        self.declarations()
        self.code()
        self.condition_text()

    def fail(self, what):
        raise BadTest(f"{self.path}:{self.number}: {what}")

    def next_line(self):
        while self.number < len(self.lines):
            self.number += 1
            line = self.lines[self.number - 1]
            if line and not re.fullmatch(r'"[^"]*"', line):
                return line
        return None

    def header(self):
        line = self.next_line() or ""
        found = re.fullmatch(r"PTX\s+(\S+)", line)
        if not found:
            self.fail(f"a test begins with 'PTX' and a name; this one with '{line}'")
        return found[1]

    def declarations(self):
        line = self.next_line() or ""
        if not line.startswith("{"):
            self.fail("'{' is expected, and then what memory and registers are at first")
        text = line[1:]
        while "}" not in text:
            line = self.next_line()
            if line is None:
                self.fail("no '}' ends what begins with '{'")
            text += " " + line
        text, _, rest = text.partition("}")
        if rest.strip():
            self.fail(f"'{rest.strip()}' follows '}}'")
        for one in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
            if found := re.fullmatch(r"(\w+)\s*:\s*(\w+)\s*=\s*(-?\w+)", one):
                value = self.operand(found[3])
                if isinstance(value, str):
                    self.fail(
                        f"register {found[2]} is to begin with a number, not '{found[3]}'; addresses in registers "
                        "are not known here"
                    )
                self.started.setdefault(found[1], []).append(
                    model.Instruction("mov", self.number, target=found[2], operands=(value,))
                )
            elif found := re.fullmatch(r"(?:u?int\s+)?\[?(\w+)\]?\s*(?:=\s*(-?\w+))?", one):
                value = self.operand(found[2] or "0")
                if isinstance(value, str):
                    self.fail(f"location {found[1]} is to begin with a number, not '{found[2]}'")
                self.initial[found[1]] = value % model.WORD
            elif found := re.fullmatch(r"(\w+)\s*@\s*(\w+)\s+aliases\s+(\w+)", one) or re.fullmatch(
                r"(\w+)\s*()->\s*(\w+)", one
            ):
                if found[2] not in ("", "generic"):
                    self.fail(
                        f"proxy '{found[2]}' of {found[1]} is not known here: only aliases by the generic proxy are"
                    )
                self.aliases[found[1]] = found[3]
            else:
                self.fail(f"'{one}' is none of 'x = 0', 'P0:r0 = 0' and 'y @ generic aliases x'")
        for alias, location in self.aliases.items():
            self.initial.setdefault(location, 0)
            self.initial.pop(alias, None)

    def code(self):
        columns = self.columns()
        for cell in columns:
            found = re.fullmatch(r"(\w+)\s*@\s*cta\s+(\d+)\s*,\s*gpu\s+(\d+)", cell)
            if not found:
                self.fail(f"'{cell}' is not as 'P0@cta 0,gpu 0'")
            self.threads.append(model.Thread(found[1], int(found[2]), int(found[3]), self.started.pop(found[1], [])))
        if self.started:
            self.fail(f"registers of {', '.join(self.started)}, which has no column")
        while (cells := self.columns()) is not None:
            if len(cells) != len(self.threads):
                self.fail(f"{len(cells)} columns, where {len(self.threads)} threads are")
            for thread, cell in zip(self.threads, cells):
                if cell:
                    thread.code += self.instructions(cell)
        for thread in self.threads:
            labels = {i.target for i in thread.code if i.kind == "label"}
            for i in thread.code:
                if i.kind in ("goto", "beq", "bne") and i.target not in labels:
                    raise BadTest(f"{self.path}:{i.line}: {thread.name} has no label {i.target}")
        for what, count, most in (
            ("threads", len(self.threads), MAX_THREADS),
            ("locations", len(self.initial), MAX_WORDS),
            ("registers of a thread", max(len(registers(t)) for t in self.threads), MAX_WORDS),
        ):
            if count > most:
                self.fail(f"{count} {what}; there may be {most}")

    def columns(self):
        """A row of the table, or None where the condition begins."""
        line = self.next_line()
        if line is None:
            self.fail("no condition: exists, ~exists or forall")
        if re.match(r"(~\s*exists|exists|forall|filter|locations)\b", line):
            self.number -= 1
            return None
        if not line.endswith(";"):
            self.fail("a row of instructions ends with ';'")
        return [cell.strip() for cell in line[:-1].split("|")]

    def operand(self, text):
        if re.fullmatch(r"-?\d+|0x[\da-fA-F]+", text):
            return int(text, 0)
        if re.fullmatch(r"[A-Za-z_]\w*", text):
            return text
        return self.fail(f"'{text}' is neither a register nor a number")

    def instructions(self, text):
        """Usually one; a label may stand before it."""
        made = []
        if found := re.match(r"(\w+)\s*:\s*", text):
            made.append(model.Instruction("label", self.number, target=found[1]))
            text = text[found.end() :]
        if text:
            made.append(self.instruction(text))
        return made

    def instruction(self, text):
        name, _, rest = text.partition(" ")
        words = name.lower().split(".")
        given = [g.strip().strip("[]") for g in rest.split(",")] if rest.strip() else []
        kind, words = words[0], words[1:]

        def take(known):
            found = [w for w in words if w in known]
            if len(found) > 1:
                self.fail(f"'{found[0]}' and '{found[1]}' in '{text}'")
            if found:
                words.remove(found[0])
            return found[0] if found else None

        def need(count):
            if len(given) != count:
                self.fail(f"'{text}' has {len(given)} operands, not {count}")

        def register(name):
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                self.fail(f"'{name}' in '{text}' is no register")
            return name

        def location(name):
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                self.fail(f"'{name}' in '{text}' is no location")
            if name not in self.aliases:
                self.initial.setdefault(name, 0)
            return name

        if kind in ("bar", "barrier"):
            take(("cta",))
            if words != ["sync"]:
                self.fail(f"of barriers only bar.sync is known; this is '{name}'")
            return model.Instruction("bar", self.number, operands=(self.operand(given[0]) if given else 0,))
        if kind in ("mov", "add", "sub"):
            need(2 if kind == "mov" else 3)
            return model.Instruction(
                kind, self.number, target=register(given[0]), operands=tuple(map(self.operand, given[1:]))
            )
        if kind == "goto":
            need(1)
            return model.Instruction("goto", self.number, target=given[0])
        if kind in ("beq", "bne"):
            need(3)
            return model.Instruction(kind, self.number, target=given[2], operands=tuple(map(self.operand, given[:2])))
        if kind == "fence" and words[:1] == ["proxy"]:
            if words != ["proxy", "alias"]:
                self.fail(f"of fences of proxies only fence.proxy.alias is known; this is '{name}'")
            return model.Instruction("fence.proxy.alias", self.number)
        if kind == "membar":
            scope = {"cta": "cta", "gl": "gpu", "sys": "sys"}.get(".".join(words))
            if scope is None:
                self.fail(f"'{name}' is not membar.cta, .gl or .sys")
            return model.Instruction("fence", self.number, order="sc", scope=scope)
        if kind not in ("ld", "st", "atom", "red", "fence"):
            self.fail(
                f"'{kind}' is not known here: ld, st, atom, red, fence, membar, bar.sync, mov, add, sub, beq, bne "
                "and goto are"
            )
        take(SPACES), take(TYPES)
        operation = take(OPERATIONS) if kind in ("atom", "red") else None
        order, scope = take(ORDERS + ("volatile",)), take(model.SCOPES)
        if order == "volatile":
            order, scope = "relaxed", "sys"
        if words:
            self.fail(f"'.{words[0]}' in '{name}' is not known here")
        order = order or ("weak" if kind in ("ld", "st") else "relaxed" if kind in ("atom", "red") else "acq_rel")
        if order not in ALLOWED_ORDERS[{"red": "atom"}.get(kind, kind)]:
            self.fail(f"'{name}': {kind} has no .{order}")
        if order == "weak" and scope or order != "weak" and not scope and kind in ("ld", "st"):
            self.fail(f"'{name}': weak accesses have no scope, and others need one of {', '.join(model.SCOPES)}")
        common = dict(order=order, scope=scope or (None if order == "weak" else "gpu"))
        if kind == "fence":
            need(0)
            return model.Instruction(kind, self.number, **common)
        if kind == "ld":
            need(2)
            return model.Instruction(
                kind, self.number, target=register(given[0]), location=location(given[1]), **common
            )
        if kind == "st":
            need(2)
            return model.Instruction(
                kind, self.number, location=location(given[0]), operands=(self.operand(given[1]),), **common
            )
        if operation is None:
            self.fail(f"'{name}' is to have one of {', '.join(OPERATIONS)}")
        target = register(given.pop(0)) if kind == "atom" and given else None
        need(3 if operation == "cas" else 2)
        return model.Instruction(
            "atom",
            self.number,
            operation=operation,
            target=target,
            location=location(given[0]),
            operands=tuple(map(self.operand, given[1:])),
            **common,
        )

    def condition_text(self):
        text, self.filter = "", None
        begin = self.number
        while (line := self.next_line()) is not None:
            text += " " + line
        self.number = begin + 1
        if found := re.match(r"\s*filter\b(.*?)(?=~\s*exists|exists|forall)", text):
            self.filter = Condition(self, found[1])
            text = text[found.end() :]
        found = re.match(r"\s*(~\s*exists|exists|forall)\b(.*)", text)
        if not found:
            self.fail(f"'{text.strip()}' is no condition: exists, ~exists or forall")
        self.quantifier = found[1].replace(" ", "")
        self.condition = Condition(self, found[2])
        self.observed = sorted(self.condition.names) or sorted(self.registers())

    def registers(self):
        return {f"{t.name}:{name}" for t in self.threads for name in registers(t)}

    def shown(self, outcome):
        """The part of an outcome that the condition speaks of."""
        values = dict(outcome)
        return tuple((name, values.get(name, 0)) for name in self.observed)

    def holds(self, outcomes):
        """Whether the condition holds, as it is quantified, of these outcomes."""
        met = [self.condition.of(dict(o)) for o in outcomes]
        return {"exists": any(met), "~exists": not any(met), "forall": all(met)}[self.quantifier]


class Condition:
    """Comparisons joined by /\\, \\/, ~ and parentheses."""

    def __init__(self, test, text):
        self.test = test
        self.tokens = re.findall(r"/\\|\\/|==|!=|[~()=]|\[?\w+:\w+\]?|\[?\w+\]?|-\d+|\S", text)
        self.names = set()
        self.tree = self.either()
        if self.tokens:
            test.fail(f"'{' '.join(self.tokens)}' is left of the condition")

    def either(self):
        terms = [self.both()]
        while self.tokens[:1] == ["\\/"]:
            self.tokens.pop(0)
            terms.append(self.both())
        return lambda values: any(t(values) for t in terms)

    def both(self):
        terms = [self.one()]
        while self.tokens[:1] == ["/\\"]:
            self.tokens.pop(0)
            terms.append(self.one())
        return lambda values: all(t(values) for t in terms)

    def one(self):
        token = self.take()
        if token == "~":
            inner = self.one()
            return lambda values: not inner(values)
        if token == "(":
            inner = self.either()
            if self.take() != ")":
                self.test.fail("a ')' is missing in the condition")
            return inner
        if token == "true":
            return lambda values: True
        left, comparison, right = self.side(token), self.take(), self.side(self.take())
        if comparison not in ("=", "==", "!="):
            self.test.fail(f"'{comparison}' in the condition is none of ==, != and =")
        return lambda values: (left(values) == right(values)) == (comparison != "!=")

    def take(self):
        if not self.tokens:
            self.test.fail("the condition ends too early")
        return self.tokens.pop(0)

    def side(self, token):
        if re.fullmatch(r"-?\d+", token):
            return lambda values: int(token) % model.WORD
        name = token.strip("[]")
        name = self.test.aliases.get(name, name)
        if name not in self.test.registers() and name not in self.test.initial:
            self.test.fail(f"'{token}' in the condition is no register of a thread and no location")
        self.names.add(name)
        return lambda values: values.get(name, 0)

    def of(self, values):
        return self.tree(values)


def read(path):
    try:
        text = pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadTest(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return Test(path, text)


# --- as a program ---


def statement(test, index, locations):
    """An instruction of a thread as a statement of CUDA."""

    def cxx(operand):
        return f"{operand}_" if isinstance(operand, str) else f"{operand % model.WORD}u"

    def asm(text, outputs="", inputs=""):
        return f'asm volatile("{text}" : {outputs} : {inputs} : "memory");'

    i = index
    place = f'"l"(m.at({locations.index(test.aliases.get(i.location, i.location))}))' if i.location else ""
    words = "".join(f".{w}" for w in (i.order, i.scope) if w)
    values = "".join(f', "r"({cxx(o)})' for o in i.operands)
    if i.kind == "ld":
        return asm(f"ld{words}.u32 %0, [%1];", f'"=r"({i.target}_)', place)
    if i.kind == "st":
        return asm(f"st{words}.u32 [%0], %1;", "", place + values)
    if i.kind == "atom":
        kind = "b32" if i.operation in ("exch", "cas", "and", "or", "xor") else "u32"
        more = ", %3" if i.operation == "cas" else ""
        target = f"{i.target}_" if i.target else "unused_"
        return asm(f"atom{words}.{i.operation}.{kind} %0, [%1], %2{more};", f'"=r"({target})', place + values)
    if i.kind == "fence":
        return asm(f"fence{words};")
    if i.kind == "fence.proxy.alias":
        return asm("fence.proxy.alias;")
    if i.kind == "bar":
        return asm(f"bar.sync {i.operands[0]};")
    if i.kind == "label":
        return f"{i.target}_label:;"
    if i.kind == "goto":
        return f"goto {i.target}_label;"
    if i.kind in ("beq", "bne"):
        compare = "==" if i.kind == "beq" else "!="
        return f"if ({cxx(i.operands[0])} {compare} {cxx(i.operands[1])}) goto {i.target}_label;"
    sign = {"mov": "", "add": " + ", "sub": " - "}[i.kind]
    return f"{i.target}_ = {sign.join(map(cxx, i.operands))};"


def places(test):
    """For each thread (GPU, block of it, thread of that), numbered without gaps."""
    gpus = sorted({t.gpu for t in test.threads})
    blocks = {g: sorted({t.cta for t in test.threads if t.gpu == g}) for g in gpus}
    counted = collections.Counter()
    found = []
    for t in test.threads:
        found.append((gpus.index(t.gpu), blocks[t.gpu].index(t.cta), counted[t.gpu, t.cta]))
        counted[t.gpu, t.cta] += 1
    return found


def program_text(tests):
    """The tests as a source for litmus_main.cu."""
    parts = ['#include "devcomm_litmus.hpp"\n']
    table = []
    for number, test in enumerate(tests):
        locations = sorted(test.initial)
        for order, thread in enumerate(test.threads):
            named = registers(thread)
            unnamed = ["unused"] if any(i.kind == "atom" and not i.target for i in thread.code) else []
            declared = "".join(f" unsigned {n}_ = 0;" for n in named + unnamed)
            kept = "".join(f" m.keep({order}, {k}, {n}_);" for k, n in enumerate(named))
            body = "".join(f"  {statement(test, i, locations)}\n" for i in thread.code)
            parts.append(
                f"__device__ void test{number}_{order}(const litmus::memory& m) {{\n {declared}\n{body} {kept}\n}}\n"
            )
        shape = places(test)
        blocks_of = [1 + max(b for g2, b, _ in shape if g2 == g) for g in range(1 + max(g for g, _, _ in shape))]
        cases = "".join(
            f"    if (gpu == {g} && litmus::is_thread({b}, {blocks_of[g]}, {t})) {{\n"
            f"      const litmus::memory m = all.instance(first / {blocks_of[g]} * instances + i);\n"
            f"      m.meet({len(shape)});\n      test{number}_{k}(m);\n    }}\n"
            for k, (g, b, t) in enumerate(shape)
        )
        parts.append(
            f"__global__ void test{number}(litmus::memory all, int instances, int gpu) {{\n"
            f"  const int first = static_cast<int>(blockIdx.x);\n"
            f"  for (int i = 0; i < instances; ++i) {{\n{cases}  }}\n}}\n"
        )
        blocks = [[0] * count for count in blocks_of]
        for g, b, _ in shape:
            blocks[g][b] += 1
        table.append(
            "  {%s, test%d, {%s}, {%s}, {%s}, {%s}}"
            % (
                json.dumps(test.name),
                number,
                ", ".join(f'{{"{n}", {test.initial[n]}u}}' for n in locations),
                ", ".join("{%s}" % ", ".join(f'"{t.name}:{n}"' for n in registers(t)) for t in test.threads),
                ", ".join("{%s}" % ", ".join(map(str, b)) for b in blocks),
                ", ".join(f'"{n}"' for n in test.observed),
            )
        )
    parts.append("std::vector<litmus::test> litmus::all_tests() {\n return {\n" + ",\n".join(table) + "};\n}\n")
    return "".join(parts)


Seen = collections.namedtuple("Seen", "outcomes race problem")  # outcomes: as Test.shown -> times


SHIPPED = next(p for p in PACKAGES if (p / "devcomm_litmus.hpp").exists() or p is PACKAGES[-1])


def simulate(tests, rounds, verbose):
    """What the simulator shows of each test."""
    gpus = max(g for t in tests for g, _, _ in places(t)) + 1

    def commands(source, results):
        yield [
            HERE / "devcomm-simulate",
            source,
            SHIPPED / "litmus_main.cu",
            "-I",
            SHIPPED,
            "--race",
            "--seed",
            "1",
            "--ranks",
            str(gpus),
            "--timeout",
            "3600",
            "--",
            results,
            str(rounds),
        ]

    return played(tests, commands, verbose)


def play_on_gpu(tests, rounds, verbose):
    """What this machine's GPUs show of each test; those of several GPUs share one where there is no other."""

    def commands(source, results):
        program = source.with_suffix("")
        yield [
            "nvcc",
            "-std=c++20",
            "-arch=native",
            "-DLITMUS_ON_GPU",
            "-I",
            SHIPPED,
            source,
            SHIPPED / "litmus_main.cu",
            "-o",
            program,
        ]
        yield [program, results, str(rounds)]

    return played(tests, commands, verbose)


def played(tests, commands, verbose):
    """Runs the commands that turn a source into a file of results."""
    with tempfile.TemporaryDirectory() as folder:
        source, results = pathlib.Path(folder, "litmus.cu"), pathlib.Path(folder, "results.json")
        source.write_text(program_text(tests))
        for command in commands(source, results):
            try:
                ran = subprocess.run(command, text=True, capture_output=True)
            except OSError as error:
                fail(3, f"{command[0]}: {error.strerror}")
            if verbose or ran.returncode:
                print(ran.stdout + ran.stderr, file=sys.stderr)
            if ran.returncode:
                fail(3 if not results.exists() else 1, f"{command[0]} ended with status {ran.returncode}")
        return read_results(tests, json.loads(results.read_text()))


def fail(status, text):
    print(f"devcomm-litmus: {text}", file=sys.stderr)
    sys.exit(status)


def read_results(tests, data):
    return [
        Seen({tuple(zip(test.observed, o["values"])): o["times"] for o in one["outcomes"]}, one["race"], one["problem"])
        for test, one in zip(tests, data)
    ]


# --- the command ---


class Options:
    def __init__(self, words):
        self.files, self.simulates, self.gpu, self.rounds, self.json, self.verbose = [], True, False, None, None, False
        words = list(words)
        while words:
            word = words.pop(0)
            if word in ("-h", "--help"):
                print(__doc__)
                sys.exit(0)
            if word == "--model":
                self.simulates = False
            elif word == "--gpu":
                self.gpu = True
            elif word == "--verbose":
                self.verbose = True
            elif word in ("--rounds", "--json"):
                if not words:
                    raise BadTest(f"nothing follows {word}")
                value = words.pop(0)
                if word == "--rounds" and not re.fullmatch("[1-9][0-9]*", value):
                    raise BadTest(f"--rounds takes a whole number from 1; it has '{value}'")
                setattr(self, word[2:], int(value) if word == "--rounds" else value)
            elif word.startswith("-"):
                raise BadTest(f"unknown option {word}; --help lists them")
            else:
                self.files.append(word)
        if not self.files:
            raise BadTest("give a file; --help says more")


def named(outcome):
    return " ".join(f"{name}={value}" for name, value in outcome)


class Result:
    """What is known of one test."""

    def __init__(self, test):
        self.test = test
        try:
            self.verdict = model.judge(test)
        except model.TooLarge:
            raise BadTest(
                f"{test.path}: too many executions: more than {model.MAX_WRITES - 1} "
                f"stores to a location, or {model.MAX_CANDIDATES} choices in all; leave accesses or threads out"
            ) from None
        outcomes = self.verdict.outcomes
        if test.filter:
            outcomes = {o for o in outcomes if test.filter.of(dict(o))}
        self.holds = test.holds(outcomes)
        self.allowed = {test.shown(o) for o in outcomes}
        self.seen = None  # in the simulator
        self.on_gpu = None

    def forbidden(self, seen):
        """Outcomes that were seen and PTX forbids; none where a filter leaves some out, or in the simulator a race
        makes them meaningless."""
        if seen is None or self.test.filter or seen is self.seen and self.verdict.race:
            return []
        return [o for o in seen.outcomes if o not in self.allowed]

    def agrees(self):
        return (
            not self.forbidden(self.seen)
            and not self.forbidden(self.on_gpu)
            and (self.seen is None or not self.seen.problem and self.seen.race == bool(self.verdict.race))
        )

    def text(self):
        race = self.verdict.race
        parts = [
            f"{self.test.name}: {self.test.quantifier} {'holds' if self.holds else 'does not hold'}",
            f"race of {race[0]} and {race[1]}" if race else "no race",
        ]
        if self.seen is not None:
            parts.append("simulator: " + self.compared())
        if self.on_gpu is not None:
            parts.append("GPU: " + self.counted(self.on_gpu))
        return "; ".join(parts)

    def compared(self):
        if self.seen.problem:
            return self.seen.problem
        if self.seen.race != bool(self.verdict.race):
            return "a race" if self.seen.race else "no race"
        if self.verdict.race:
            return "the same race"
        return self.counted(self.seen)

    def counted(self, seen):
        if self.forbidden(seen):
            return "FORBIDDEN " + ", ".join(map(named, self.forbidden(seen)))
        unseen = sorted(self.allowed - set(seen.outcomes))
        return f"all {len(self.allowed)} outcomes" if not unseen else f"not seen: {', '.join(map(named, unseen))}"

    def as_json(self):
        lines = list(self.verdict.race or [])
        found = {
            "name": self.test.name,
            "file": str(self.test.path),
            "holds": self.holds,
            "race": lines,
            "allowed": [dict(o) for o in sorted(self.allowed)],
            "agrees": self.agrees(),
        }
        for name, seen in (("simulator", self.seen), ("gpu", self.on_gpu)):
            if seen is not None:
                found[name] = {
                    "race": seen.race,
                    "problem": seen.problem,
                    "outcomes": [dict(o, times=n) for o, n in sorted(seen.outcomes.items())],
                }
        return found


SIMULATED_ROUNDS, GPU_ROUNDS = 2000, 1000000


def run(tests, simulates, rounds=SIMULATED_ROUNDS, gpu_rounds=None, verbose=False):
    """The results of these tests."""
    results = [Result(t) for t in tests]
    runnable = [r for r in results if not r.test.aliases]
    sources = [r.test for r in runnable]
    if simulates and runnable:
        for result, seen in zip(runnable, simulate(sources, rounds, verbose)):
            result.seen = seen
    if gpu_rounds and runnable:
        for result, seen in zip(runnable, play_on_gpu(sources, gpu_rounds, verbose)):
            result.on_gpu = seen
    return results


def main():
    try:
        options = Options(sys.argv[1:])
        tests = [read(f) for f in options.files]
        gpu_rounds = (options.rounds or GPU_ROUNDS) if options.gpu else None
        results = run(tests, options.simulates, options.rounds or SIMULATED_ROUNDS, gpu_rounds, options.verbose)
    except BadTest as problem:
        fail(2, problem)
    for result in results:
        print(result.text())
        if options.verbose:
            for outcome in sorted(result.allowed):
                places_seen = [result.on_gpu] if result.verdict.race else [result.seen, result.on_gpu]
                times = [f"  {seen.outcomes.get(outcome, 0)} times" for seen in places_seen if seen]
                print(f"    {named(outcome)}{''.join(times)}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps([r.as_json() for r in results], indent=1) + "\n")
    sys.exit(0 if all(r.holds and r.agrees() for r in results) else 1)


if __name__ == "__main__":
    main()
