"""Inline PTX as C++ for the simulator, instruction by instruction: every `asm` statement becomes calls of
simulator/include/devcomm/simulator/device/ptx.hpp, with the order and scope that the instruction says."""

import re
import zlib

from devcomm_tokens import CLOSING, OPENING, after, in_directives, matching, one_line, tokens_of

HELPERS = "::devcomm::simulator::detail::ptx::"
TYPES = {
    "b8": "unsigned char", "u8": "unsigned char", "s8": "signed char",
    "b16": "unsigned short", "u16": "unsigned short", "s16": "short",
    "b32": "unsigned", "u32": "unsigned", "s32": "int", "f32": "float",
    "b64": "unsigned long long", "u64": "unsigned long long", "s64": "long long", "f64": "double",
    "pred": "bool",
}  # fmt: skip
CONSTRAINTS = {"h": "u16", "r": "u32", "l": "u64", "f": "f32", "d": "f64"}
INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "div": "/", "rem": "%"}
ATOMICS = {"add", "and", "or", "xor", "exch", "min", "max", "cas", "inc", "dec"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
               "hs": ">="}  # fmt: skip
UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
ORDERS = {"relaxed": "relaxed", "volatile": "relaxed", "mmio": "relaxed", "acquire": "acquire", "release": "release",
          "acq_rel": "acq_rel", "sc": "seq_cst"}  # fmt: skip
SCOPES = {"cta": "block", "cluster": "cluster", "gpu": "device", "gl": "device", "sys": "system"}
SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster"}
CACHES = {"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "evict_first", "evict_last"}
SPECIAL = {"tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "nwarpid", "clock", "clock_hi", "clock64",
           "globaltimer", "globaltimer_lo", "globaltimer_hi", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt",
           "lanemask_ge", "dynamic_smem_size", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank", "cluster_nctarank",
           "clusterid", "nclusterid", "is_explicit_cluster"}  # fmt: skip
HALVES = {"f16": "__half", "bf16": "__nv_bfloat16", "f16x2": "__half", "bf16x2": "__nv_bfloat16"}
OF_PRODUCTS = {"f16": "__half", "bf16": "__nv_bfloat16", "tf32": f"{HELPERS}tf32", "s8": "std::int8_t",
               "u8": "std::uint8_t", "e4m3": f"{HELPERS}e4m3", "e5m2": f"{HELPERS}e5m2"}  # fmt: skip
ON_HALVES = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "min": "__hmin({0}, {1})",
             "max": "__hmax({0}, {1})", "fma": "__hfma({0}, {1}, {2})", "neg": "-{0}", "abs": "__habs({0})"}  # fmt: skip
MODIFIER = "MODIFIER:"  # what follows is the C++ text of a modifier that only the preprocessor knows
# Host code has `asm` too; these begin what is no PTX.
OF_HOSTS = {"pause", "rep", "mfence", "lfence", "sfence", "rdtsc", "rdtscp", "cpuid", "yield", "isb", "dmb", "mrs", "clflush",
            "clflushopt", "clwb", "nop", "lock"}  # fmt: skip


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


class Access:
    """The modifiers of an instruction that accesses memory."""

    def __init__(self, parts):
        self.order = None  # of a weak access
        self.scope = None
        self.space = "generic"
        self.count = 1
        self.kind = parts[-1]
        self.hints = []  # C++ texts of strings
        self.others = []
        for part in parts[1:-1]:
            if part in ORDERS:
                self.order = ORDERS[part]
                if part in ("volatile", "mmio"):
                    self.scope = "system"
            elif part in SCOPES:
                self.scope = SCOPES[part]
            elif part in SPACES:
                self.space = SPACES[part]
            elif re.fullmatch(r"v[248]", part):
                self.count = int(part[1:])
            elif part.startswith(MODIFIER):
                self.hints.append(part[len(MODIFIER) :])
            elif part in CACHES:
                self.hints += ['"nc"'] if part == "nc" else []
            elif not (part == "weak" or part.startswith(("L1::", "L2::"))):
                self.others.append(part)

    @property
    def type(self):
        return TYPES[self.kind]

    def arguments(self):
        """Of helpers' templates: order and scope."""
        return f"{HELPERS}{self.order or 'relaxed'}, {HELPERS}atomic_scope::{self.scope or 'device'}"


class Code:
    """One asm statement's instructions as C++."""

    def __init__(self, operands):
        self.operands = operands  # names of C++ variables
        self.scopes = [{}]  # registers of each open brace
        self.registers = 0
        self.predicates = set()
        self.labels = {}
        self.declarations = []
        self.lines = []

    # operands

    def name(self, operand):
        operand = operand.strip()
        if match := re.fullmatch(r"%(\d+)", operand):
            return self.operands[int(match[1])]
        for scope in reversed(self.scopes):
            if operand in scope:
                return scope[operand]
        raise Unknown

    def register(self, name, kind):
        self.scopes[-1][name] = f"devcomm_register_{self.registers}"
        if kind == "pred":
            self.predicates.add(name)
        self.declarations.append(f"[[maybe_unused]] {TYPES[kind]} devcomm_register_{self.registers}{{}};")
        self.registers += 1

    def value(self, operand, kind):
        operand = operand.strip()
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            return f"static_cast<{TYPES[kind]}>({operand})"
        if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            return f"{HELPERS}as<float>(0x{match[1]}u)"
        if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            return f"{HELPERS}as<double>(0x{match[1]}ull)"
        if re.fullmatch(r"-?\d+\.\d*([eE][-+]?\d+)?", operand):
            return f"static_cast<{TYPES[kind]}>({operand})"
        if operand.startswith("%%"):
            register = operand[2:]
            if register.split(".")[0] not in SPECIAL:
                raise Unknown
            return f"{HELPERS}special_{re.sub('[^a-z0-9_]', '_', register)}()"
        return f"{HELPERS}as<{TYPES[kind]}>({self.name(operand)})"

    def address(self, operand, space):
        match = re.fullmatch(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand.strip())
        if not match:
            raise Unknown
        offset = match[2] or "0"
        if not re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", offset):
            offset = self.value(offset, "s64")
        return f"{HELPERS}at_{space}({self.value(match[1], 'u64')}, {offset})"

    def assign(self, operand, value, guard):
        if operand.strip() == "_":
            self.lines.append(f"{guard}static_cast<void>({value});")
            return
        target = self.name(operand)
        self.lines.append(f"{guard}{target} = {HELPERS}as<decltype({target})>({value});")

    def call(self, guard, function, *arguments):
        self.lines.append(f"{guard}{HELPERS}{function}({', '.join(arguments)});")

    def pack_of(self, operand):
        """The operands of a vector, or the one."""
        operand = operand.strip()
        return split(operand[1:-1]) if operand.startswith("{") else [operand]

    # statements

    def label(self, name):
        if name not in self.labels:
            self.labels[name] = f"devcomm_label_{len(self.labels)}"
        return self.labels[name]

    def block(self, text):
        at = 0
        while at < len(text):
            if text[at] in " ;":
                at += 1
            elif text[at] == "{":
                self.scopes.append({})
                at += 1
            elif text[at] == "}":
                if len(self.scopes) == 1:
                    raise Unknown
                self.scopes.pop()
                at += 1
            elif match := re.compile(r"([A-Za-z_$][\w$]*)\s*:(?!:)").match(text, at):
                self.lines.append(f"{self.label(match[1])}:;")
                at = match.end()
            else:
                end = self.end_of_statement(text, at)
                self.statement(text[at:end].strip())
                at = end + 1

    @staticmethod
    def end_of_statement(text, at):
        depth = 0
        for i in range(at, len(text)):
            depth += (text[i] in "{[(") - (text[i] in "}])")
            if text[i] == ";" and depth == 0:
                return i
            if depth < 0:
                return i - 1 if text[i - 1] == " " else i
        return len(text)

    def statement(self, text):
        if text.startswith(".reg"):
            _, kind, names = text.split(None, 2)
            if kind.lstrip(".") not in TYPES:
                raise Unknown
            for register in names.split(","):
                if ranged := re.fullmatch(r"\s*(\S+)<(\d+)>\s*", register):
                    for i in range(int(ranged[2])):
                        self.register(f"{ranged[1]}{i}", kind.lstrip("."))
                else:
                    self.register(register.strip(), kind.lstrip("."))
            return
        guard = ""
        if text.startswith("@"):
            predicate, text = text[1:].split(None, 1)
            negated = predicate.startswith("!")
            guard = f"if ({'!' if negated else ''}{self.name(predicate.lstrip('!'))}) "
        opcode, _, rest = text.partition(" ")
        parts = opcode.split(".")
        operands = split(rest) if rest.strip() else []
        operation = getattr(self, "do_" + parts[0].replace("::", "_"), None)
        if operation is None:
            raise Unknown
        try:
            operation(parts, parts[-1], operands, guard)
        except (KeyError, IndexError, ValueError) as e:
            raise Unknown from e

    # moves and arithmetic

    def do_mov(self, parts, kind, operands, guard):
        if operands[0].startswith("{"):
            low, high = self.pack_of(operands[0])
            whole = self.value(operands[1], "u64" if kind == "b64" else "u32")
            half = "32" if kind == "b64" else "16"
            self.assign(low, f"{HELPERS}low<{half}>({whole})", guard)
            self.assign(high, f"{HELPERS}high<{half}>({whole})", guard)
        elif operands[1].startswith("{"):
            part = "u32" if kind == "b64" else "u16"
            low, high = (self.value(o, part) for o in self.pack_of(operands[1]))
            self.assign(operands[0], f"{HELPERS}pack({low}, {high})", guard)
        else:
            self.assign(operands[0], self.value(operands[1], kind), guard)

    def on_halves(self, parts, kind, operands, guard):
        expression = ON_HALVES[parts[0]]
        if "NaN" in parts:
            expression = {"min": "__hmin_nan({0}, {1})", "max": "__hmax_nan({0}, {1})"}[parts[0]]
        if set(parts[1:-1]) - {"rn", "ftz", "noftz", "NaN"}:
            raise Unknown
        values = [self.value(o, "u32" if kind.endswith("x2") else "u16") for o in operands[1:]]
        names = [f"devcomm_half_{i}" for i in range(len(values))]
        parameters = ", ".join(f"auto {name}" for name in names)
        call = f"{HELPERS}on_halves<{HALVES[kind]}>([]({parameters}) {{ return {expression.format(*names)}; }}, "
        call += ", ".join(values) + ")"
        self.assign(operands[0], call, guard)

    def infix(self, parts, kind, operands, guard):
        if kind in HALVES and parts[0] in ON_HALVES:
            return self.on_halves(parts, kind, operands, guard)
        if "cc" in parts or "sat" in parts:
            raise Unknown
        a, b = (self.value(o, kind) for o in operands[1:3])
        if kind == "pred":
            self.assign(operands[0], f"{a} {INFIX[parts[0]]} {b}", guard)
        else:
            self.assign(operands[0], f"static_cast<{TYPES[kind]}>({a} {INFIX[parts[0]]} {b})", guard)
        return None

    do_add = do_sub = do_and = do_or = do_xor = do_div = do_rem = infix

    def do_mul(self, parts, kind, operands, guard):
        if parts[1] in ("hi", "wide"):
            a, b = (self.value(o, kind) for o in operands[1:3])
            self.assign(operands[0], f"{HELPERS}mul_{parts[1]}({a}, {b})", guard)
        elif parts[1] == "lo" or kind.startswith("f") or kind in HALVES:
            self.infix(parts, kind, operands, guard)
        else:
            raise Unknown

    def do_mad(self, parts, kind, operands, guard):
        if kind.startswith("f"):
            return self.do_fma(parts, kind, operands, guard)
        if "cc" in parts or "sat" in parts or parts[1] not in ("lo", "wide"):
            raise Unknown
        a, b = (self.value(o, kind) for o in operands[1:3])
        wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[kind] if parts[1] == "wide" else kind
        product = f"{HELPERS}mul_wide({a}, {b})" if parts[1] == "wide" else f"{a} * {b}"
        self.assign(operands[0], f"static_cast<{TYPES[wide]}>({product} + {self.value(operands[3], wide)})", guard)
        return None

    def do_fma(self, parts, kind, operands, guard):
        if kind in HALVES:
            return self.on_halves(parts, kind, operands, guard)
        if kind not in ("f32", "f64") or "sat" in parts:
            raise Unknown
        a, b, c = (self.value(o, kind) for o in operands[1:4])
        return self.assign(operands[0], f"__builtin_fma{'f' if kind == 'f32' else ''}({a}, {b}, {c})", guard)

    def smaller_or_larger(self, parts, kind, operands, guard):
        if kind in HALVES:
            return self.on_halves(parts, kind, operands, guard)
        a, b = (self.value(o, kind) for o in operands[1:3])
        return self.assign(operands[0], f"{HELPERS}{parts[0]}imum({a}, {b})", guard)

    do_min = do_max = smaller_or_larger

    def of_one(self, parts, kind, operands, guard):
        if kind in HALVES and parts[0] in ON_HALVES:
            return self.on_halves(parts, kind, operands, guard)
        expression = {"not": "~{}", "neg": "-{}", "abs": f"{HELPERS}absolute({{}})", "cnot": "({} == 0)"}[parts[0]]
        if kind == "pred":
            expression = "!{}"
        value = expression.format(self.value(operands[1], kind))
        return self.assign(operands[0], f"static_cast<{TYPES[kind]}>({value})", guard)

    do_not = do_neg = do_abs = do_cnot = of_one

    def by_helper(self, parts, kind, operands, guard):
        values = ", ".join(self.value(o, kind) for o in operands[1:])
        self.assign(operands[0], f"{HELPERS}{parts[0]}({values})", guard)

    do_popc = do_clz = do_brev = by_helper

    def do_shl(self, parts, kind, operands, guard):
        shift = f"{HELPERS}{parts[0]}({self.value(operands[1], kind)}, {self.value(operands[2], 'u32')})"
        self.assign(operands[0], shift, guard)

    do_shr = do_shl

    def of_words(self, parts, kind, operands, guard):
        name = HELPERS + parts[0]
        if parts[0] == "shf":
            name = f"__funnelshift_{parts[1]}{'c' * (parts[2] == 'clamp')}"
        elif len(parts) > 2:
            raise Unknown
        elif parts[0] == "prmt":
            name = "__byte_perm"
        if kind not in ("b32", "u32"):
            raise Unknown
        values = ", ".join(self.value(o, "u32") for o in operands[1:])
        self.assign(operands[0], f"{name}({values})", guard)

    do_bfe = do_bfi = do_prmt = do_lop3 = do_shf = of_words

    def do_cvt(self, parts, kind, operands, guard):
        to = parts[-2]
        if to in HALVES or kind in HALVES:
            return self.convert_halves(parts, to, kind, operands, guard)
        value = self.value(operands[1], kind)
        rounding = {"rni": "__builtin_rint", "rzi": "__builtin_trunc", "rmi": "__builtin_floor", "rpi": "__builtin_ceil"}
        chosen = [rounding[p] for p in parts[1:-2] if p in rounding]
        if set(parts[1:-2]) - set(rounding) - {"rn", "ftz"}:
            raise Unknown
        if kind[0] == "f" and to[0] != "f":
            if not chosen:
                raise Unknown
            self.assign(operands[0], f"{HELPERS}saturated<{TYPES[to]}>({chosen[0]}({value}))", guard)
        else:
            if chosen:
                value = f"{chosen[0]}({value})"
            self.assign(operands[0], f"static_cast<{TYPES[to]}>({value})", guard)
        return None

    def convert_halves(self, parts, to, kind, operands, guard):
        if set(parts[1:-2]) - {"rn", "ftz"}:
            raise Unknown
        if to == "f32" and not kind.endswith("x2"):
            call = f"float_of_half<{HALVES[kind]}>({self.value(operands[1], 'u16')})"
        elif kind == "f32":
            call = f"{'halves_of_floats' if to.endswith('x2') else 'half_of_float'}<{HALVES[to]}>("
            call += ", ".join(self.value(o, "f32") for o in operands[1:]) + ")"
        else:
            raise Unknown
        self.assign(operands[0], HELPERS + call, guard)

    def do_cvta(self, parts, kind, operands, guard):
        space = next((SPACES[p] for p in parts[1:] if p in SPACES), None)
        if space is None:
            raise Unknown
        value = self.value(operands[1], "u64")
        if space == "shared":
            value = f"{HELPERS}{'to_shared' if 'to' in parts else 'from_shared'}({value})"
        self.assign(operands[0], value, guard)

    def do_isspacep(self, parts, kind, operands, guard):
        self.assign(operands[0], f"{HELPERS}is_{SPACES[kind]}({self.value(operands[1], 'u64')})", guard)

    def do_setp(self, parts, kind, operands, guard):
        a, b = (self.value(o, kind) for o in operands[1:3])
        if parts[1] in UNORDERED:
            result = f"({a} != {a} || {b} != {b} || {a} {UNORDERED[parts[1]]} {b})"
        elif parts[1] == "ne" and kind.startswith("f"):
            result = f"({a} == {a} && {b} == {b} && {a} != {b})"
        else:
            result = f"({a} {COMPARISONS[parts[1]]} {b})"
        boolean = [p for p in parts[2:-1] if p != "ftz"]
        if boolean:
            combined = operands[3]
            other = f"{'!' if combined.startswith('!') else ''}{self.name(combined.lstrip('!'))}"
            result = f"({result} {dict(zip(('and', 'or', 'xor'), ('&&', '||', '!=')))[boolean[0]]} {other})"
        target, _, opposite = operands[0].partition("|")
        self.assign(target, result, guard)
        if opposite:
            self.assign(opposite, f"!{self.name(target)}", guard)

    def do_selp(self, parts, kind, operands, guard):
        a, b = (self.value(o, kind) for o in operands[1:3])
        self.assign(operands[0], f"{self.name(operands[3])} ? {a} : {b}", guard)

    def approximated(self, parts, kind, operands, guard):
        if kind not in ("f32", "f64"):
            raise Unknown
        value = self.value(operands[1], kind)
        one = "1.0f" if kind == "f32" else "1.0"
        suffix = "f" if kind == "f32" else ""
        expression = {"rcp": f"{one} / {value}", "sqrt": f"__builtin_sqrt{suffix}({value})",
                      "rsqrt": f"{one} / __builtin_sqrt{suffix}({value})", "ex2": f"__builtin_exp2{suffix}({value})",
                      "lg2": f"__builtin_log2{suffix}({value})", "tanh": f"__builtin_tanh{suffix}({value})",
                      "sin": f"__builtin_sin{suffix}({value})", "cos": f"__builtin_cos{suffix}({value})"}[parts[0]]  # fmt: skip
        self.assign(operands[0], expression, guard)

    do_rcp = do_sqrt = do_rsqrt = do_ex2 = do_lg2 = do_tanh = do_sin = do_cos = approximated

    # control

    def do_bra(self, parts, kind, operands, guard):
        self.lines.append(f"{guard}goto {self.label(operands[0])};")

    def do_trap(self, parts, kind, operands, guard):
        self.lines.append(f"{guard}__trap();")

    def do_nanosleep(self, parts, kind, operands, guard):
        self.lines.append(f"{guard}__nanosleep({self.value(operands[0], 'u32')});")

    def do_griddepcontrol(self, parts, kind, operands, guard):
        self.call(guard, {"wait": "wait_for_prior_launch", "launch_dependents": "allow_dependent_launch"}[parts[1]])

    def nothing(self, parts, kind, operands, guard):
        """A hint."""

    do_prefetch = do_prefetchu = do_discard = do_applypriority = nothing

    def do_createpolicy(self, parts, kind, operands, guard):
        self.assign(operands[0], "0ull", guard)

    # barriers and warps

    def do_bar(self, parts, kind, operands, guard):
        if "cluster" in parts:
            name = {"arrive": "arrive_at_cluster", "wait": "wait_for_cluster"}[parts[2]]
            return self.call(guard, name, str("relaxed" not in parts).lower())
        rest = [p for p in parts[1:] if p not in ("cta", "aligned")]
        if rest[0] == "warp":
            self.lines.append(f"{guard}__syncwarp({self.value(operands[0], 'u32')});")
        elif rest == ["sync"]:
            self.call(guard, "block_barrier", *(self.value(o, "u32") for o in operands))
        elif rest[0] == "red" and len(operands) in (3, 4):
            predicate = operands[-1]
            vote = f"{'!' if predicate.startswith('!') else ''}{self.name(predicate.lstrip('!'))}"
            threads = self.value(operands[2], "u32") if len(operands) == 4 else "0u"
            self.assign(operands[0], f"{HELPERS}barrier_{rest[1]}({self.value(operands[1], 'u32')}, {threads}, {vote})", guard)
        else:
            raise Unknown
        return None

    do_barrier = do_bar

    # clusters

    def do_mapa(self, parts, kind, operands, guard):
        form, register = ("mapped_address", "u32") if "shared::cluster" in parts else ("mapped_generic", kind)
        place, rank = self.value(operands[1], register), self.value(operands[2], "u32")
        self.assign(operands[0], f"{HELPERS}{form}({place}, {rank})", guard)

    def do_getctarank(self, parts, kind, operands, guard):
        form, register = ("rank_of_address", "u32") if "shared::cluster" in parts else ("rank_of_generic", kind)
        self.assign(operands[0], f"{HELPERS}{form}({self.value(operands[1], register)})", guard)

    def do_vote(self, parts, kind, operands, guard):
        if parts[1] != "sync":
            raise Unknown
        mode = next(p for p in parts[1:] if p in ("ballot", "all", "any"))
        predicate = operands[1]
        vote = f"{'!' if predicate.startswith('!') else ''}{self.name(predicate.lstrip('!'))}"
        self.assign(operands[0], f"__{mode}_sync({self.value(operands[2], 'u32')}, {vote})", guard)

    def do_activemask(self, parts, kind, operands, guard):
        self.assign(operands[0], "__activemask()", guard)

    def do_match(self, parts, kind, operands, guard):
        if parts[1:3] != ["any", "sync"]:
            raise Unknown
        self.assign(operands[0], f"__match_any_sync({self.value(operands[2], 'u32')}, {self.value(operands[1], kind)})", guard)

    def do_elect(self, parts, kind, operands, guard):
        lane, _, predicate = operands[0].partition("|")
        mask = self.value(operands[1], "u32")
        self.lines.append(f"{guard}__syncwarp({mask});")
        self.assign(lane, f"{HELPERS}first_lane({mask})", guard)
        self.assign(predicate, f"{HELPERS}first_lane({mask}) == {HELPERS}special_laneid()", guard)

    def do_shfl(self, parts, kind, operands, guard):
        if parts[1] != "sync" or kind != "b32":
            raise Unknown
        to, _, predicate = operands[0].partition("|")
        values = ", ".join(self.value(o, "u32") for o in operands[1:5])
        if not predicate:
            predicate = f"%ignored{self.registers}"
            self.register(predicate, "pred")
        self.assign(to, f"{HELPERS}shfl_{parts[2]}({self.name(predicate)}, {values})", guard)

    # memory

    def do_fence(self, parts, kind, operands, guard):
        if parts[1:] == ["proxy", "alias"]:
            return self.call(guard, "fence_alias")
        if parts[1:3] == ["proxy", "async"] and set(parts[3:]) <= set(SPACES):
            return self.call(guard, "fence_async")
        if parts[1:] == ["mbarrier_init", "release", "cluster"]:
            return None  # mbarriers are known to copies from the start
        order = ORDERS[parts[1]] if parts[1] not in SCOPES else "acq_rel"
        if len(parts) > 3 or order == "relaxed":
            raise Unknown
        return self.call(guard, f"fence<{HELPERS}{order}, {HELPERS}atomic_scope::{SCOPES[parts[-1]]}>")

    def do_membar(self, parts, kind, operands, guard):
        self.call(guard, f"fence<{HELPERS}seq_cst, {HELPERS}atomic_scope::{SCOPES[parts[1]]}>")

    def do_ld(self, parts, kind, operands, guard):
        access = Access(parts)
        targets = self.pack_of(operands[0])
        if access.others or len(targets) != access.count:
            raise Unknown
        pointer = self.address(operands[1], access.space)
        for hint in access.hints:
            self.call(guard, "note_load", hint, pointer, f"{access.count} * sizeof({access.type})")
        if access.count == 1 and not access.order:
            self.assign(targets[0], f"{HELPERS}weak<{access.type}>({pointer})", guard)
            return
        vector = f"devcomm_vector_{len(self.declarations)}"
        self.declarations.append(f"{HELPERS}vector<{access.type}, {access.count}> {vector}{{}};")
        strong = f", {access.arguments()}" if access.order else ""
        load = f"{'load' if access.order else 'load_vector'}<{access.type}, {access.count}{strong}>({pointer})"
        self.lines.append(f"{guard}{vector} = {HELPERS}{load};")
        for i, each in enumerate(targets):
            self.assign(each, f"{vector}.at[{i}]", guard)

    def do_st(self, parts, kind, operands, guard):
        barrier = operands[2] if parts[1] == "async" else None
        access = Access([p for p in parts if not barrier or p not in ("async", "mbarrier::complete_tx::bytes")])
        values = [self.value(v, kind) for v in self.pack_of(operands[1])]
        if access.others or len(values) != access.count:
            raise Unknown
        pointer = self.address(operands[0], access.space)
        if access.count == 1 and not access.order and not barrier:
            self.lines.append(f"{guard}{HELPERS}weak<{access.type}>({pointer}) = {values[0]};")
            return
        vector = f"{HELPERS}vector<{access.type}, {access.count}>{{{{{', '.join(values)}}}}}"
        if barrier:
            self.call(guard, "store_async", pointer, vector, self.address(barrier, "cluster"))
        else:
            self.call(guard, f"store<{access.arguments()}>" if access.order else "store_vector", pointer, vector)

    def do_atom(self, parts, kind, operands, guard):
        access = Access([p for p in parts if p not in ("noftz", "ftz")])
        if len(access.others) != 1 or access.others[0] not in ATOMICS:
            raise Unknown
        operation = access.others[0]
        returns = parts[0] == "atom"
        targets = self.pack_of(operands[0]) if returns else [None] * access.count
        place = operands[1] if returns else operands[0]
        given = operands[2 if returns else 1 :]
        for i, target in enumerate(targets):
            values = [self.value(self.pack_of(v)[i], kind) for v in given[: 2 if operation == "cas" else 1]]
            call = (f"{HELPERS}atomic_{operation}<{access.type}, {access.arguments()}>"
                    f"({', '.join([self.address(place, access.space), str(i), *values])})")  # fmt: skip
            if returns:
                self.assign(target, call, guard)
            else:
                self.lines.append(f"{guard}{call};")

    do_red = do_atom

    # matrices

    def do_mma(self, parts, kind, operands, guard):
        shape = next(re.fullmatch(r"m16n8k(\d+)", p) for p in parts if p.startswith("m16n8k"))
        to, of_a, of_b, of_c = parts[-4:]
        if {"sp", "satfinite", "block_scale"} & set(parts) or to != of_c or to not in ("f32", "s32", "f16"):
            raise Unknown
        a, b, c = (self.pack_of(o) for o in operands[1:4])
        sums = "int" if to == "s32" else "float"
        own = f"devcomm_fragments_{len(self.declarations)}"
        self.declarations.append(f"{HELPERS}mma_fragments<{sums}, {len(a)}, {len(b)}> {own}{{}};")
        for name, registers in (("a", a), ("b", b)):
            self.lines += [f"{own}.{name}[{i}] = {self.value(r, 'u32')};" for i, r in enumerate(registers)]
        if to == "f16":  # two sums in a register
            for i, r in enumerate(c):
                for j in (0, 1):
                    self.lines.append(f"{own}.c[{2 * i + j}] = static_cast<float>({HELPERS}half_at<__half>({self.value(r, 'u32')}, {16 * j}));")
        else:
            self.lines += [f"{own}.c[{i}] = {self.value(r, to)};" for i, r in enumerate(c)]
        self.lines.append(f"{guard}{HELPERS}mma<{OF_PRODUCTS[of_a]}, {OF_PRODUCTS[of_b]}, {shape[1]}>({own});")
        for i, each in enumerate(self.pack_of(operands[0])):
            if to == "f16":
                self.assign(each, f"{HELPERS}halves_of_floats<__half>({own}.c[{2 * i + 1}], {own}.c[{2 * i}])", guard)
            else:
                self.assign(each, f"{own}.c[{i}]", guard)

    def do_ldmatrix(self, parts, kind, operands, guard):
        targets = self.pack_of(operands[0])
        if "m8n8" not in parts or kind != "b16":
            raise Unknown
        vector = f"devcomm_vector_{len(self.declarations)}"
        self.declarations.append(f"{HELPERS}vector<unsigned, {len(targets)}> {vector}{{}};")
        call = f"load_matrices<{len(targets)}, {str('trans' in parts).lower()}>({self.address(operands[1], 'shared')})"
        self.lines.append(f"{guard}{vector} = {HELPERS}{call};")
        for i, each in enumerate(targets):
            self.assign(each, f"{vector}.at[{i}]", guard)

    def do_stmatrix(self, parts, kind, operands, guard):
        if "m8n8" not in parts or kind != "b16":
            raise Unknown
        values = [self.value(v, "u32") for v in self.pack_of(operands[1])]
        vector = f"{HELPERS}vector<unsigned, {len(values)}>{{{{{', '.join(values)}}}}}"
        self.call(guard, f"store_matrices<{str('trans' in parts).lower()}>", self.address(operands[0], "shared"), vector)

    # asynchronous copies

    def do_cp(self, parts, kind, operands, guard):
        if parts[1:3] == ["async", "bulk"] or parts[1:4] == ["reduce", "async", "bulk"]:
            return self.bulk_copy(parts, operands, guard)
        if parts[1] != "async":
            raise Unknown
        if parts[2] == "commit_group":
            return self.call(guard, "commit_elements")
        if parts[2] == "wait_group":
            return self.call(guard, "await_elements", self.value(operands[0], "u32"))
        if parts[2] == "wait_all":
            return self.call(guard, "await_all_elements")
        if parts[2:4] == ["mbarrier", "arrive"]:
            at = self.address(operands[0], "shared" if any(p in SPACES for p in parts) else "generic")
            return self.call(guard, "mbarrier_arrive_after_elements", at, str("noinc" not in parts).lower())
        if parts[2] not in ("ca", "cg"):
            raise Unknown
        if "L2::cache_hint" in parts:
            operands = operands[:-1]
        size = used = self.value(operands[2], "u32")
        if len(operands) > 3 and operands[3] in self.predicates:  # leaves the source out
            used = f"{self.name(operands[3])} ? 0u : {size}"
        elif len(operands) > 3:
            used = self.value(operands[3], "u32")
        to, source = self.address(operands[0], "shared"), self.address(operands[1], "global")
        return self.call(guard, "copy_element", to, source, size, used)

    def bulk_copy(self, parts, operands, guard):
        if "commit_group" in parts:
            return self.call(guard, "commit_bulk")
        if "wait_group" in parts:
            return self.call(guard, "await_bulk", self.value(operands[0], "u32"), str("read" in parts).lower())
        if "prefetch" in parts:
            return None
        if "cp_mask" in parts or "ignore_oob" in parts:
            raise Unknown
        if "L2::cache_hint" in parts:
            operands = operands[:-1]
        if "tensor" in parts:
            return self.tensor_copy(parts, operands, guard)
        to_space, from_space = (SPACES[p] for p in parts if p in SPACES)
        to, source = self.address(operands[0], to_space), self.address(operands[1], from_space)
        size = self.value(operands[2], "u32")
        name = '"' + ".".join(parts[: parts.index("bulk") + 1]) + '"'
        reduction = ""
        if parts[1] == "reduce":
            (operation,) = (p for p in parts[4:-1] if p in ATOMICS)
            if operation in ("exch", "cas"):
                raise Unknown
            reduction = f", {HELPERS}reduce_bulk<{HALVES.get(parts[-1]) or TYPES[parts[-1]]}, {HELPERS}reduction_{operation}>"
        if "bulk_group" in parts:
            self.lines.append(f"{guard}{HELPERS}copy_bulk({name}, {to}, {source}, {size}, nullptr{reduction});")
        elif "multicast::cluster" in parts:
            where = [self.value(o.strip("[] "), "u32") for o in (operands[0], operands[3])]
            self.call(guard, "copy_bulk_to_many", name, where[0], source, size, where[1], self.value(operands[4], "u32"))
        elif "mbarrier::complete_tx::bytes" in parts:
            barrier = self.address(operands[3], "cluster")
            self.lines.append(f"{guard}{HELPERS}copy_bulk({name}, {to}, {source}, {size}, {barrier}{reduction});")
        else:
            raise Unknown
        return None

    def tensor_copy(self, parts, operands, guard):
        if {"im2col", "tile::gather4", "tile::scatter4", "im2col::w", "im2col::w::128"} & set(parts):
            raise Unknown
        loads = "bulk_group" not in parts
        shared, box = operands[:2] if loads else operands[1::-1]
        map_at, coordinates = split(box.strip()[1:-1])
        given = self.pack_of(coordinates)
        name = '"' + ".".join(parts[: parts.index("tensor") + 1]) + '"'
        where = f"devcomm_coordinates_{len(self.declarations)}"
        self.declarations.append(f"int {where}[{len(given)}]{{}};")
        self.lines += [f"{where}[{i}] = {self.value(c, 's32')};" for i, c in enumerate(given)]
        tensor = self.value(map_at, "u64")
        if parts[1] == "reduce":
            (operation,) = (p for p in parts if p in ATOMICS)
            self.call(guard, f"reduce_tensor<{HELPERS}reduction_{operation}>", name, tensor, where,
                      self.address(shared, "shared"))  # fmt: skip
        elif "multicast::cluster" in parts:
            places = [self.value(o.strip("[] "), "u32") for o in (shared, operands[2])]
            self.call(guard, "copy_tensor_to_many", name, tensor, where, *places, self.value(operands[3], "u32"))
        else:
            barrier = self.address(operands[2], "cluster") if loads else "nullptr"
            self.call(guard, "copy_tensor", name, tensor, where, self.address(shared, "cluster"), str(loads).lower(), barrier)

    # mbarriers

    def do_mbarrier(self, parts, kind, operands, guard):
        if parts[1] == "pending_count":
            return self.assign(operands[0], f"{HELPERS}mbarrier_pending({self.value(operands[1], 'u64')})", guard)
        spaces = [SPACES[p] for p in parts if p in SPACES]
        waits = parts[1] in ("test_wait", "try_wait")
        returns = waits or parts[1] in ("arrive", "arrive_drop") and not operands[0].startswith("[")
        at = self.address(operands[1 if returns else 0], spaces[0] if spaces else "generic")
        given = operands[2 if returns else 1 :]
        if parts[1] == "init":
            self.call(guard, "mbarrier_init", at, self.value(given[0], "u32"))
        elif parts[1] == "inval":
            self.call(guard, "mbarrier_inval", at)
        elif parts[1] in ("expect_tx", "complete_tx"):
            self.call(guard, "mbarrier_expect", at, f"{'-' * (parts[1] == 'complete_tx')}static_cast<long long>({self.value(given[0], 'u32')})")
        elif parts[1] in ("arrive", "arrive_drop"):
            number = self.value(given[0], "u32") if given else "1u"
            count, size = ("1u", number) if "expect_tx" in parts else (number, "0")
            call = (f"{HELPERS}mbarrier_arrive({at}, {count}, {size}, {str(parts[1] == 'arrive_drop').lower()}, "
                    f"{str('relaxed' not in parts).lower()})")  # fmt: skip
            if returns:
                self.assign(operands[0], call, guard)
            else:
                self.lines.append(f"{guard}static_cast<void>({call});")
        elif waits:
            form, phase = ("test_parity", "u32") if "parity" in parts else ("test", "u64")
            acquires = str("relaxed" not in parts).lower()
            self.assign(operands[0], f"{HELPERS}mbarrier_{form}({at}, {self.value(given[0], phase)}, {acquires})", guard)
        else:
            raise Unknown
        return None

    def do_multimem(self, parts, kind, operands, guard):
        access = Access([p for p in parts[1:] if not p.startswith("acc::")])
        call = parts[1]
        floats = {"f16": ("f16", 2), "f16x2": ("f16", 4), "bf16": ("bf16", 2), "bf16x2": ("bf16", 4), "f32": ("float", 4),
                  "f64": ("double", 8), "e4m3x4": ("e4m3", 4), "e5m2x4": ("e5m2", 4)}  # fmt: skip
        element, size = floats.get(kind) or (TYPES[kind], int(kind[1:]) // 8)
        size *= access.count
        if size < 4:
            raise Unknown
        scope = f"{HELPERS}atomic_scope::{access.scope or 'system'}"
        order = HELPERS + (access.order or ("relaxed" if call == "red" else "weak_access"))
        registers = "u64" if size // access.count == 8 else "u32"
        if call == "st":
            values = ", ".join(self.value(v, registers) for v in self.pack_of(operands[1]))
            self.call(guard, f"multimem_store<{size}, {order}, {scope}>", self.address(operands[0], "global"), values)
            return
        (operation,) = access.others
        form = f"<{HELPERS}multimem_operation::{'bit_' * (operation in ('and', 'or', 'xor'))}{operation}, "
        form += f"{HELPERS}multimem_{element}, " if element in ("f16", "bf16", "e4m3", "e5m2") else f"{element}, "
        form += f"{size}, {order}, {scope}>"
        if call == "red":
            values = ", ".join(self.value(v, registers) for v in self.pack_of(operands[1]))
            self.call(guard, f"multimem_reduce{form}", self.address(operands[0], "global"), values)
        elif call == "ld_reduce":
            vector = f"devcomm_vector_{len(self.declarations)}"
            self.declarations.append(f"{HELPERS}vector<{TYPES[registers]}, {access.count}> {vector}{{}};")
            self.lines.append(f"{guard}{vector} = {HELPERS}multimem_load_reduce{form}({self.address(operands[1], 'global')});")
            for i, each in enumerate(self.pack_of(operands[0])):
                self.assign(each, f"{vector}.at[{i}]", guard)
        else:
            raise Unknown


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def shown(template):
    return re.sub(r"\s+", " ", re.sub(MODIFIER + "#?", "", template)).strip().replace("\\", "\\\\").replace('"', '\\"')


# What to do about instructions that the simulator does not have.
WITHOUT = {
    r"wgmma|mma|tcgen05": "products of this kind; take mma.sync of 16 x 8 results, or plain instructions where DEVCOMM_SIMULATOR is defined",
    r"tex|tld4|sust|suld": "textures; load from global memory where DEVCOMM_SIMULATOR is defined",
}


def refusal(template, declarations):
    """What takes the place of a statement with an instruction that is not known. With `declarations` it stops the build."""
    text = "the simulator has no such PTX: " + shown(template).rstrip("; ")
    for instructions, hint in WITHOUT.items():
        if re.search(rf"(?:^|[;\\s{{}}])(?:{instructions})\b", without_comments(template)):
            text += f"; it has no {hint}"
            break
    if declarations is None:
        return f'do {{ ::devcomm::simulator::detail::fail_misuse("{text}"); }} while (false)'
    name = f"devcomm_no_ptx_{zlib.crc32(text.encode())}"
    declarations.add(f'void {name}() __attribute__((error("{text}")));')
    return f"::{name}()"


def cpp_of(template, outputs, inputs, declarations):
    """C++ for an asm statement; operands have a constraint and an expression."""
    begin = []
    end = []
    names = []
    try:
        for constraint, expression in outputs + inputs:
            name = f"devcomm_operand_{len(names)}"
            kind = constraint.strip("=+&")
            if kind.isdigit():  # the register of an output
                kind = outputs[int(kind)][0].strip("=+&")
            names.append(name)
            if constraint[0] in "=+":
                start = f"{HELPERS}as<{TYPES[CONSTRAINTS[kind]]}>({expression})" if "+" in constraint else ""
                begin.append(f"{TYPES[CONSTRAINTS[kind]]} {name}{{{start}}};")
                end.append(f"{HELPERS}set({expression}, {name});")
            elif kind == "n":
                begin.append(f"[[maybe_unused]] const auto {name} = {expression};")
            else:
                begin.append(
                    f"[[maybe_unused]] const {TYPES[CONSTRAINTS[kind]]} {name} = "
                    f"{HELPERS}as<{TYPES[CONSTRAINTS[kind]]}>({expression});"
                )
        code = Code(names)
        code.block(re.sub(r"\s+", " ", without_comments(template)).strip())
    except (Unknown, KeyError, IndexError):
        return refusal(template, declarations)
    labels = [f"__label__ {', '.join(code.labels.values())};"] if code.labels else []
    return "do { " + " ".join(labels + begin + code.declarations + code.lines + end) + " } while (false)"


def unquoted(tokens):
    """The text of adjacent string literals; what the preprocessor makes a string stays a placeholder."""
    text = ""
    before = ""
    for t in tokens:
        if t.kind == "string":
            text += t.text[1:-1].replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"').replace("\\\n", "")
        elif t.kind == "raw":
            text += re.fullmatch(r'[^"]*"[^(]*\((.*)\)[^"]*"', t.text, re.DOTALL)[1]
        elif t.kind == "name":
            text += MODIFIER + ("#" if before == "#" else "") + t.text
        before = t.text if t.text.strip(" \t\\\n") else before
    return text


def operands_of(section):
    found = []
    k = 0
    while k < len(section):
        if section[k].kind == "string":
            start = after(section, k)
            stop = matching(section, start)
            found.append((section[k].text[1:-1], one_line(section[start + 1 : stop])))
            k = stop
        k += 1
    return found


def is_of_host(template):
    text = template.strip()
    return not text or text.startswith(".") or (re.match(r"[\w.]*", text)[0] in OF_HOSTS)


WORDS = ("asm", "__asm__", "__asm")


def has_asm(text):
    return re.search(rf"\b({'|'.join(WORDS)})\b", text) is not None


def statement_at(tokens, i, declarations, leaves_macros=False):
    """C++ for the asm statement at `i`, and where its last token is; None where it stays."""
    opening = after(tokens, i)
    while opening < len(tokens) and tokens[opening].kind == "name":  # volatile
        opening = after(tokens, opening)
    if opening >= len(tokens) or tokens[opening].text != "(":
        return None, i
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
    template = unquoted(sections[0])
    if declarations is not None and is_of_host(template) or (leaves_macros and MODIFIER in template):
        return None, close
    outputs, inputs = (operands_of(section) for section in (sections[1:3] + [[], []])[:2])
    lines = "".join("\n" if t.kind == "newline" else "\\\n" * t.text.count("\n") for t in tokens[i:close])
    return cpp_of(template, outputs, inputs, declarations) + lines, close


def translate_ptx(text, declarations=None, leaves_macros=False):
    """The text with its `asm` statements as C++, or None where it has none; lines keep their numbers. What is not known
    fails when it is run; or, where `declarations` collects what the text needs before it, when it is compiled."""
    tokens = tokens_of(text)
    left = in_directives(tokens) if leaves_macros else set()
    result = []
    i = 0
    changed = False
    while i < len(tokens):
        last = i
        if tokens[i].kind == "name" and tokens[i].text in WORDS and i not in left:
            statement, last = statement_at(tokens, i, declarations, leaves_macros)
            changed = changed or statement is not None
            result += [statement] if statement is not None else [each.text for each in tokens[i : last + 1]]
        else:
            result.append(tokens[i].text)
        i = last + 1
    return "".join(result) if changed else None


def translate_preprocessed(text):
    """Of a preprocessed file, what macros have left of inline PTX, outside of system headers."""
    declarations = set()
    regions = [(m.end(), "3" in m[1].split()) for m in re.finditer(r'^# \d+ "[^"\n]*"([ \d]*)$', text, re.MULTILINE)]
    result = []
    at = 0
    region = 0
    for match in re.finditer(rf"\b({'|'.join(WORDS)})\b(?=\s*(?:volatile|__volatile__|\())", text):
        while region + 1 < len(regions) and regions[region + 1][0] <= match.start():
            region += 1
        if match.start() < at or (regions and regions[region][1]):
            continue
        tokens = tokens_of(text[match.start() : match.start() + 65536])
        statement, last = statement_at(tokens, 0, declarations)
        if statement is not None:
            result += [text[at : match.start()], statement]
            at = match.start() + sum(len(t.text) for t in tokens[: last + 1])
    return "\n".join(sorted(declarations)) + "\n" + "".join(result) + text[at:]
