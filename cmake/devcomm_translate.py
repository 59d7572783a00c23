#!/usr/bin/env python3
"""Rewrites, token by token, what is CUDA and not C++, for the simulator.

devcomm_translate.py launches IN.cu OUT.cpp FOLDERS
    kernel<<<grid, block, shared, stream>>>(arguments) becomes a call of the simulator's runtime. `return;` in a
    __global__ function also says its line to the simulator, which tells by it that lanes of a warp reach a barrier in a
    destructor by different ways, and variables that are __device__ or __constant__ get a place of which each simulated
    GPU has its own. Lines keep their numbers. A file without any of these is included by OUT.cpp as it is.
    OUT.cpp.options gets compiler options: where the file, or one that it includes by "name", has volatile or loads
    like it, the runtime is called in each basic block, so that loops over such memory are interrupted. Such files are
    looked for beside the one that includes them and in FOLDERS, separated by semicolons; OUT.cpp.d lists them for make.

devcomm_translate.py ptx FOLDER OUT
    The headers below FOLDER/cub that have inline PTX are written to OUT/cub with C++ in its place: register by register
    and instruction by instruction, as far as CUB's headers use PTX. An instruction that is not known here fails the launch
    that reaches it, with its text. What C++ compilers refuse or their sanitizers report, and nvcc does not, is mended.
"""

import pathlib
import re
import sys

TOKENS = re.compile(
    r"""
    (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<name>[A-Za-z_$][\w$]*)
  | (?P<space>(?:\\\r?\n|[^\S\n])+)
  | (?P<newline>\n)
  | (?P<operator><<<|>>>|<<=|>>=|<=>|<=|>=|->|<<|>>|::|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
BLANK = ("comment", "space", "newline")


class Problem(Exception):
    def __init__(self, line, text):
        super().__init__(text)
        self.line = line


class Token:
    __slots__ = ("kind", "text", "line")

    def __init__(self, kind, text, line):
        self.kind = kind
        self.text = text
        self.line = line


def tokens_of(text):
    found = []
    line = 1
    for match in TOKENS.finditer(text):
        kind = match.lastgroup if match.lastgroup != "delimiter" else "raw"
        found.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
    return found


def one_line(tokens):
    """The tokens' text without newlines and comments."""
    return "".join(" " if t.kind in BLANK else t.text for t in tokens).strip()


OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {close: opening for opening, close in OPENING.items()}


def matching(tokens, start):
    """The index of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(tokens)):
        if tokens[i].kind != "operator":
            continue
        if tokens[i].text in OPENING:
            depth += 1
        elif tokens[i].text in CLOSING:
            depth -= 1
            if depth == 0:
                return i
    raise Problem(tokens[start].line, f"'{tokens[start].text}' is not closed")


# --- launches ---


def before(tokens, i):
    """The index of the last token before `i` that is not blank; -1 if there is none."""
    i -= 1
    while i >= 0 and tokens[i].kind in BLANK:
        i -= 1
    return i


def after(tokens, i):
    i += 1
    while i < len(tokens) and tokens[i].kind in BLANK:
        i += 1
    return i


def matching_back(tokens, i):
    depth = 0
    while i >= 0:
        if tokens[i].kind == "operator":
            if tokens[i].text in CLOSING:
                depth += 1
            elif tokens[i].text in OPENING:
                depth -= 1
                if depth == 0:
                    return i
        i -= 1
    return -1


def template_start(tokens, i):
    """`i` is at the end of a template's arguments: the index of their `<`."""
    depth = 0
    while i >= 0:
        t = tokens[i]
        if t.kind == "operator":
            if t.text in (">", ">>", ">>>"):
                depth += len(t.text)
            elif t.text == "<":
                depth -= 1
                if depth == 0:
                    return i
            elif t.text in (")", "]", "}"):
                i = matching_back(tokens, i)
            elif t.text in (";", "{", "(", "["):
                return -1
        i -= 1
    return -1


def kernel_start(tokens, launch):
    """Where the expression before `<<<` starts: a name with its scope, its object and template arguments, or an
    expression in parentheses."""
    line = tokens[launch].line
    nothing = Problem(line, "there is no kernel before '<<<'")
    i = before(tokens, launch)
    start = None
    while i >= 0:
        t = tokens[i]
        if t.text in (")", "]"):
            i = matching_back(tokens, i)
            if i < 0:
                raise nothing
            start = i
            j = before(tokens, i)
            if j >= 0 and (tokens[j].kind == "name" or tokens[j].text in (")", "]", ">")):
                if tokens[j].text not in ("return", "else", "do", "if", "while", "for", "switch"):
                    i = j
                    continue
        elif t.text in (">", ">>", ">>>"):
            i = template_start(tokens, i)
            i = before(tokens, i) if i >= 0 else -1
            if i < 0 or tokens[i].kind != "name":
                raise nothing
            start = i
        elif t.kind == "name":
            start = i
        else:
            raise nothing
        j = before(tokens, start)
        if j >= 0 and tokens[j].text == "template":
            start = j
            j = before(tokens, j)
        if j >= 0 and tokens[j].text in ("::", ".", "->"):
            start = j
            k = before(tokens, j)
            in_scope = tokens[k].kind == "name" and tokens[k].text not in ("return", "else", "do")
            if k >= 0 and (in_scope or tokens[k].text in (")", "]", ">", ">>", ">>>")):
                i = k
                continue
            break
        if j >= 0 and tokens[j].text == "<":  # a comparison in template arguments: they go on to the left
            i = before(tokens, j)
            continue
        break
    if start is None:
        raise nothing
    return start


def launch_end(tokens, launch):
    depth = 0
    for i in range(launch + 1, len(tokens)):
        t = tokens[i]
        if t.kind != "operator":
            continue
        if t.text in OPENING:
            depth += 1
        elif t.text in CLOSING:
            depth -= 1
            if depth < 0:
                break
        elif t.text == ">>>" and depth == 0:
            return i
        elif t.text == ";" and depth == 0:
            break
    raise Problem(tokens[launch].line, "'<<<' is not closed by '>>>'")


def kernel_bodies(tokens):
    """The first and last token of the body of each __global__ function."""
    for i, t in enumerate(tokens):
        if t.kind != "name" or t.text != "__global__":
            continue
        depth = 0
        for k in range(i, len(tokens)):
            text = tokens[k].text if tokens[k].kind == "operator" else ""
            depth += text in ("(", "[")
            depth -= text in (")", "]")
            if depth == 0 and text == ";":  # a declaration
                break
            if depth == 0 and text == "{":
                yield k, matching(tokens, k)
                break


def opens_nested(tokens, brace):
    """Whether `brace` opens the body of a lambda or of a local class."""
    i = before(tokens, brace)
    while tokens[i].kind == "name" or tokens[i].text == "->":
        if tokens[i].text in ("struct", "class"):
            return True
        i = before(tokens, i)
    if tokens[i].text == ")":
        i = before(tokens, matching_back(tokens, i))
        if tokens[i].text == ">":
            i = before(tokens, template_start(tokens, i))
    return tokens[i].text == "]"


def early_returns(tokens):
    """Where kernels themselves have `return;`: not their lambdas."""
    for first, last in kernel_bodies(tokens):
        i = first + 1
        while i < last:
            if tokens[i].kind == "operator" and tokens[i].text == "{" and opens_nested(tokens, i):
                i = matching(tokens, i)
            elif tokens[i].kind == "name" and tokens[i].text == "return" and tokens[after(tokens, i)].text == ";":
                yield i
            i += 1


def in_directives(tokens):
    """The indices of tokens of preprocessor directives."""
    found = set()
    inside, line_begins = False, True
    for i, t in enumerate(tokens):
        if t.kind == "newline":
            inside, line_begins = False, True
        elif line_begins and t.kind not in BLANK:
            inside, line_begins = t.text == "#", False
        if inside:
            found.add(i)
    return found


WITH_ARGUMENT = {"__align__", "alignas", "__attribute__", "__launch_bounds__", "decltype"}
NO_VARIABLE_OF_A_GPU = {"operator", "constexpr", "const", "inline", "extern", "using", "typedef"}


def device_variables(tokens):
    """Where `__device__` or `__constant__` begins the definition of a variable that each GPU has for itself."""
    directives = in_directives(tokens)
    for i, t in enumerate(tokens):
        if t.kind != "name" or t.text not in ("__device__", "__constant__") or i in directives:
            continue
        previous = before(tokens, i)
        if previous >= 0 and tokens[previous].text in ("]", ">", "inline", "extern", "const", "constexpr"):
            continue  # a lambda, a template, what all GPUs have alike
        k = after(tokens, i)
        while k < len(tokens) and tokens[k].text not in NO_VARIABLE_OF_A_GPU:
            text = tokens[k].text
            if text in WITH_ARGUMENT and tokens[after(tokens, k)].text == "(":
                k = matching(tokens, after(tokens, k))
            elif tokens[k].kind == "operator" and text in ("(", ")", "}"):
                break  # a function
            elif tokens[k].kind == "operator" and text in (";", "=", "[", "{"):
                yield i
                break
            k = after(tokens, k)


def translate_launches(text):
    """The text with launches, returns and variables of GPUs rewritten; None if it has none."""
    tokens = tokens_of(text)
    returns = list(early_returns(tokens)) if "__global__" in text else []
    variables = list(device_variables(tokens)) if "__device__" in text or "__constant__" in text else []
    launches = []
    for i, t in enumerate(tokens):
        previous = before(tokens, i)
        if t.text == "<<<" and not (previous >= 0 and tokens[previous].text == "operator"):
            launches.append(i)
    if not launches and not returns and not variables:
        return None
    insert = {}  # text before a token
    replace = {i: "return ::devcomm::simulator::detail::return_at(__LINE__)" for i in returns}
    replace |= {i: f"{tokens[i].text} DEVCOMM_SIMULATOR_OF_EACH_GPU" for i in variables}
    for launch in launches:
        start = kernel_start(tokens, launch)
        end = launch_end(tokens, launch)
        opening = after(tokens, end)
        if opening >= len(tokens) or tokens[opening].text != "(":
            raise Problem(tokens[end].line, "after '>>>' the kernel's arguments in parentheses are missing")
        matching(tokens, opening)
        if after(tokens, launch) == end:
            raise Problem(tokens[launch].line, "'<<<' needs the grid and the block: <<<grid, block, shared, stream>>>")
        kernel = one_line(tokens[start:launch])
        insert[start] = "::devcomm::simulator::detail::launch_of([&](auto devcomm_as) -> decltype(devcomm_as("
        # Only a name may stand for several functions.
        call = "::devcomm::simulator::detail::no_call{}"
        last = tokens[before(tokens, launch)]
        if last.text not in (")", "]") and not any(t.text in (".", "->") for t in tokens[start:launch]):
            call = (
                f"[=](const auto&... devcomm_arguments) -> decltype({kernel}(devcomm_arguments...)) "
                f"{{ return {kernel}(devcomm_arguments...); }}"
            )
        replace[launch] = f")) {{ return devcomm_as({kernel}); }}, {call}).with("
        replace[end] = ").run"
    return "".join(insert.get(i, "") + replace.get(i, t.text) for i, t in enumerate(tokens))


UNSEEN_LOADS = {"volatile", "__ldcv", "__ldcg", "__ldlu"}


def polls_unseen(tokens):
    for i, t in enumerate(tokens):
        if t.kind == "name" and t.text in UNSEEN_LOADS:
            previous = before(tokens, i)
            if previous < 0 or tokens[previous].text not in ("asm", "__asm__"):
                return True
    return False


def with_included(source, folders):
    """The texts of a file and of all that it includes by "name", by path."""
    texts = {}
    waiting = [pathlib.Path(source)]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        texts[path] = path.read_text(encoding="utf-8", errors="surrogateescape")
        for name in re.findall(r'^[^\S\n]*#[^\S\n]*include[^\S\n]*"([^"\n]+)"', texts[path], re.MULTILINE):
            for folder in [path.parent, *folders]:
                if (folder / name).is_file():
                    waiting.append(folder / name)
                    break
    return texts


def launches(source, target, folders=""):
    texts = with_included(source, [pathlib.Path(f) for f in folders.split(";") if f])
    text = texts[pathlib.Path(source)]
    try:
        translated = translate_launches(text)
    except Problem as problem:
        sys.exit(f"{source}:{problem.line}: error: {problem}")
    name = str(source).replace("\\", "\\\\").replace('"', '\\"')
    if translated is None:
        result = f'#include "{name}"\n'
    else:
        result = f'#line 1 "{name}"\n{translated}'
    unseen = any(UNSEEN_LOADS.intersection(re.findall(r"\w+", t)) and polls_unseen(tokens_of(t)) for t in texts.values())
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(f"{target}.options").write_text("-fsanitize-coverage=trace-pc\n" if unseen else "\n")
    names = [str(path).replace(" ", "\\ ") for path in texts]
    pathlib.Path(f"{target}.d").write_text(f"{str(target).replace(' ', chr(92) + ' ')}: {' '.join(names)}\n")
    pathlib.Path(target).write_text(result, encoding="utf-8", errors="surrogateescape")


# --- inline PTX ---

HELPERS = "::devcomm::simulator::detail::ptx::"
TYPES = {
    "b8": "unsigned char", "u8": "unsigned char", "s8": "signed char",
    "b16": "unsigned short", "u16": "unsigned short", "s16": "short",
    "b32": "unsigned", "u32": "unsigned", "s32": "int", "f32": "float",
    "b64": "unsigned long long", "u64": "unsigned long long", "s64": "long long", "f64": "double",
    "pred": "bool",
}  # fmt: skip
CONSTRAINTS = {"h": "u16", "r": "u32", "l": "u64", "f": "f32", "d": "f64"}
ARITHMETIC = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "and": "{0} & {1}", "or": "{0} | {1}",
              "xor": "{0} ^ {1}", "min": "({0} < {1} ? {0} : {1})", "max": "({0} > {1} ? {0} : {1})"}  # fmt: skip
PLAIN_ACCESS = {"ca", "cg", "cs", "cv", "wb", "wt", "global", "nc", "v2", "v4"}  # hints, and no order
MODIFIER = "MODIFIER:"  # what follows is the C++ text of a modifier that only the preprocessor knows
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class Unknown(Exception):
    pass


def split(text, separator=","):
    """At the separators outside of braces and brackets."""
    parts = [""]
    depth = 0
    for c in text:
        depth += c in "{["
        depth -= c in "}]"
        if c == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


class Code:
    """One asm statement's instructions as C++."""

    def __init__(self, operands):
        self.operands = operands  # names of C++ variables
        self.registers = {}
        self.lines = []

    def name(self, operand):
        operand = operand.strip()
        if re.fullmatch(r"%\d+", operand):
            return self.operands[int(operand[1:])]
        if operand in self.registers:
            return self.registers[operand]
        raise Unknown

    def value(self, operand, kind):
        operand = operand.strip()
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", operand):
            return f"static_cast<{TYPES[kind]}>({operand})"
        if operand.startswith("%%"):
            return f"{HELPERS}special_{re.sub('[^a-z_]', '_', operand[2:])}()"
        return f"{HELPERS}as<{TYPES[kind]}>({self.name(operand)})"

    def assign(self, operand, value, guard):
        target = self.name(operand)
        self.lines.append(f"{guard}{target} = {HELPERS}as<decltype({target})>({value});")

    def statement(self, text):
        text = text.strip()
        guard = ""
        if text.startswith(".reg"):
            _, kind, names = text.split(None, 2)
            for register in names.split(","):
                register = register.strip()
                self.registers[register] = f"devcomm_{register}"
                self.lines.append(f"{TYPES[kind.lstrip('.')]} devcomm_{register}{{}};")
            return
        if text.startswith("@"):
            predicate, text = text[1:].split(None, 1)
            negated = predicate.startswith("!")
            guard = f"if ({'!' if negated else ''}{self.name(predicate.lstrip('!'))}) "
        opcode, _, rest = text.partition(" ")
        parts = opcode.split(".")
        operands = split(rest)
        kind = parts[-1]
        try:
            self.instruction(parts, kind, operands, guard)
        except (KeyError, IndexError) as e:
            raise Unknown from e

    def instruction(self, parts, kind, operands, guard):
        op = parts[0]
        if op == "mov" and operands[0].startswith("{"):
            low, high = split(operands[0][1:-1])
            whole = self.value(operands[1], "u64" if kind == "b64" else "u32")
            half = "32" if kind == "b64" else "16"
            self.assign(low, f"{HELPERS}low<{half}>({whole})", guard)
            self.assign(high, f"{HELPERS}high<{half}>({whole})", guard)
        elif op == "mov" and operands[1].startswith("{"):
            part = "u32" if kind == "b64" else "u16"
            low, high = (self.value(o, part) for o in split(operands[1][1:-1]))
            self.assign(operands[0], f"{HELPERS}pack({low}, {high})", guard)
        elif op == "mov":
            self.assign(operands[0], self.value(operands[1], kind), guard)
        elif op in ARITHMETIC and (op not in ("mul",) or parts[1] == "lo" or kind.startswith("f")):
            a, b = (self.value(o, kind) for o in operands[1:3])
            self.assign(operands[0], f"static_cast<{TYPES[kind]}>({ARITHMETIC[op].format(a, b)})", guard)
        elif op == "not":
            self.assign(operands[0], f"~{self.value(operands[1], kind)}", guard)
        elif op in ("shl", "shr"):
            shift = f"{HELPERS}{op}({self.value(operands[1], kind)}, {self.value(operands[2], 'u32')})"
            self.assign(operands[0], shift, guard)
        elif op == "bfe" and kind == "u32":
            a, b, c = (self.value(o, "u32") for o in operands[1:4])
            self.assign(operands[0], f"{HELPERS}bfe({a}, {b}, {c})", guard)
        elif op == "cvt":
            self.assign(operands[0], f"static_cast<{TYPES[parts[-2]]}>({self.value(operands[1], kind)})", guard)
        elif op == "setp":
            a, b = (self.value(o, kind) for o in operands[1:3])
            self.lines.append(f"{guard}{self.name(operands[0])} = {a} {COMPARISONS[parts[1]]} {b};")
        elif op == "selp":
            a, b = (self.value(o, kind) for o in operands[1:3])
            self.assign(operands[0], f"{self.name(operands[3])} ? {a} : {b}", guard)
        elif op == "vote" and parts[1:] == ["ballot", "sync", "b32"]:
            mask = self.value(operands[2], "u32")
            self.assign(operands[0], f"__ballot_sync({mask}, {self.name(operands[1])})", guard)
        elif op == "shfl" and parts[1] == "sync" and kind == "b32":
            to, _, predicate = operands[0].partition("|")
            values = ", ".join(self.value(o, "u32") for o in operands[1:5])
            if not predicate:
                predicate = f"%ignored{len(self.lines)}"
                self.registers[predicate] = f"devcomm_ignored{len(self.lines)}"
                self.lines.append(f"bool {self.registers[predicate]}{{}};")
            predicate = self.name(predicate)
            self.assign(to, f"{HELPERS}shfl_{parts[2]}({predicate}, {values})", guard)
        elif op in ("ld", "st") and PLAIN_ACCESS.issuperset(p for p in parts[1:-1] if not p.startswith(MODIFIER)):
            places = operands if op == "ld" else operands[::-1]
            register, address = places
            count = split(register[1:-1]) if register.startswith("{") else [register]
            pointer = self.value(address.strip("[] "), "u64")
            if op == "ld":
                bytes_of_all = f"{len(count)} * sizeof({TYPES[kind]})"
                for part in parts[1:-1]:
                    modifier = part[len(MODIFIER) :] if part.startswith(MODIFIER) else f'"{part}"' if part == "nc" else ""
                    if modifier:
                        self.lines.append(f"{guard}{HELPERS}note_load({modifier}, {pointer}, {bytes_of_all});")
            for i, each in enumerate(count):
                element = f"reinterpret_cast<{'const ' if op == 'ld' else ''}{TYPES[kind]}*>({pointer})[{i}]"
                if op == "ld":
                    self.assign(each, element, guard)
                else:
                    self.lines.append(f"{guard}{element} = {self.value(each, kind)};")
        else:
            raise Unknown


def cpp_of(template, outputs, inputs):
    """C++ for an asm statement; operands are pairs of a constraint and an expression."""
    begin = []
    end = []
    names = []
    for constraint, expression in outputs:
        kind = constraint.strip("=+&")
        name = f"devcomm_operand_{len(names)}"
        start = f"{HELPERS}as<{TYPES[CONSTRAINTS[kind]]}>({expression})" if "+" in constraint else ""
        begin.append(f"{TYPES[CONSTRAINTS[kind]]} {name}{{{start}}};")
        end.append(f"{HELPERS}set({expression}, {name});")
        names.append(name)
    for constraint, expression in inputs:
        name = f"devcomm_operand_{len(names)}"
        kind = CONSTRAINTS[constraint] if constraint in CONSTRAINTS else CONSTRAINTS[outputs[int(constraint)][0].strip("=&")]
        begin.append(f"const {TYPES[kind]} {name} = {HELPERS}as<{TYPES[kind]}>({expression});")
        names.append(name)
    text = template.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    code = Code(names)
    try:
        for statement in split(re.sub(r"\s+", " ", text), ";"):
            if statement:
                code.statement(statement)
    except Unknown:
        shown = re.sub(r"\s+", " ", re.sub(MODIFIER + "#?", "", template)).strip().replace("\\", "\\\\").replace('"', '\\"')
        return f'do {{ ::devcomm::simulator::detail::fail_misuse("the simulator has no such PTX: {shown}"); }} while (false)'
    return "do { " + " ".join(begin + code.lines + end) + " } while (false)"


def unquoted(tokens):
    """The text of adjacent string literals; what the preprocessor makes a string stays a placeholder."""
    text = ""
    before = ""
    for t in tokens:
        if t.kind == "string":
            text += t.text[1:-1].replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')
        elif t.kind == "name":
            text += MODIFIER + ("#" if before == "#" else "") + t.text
        before = t.text if t.text.strip(" \t\\\n") else before
    return text


def translate_ptx(text):
    tokens = tokens_of(text)
    result = []
    i = 0
    changed = False
    while i < len(tokens):
        t = tokens[i]
        if t.kind != "name" or t.text not in ("asm", "__asm__"):
            result.append(t.text)
            i += 1
            continue
        opening = after(tokens, i)
        if tokens[opening].kind == "name":  # volatile
            opening = after(tokens, opening)
        if tokens[opening].text != "(":
            result.append(t.text)
            i += 1
            continue
        close = matching(tokens, opening)
        sections = [[]]
        depth = 0
        for each in tokens[opening + 1 : close]:
            depth += each.text in OPENING
            depth -= each.text in CLOSING
            if depth == 0 and each.text in (":", "::") and each.kind == "operator":
                sections += [[] for _ in each.text]
            else:
                sections[-1].append(each)
        operands = []
        for section in sections[1:3]:
            found = []
            k = 0
            while k < len(section):
                if section[k].kind == "string":
                    start = after(section, k)
                    stop = matching(section, start)
                    found.append((section[k].text[1:-1], one_line(section[start + 1 : stop])))
                    k = stop
                k += 1
            operands.append(found)
        operands += [[], []]
        result.append(cpp_of(unquoted(sections[0]), operands[0], operands[1]))
        result.append("\n" * sum(each.kind == "newline" for each in tokens[i:close]))
        changed = True
        i = close + 1
    return "".join(result) if changed else None


def qualify_aliases(text):
    """`using BlockExchange = BlockExchange<...>` in a class: GCC refuses a name that changes its meaning there."""
    return re.sub(r"\busing (\w+)(\s*=\s*)\1(?=<)", r"using \1\2CUB_NS_QUALIFIER::\1", text)


def align_storage(text):
    """GPUs ask of shared memory the alignment of an access, and C++ that of the type: storage gets it."""
    return re.sub(r"^(\s*)(?=DeviceWord storage\[WORDS\];)", r"\1alignas(T) ", text, flags=re.MULTILINE)


def ptx(folder, target):
    root = pathlib.Path(folder)
    for header in sorted((root / "cub").rglob("*.cuh")):
        text = header.read_text(encoding="utf-8", errors="surrogateescape")
        try:
            translated = align_storage(qualify_aliases(translate_ptx(text) or text if "asm" in text else text))
        except Problem as problem:
            sys.exit(f"{header}:{problem.line}: error: {problem}")
        if translated == text:
            continue
        out = pathlib.Path(target) / header.relative_to(root)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(f'#line 1 "{header}"\n{translated}', encoding="utf-8", errors="surrogateescape")


if __name__ == "__main__":
    if sys.argv[1:2] == ["launches"] and len(sys.argv) in (4, 5):
        launches(*sys.argv[2:])
    elif sys.argv[1:2] == ["ptx"] and len(sys.argv) == 4:
        ptx(*sys.argv[2:])
    else:
        sys.exit(__doc__)
