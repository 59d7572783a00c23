#!/usr/bin/env python3
"""Every form of a multimem access, assembled for each target, and what it becomes in machine code.

    tests/sass/multimem.py NVCC NVDISASM SOURCE_DIR WORK_DIR [--table]

Types, operations and widths are those of PTX; the forms that it lacks are in tests/compile_fail. The table of machine code
in docs/multimem.md must be what comes out of the CUDA that it is of; --table prints it.
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys

TARGETS = ("sm_90", "sm_100a", "sm_103a", "sm_120a")
TABLE_OF = "13.0"  # names of instructions may change with CUDA
SMALL = ("sm_100a", "sm_103a", "sm_120a")  # targets that reduce 8-bit floats

INTEGERS = {"u32": ("unsigned", 4), "s32": ("int", 4), "u64": ("unsigned long long", 8), "s64": ("long long", 8)}
FLOATS = {"f32": "float", "f64": "double", "f16": "__half", "bf16": "__nv_bfloat16", "e4m3": "__nv_fp8_e4m3",
          "e5m2": "__nv_fp8_e5m2"}
OPERATORS = {"add": "sum", "min": "minimum", "max": "maximum", "and": "bitwise_and", "or": "bitwise_or",
             "xor": "bitwise_xor"}
SIZE = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "u32": 4, "s32": 4, "u64": 8, "s64": 8}


def forms():
    """Each (call, type, operation, bytes) that PTX has."""
    for call in ("load_reduce", "reduce"):
        for name, (_, size) in INTEGERS.items():
            for operation in OPERATORS:
                yield call, name, operation, size
        for size in (4, 8, 16):
            yield call, "f32", "add", size
        yield call, "f64", "add", 8
        for name in ("f16", "bf16") + (("e4m3", "e5m2") if call == "load_reduce" else ()):
            for operation in ("add", "min", "max"):
                for size in (4, 8, 16):
                    yield call, name, operation, size
    for name in SIZE:
        for size in (4, 8, 16):
            if size >= SIZE[name]:
                yield "store", name, "", size


def orders(call, name, operation, size):
    """The orders that a form is tried with; one form of each call and width with every scope."""
    strong = "acquire" if call == "load_reduce" else "release"
    every = [("relaxed", "system"), (strong, "system")]
    if call != "reduce":
        every.insert(0, ("plain", "system"))
    if name in ("f16", "u32", "u64") and operation in ("", "add"):
        every += [(order, scope) for order in ("relaxed", strong) for scope in ("device", "block")]
    return every


def kernels(target):
    for call, name, operation, size in forms():
        if SIZE[name] == 1 and target not in SMALL and call == "load_reduce":
            continue
        for order, scope in orders(call, name, operation, size):
            yield call, name, operation, size, order, scope


def kernel_name(k):
    return "k_" + "_".join(str(part) for part in k if part != "")


def source(target):
    lines = ["#include <cuda_bf16.h>", "#include <cuda_fp16.h>", "#include <cuda_fp8.h>",
             "#include <devcomm/multimem/ptr.cuh>", "using namespace devcomm;"]
    for k in kernels(target):
        call, name, operation, size, order, scope = k
        cpp = INTEGERS[name][0] if name in INTEGERS else FLOATS[name]
        value = f"multimem::value<{cpp}, {size}>"
        how = "" if order == "plain" else f"memory_order::{order}, scope::{scope}"
        pointer = f"multimem::ptr<{cpp}, multimem::hardware>(memory)"
        head = f'extern "C" __global__ void {kernel_name(k)}(window memory, {value}* data) {{ '
        if call == "load_reduce":
            lines.append(f"{head}data[threadIdx.x] = {pointer}.load_reduce<{OPERATORS[operation]}, {size}>({how}); }}")
        elif call == "store":
            lines.append(f"{head}{pointer}.store(data[threadIdx.x]{', ' + how if how else ''}); }}")
        else:
            lines.append(f"{head}{pointer}.reduce<{OPERATORS[operation]}>(data[threadIdx.x], {how}); }}")
    return "\n".join(lines) + "\n"


def machine_code(nvcc, nvdisasm, root, work, target):
    """Of each kernel the instructions that access global memory or order accesses."""
    file = work / f"multimem_{target}.cu"
    file.write_text(source(target))
    cubin = file.with_suffix(".cubin")
    subprocess.run([nvcc, "-std=c++17", f"-arch={target}", f"-I{root / 'include'}", "-cubin", "-o", cubin, file],
                   check=True)
    text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        if begin := re.match(r"\s*\.section\s+\.text\.(\w+)|\.text\.(\w+):", line):
            current = found.setdefault(begin[1] or begin[2], [])
        elif instruction := re.search(r"\*/\s+(?:@!?U?P\d+ )?((?:LDGMC|REDG?|STG|MEMBAR|CCTL|ATOM)[\w.]*)", line):
            current.append(instruction[1])
    return found


def type_words(call, name, operation, size):
    """What the instruction says of type and operation: alternatives."""
    count = size // SIZE[name]
    if call == "store":
        return [{4: "", 8: ".64", 16: ".128"}[size]]
    if name in INTEGERS:
        bits = str(8 * size)
        number = name[0].upper() + bits
        ordered = [number] if name[0] == "s" else [number, bits, ""] if size == 4 else [number, bits]
        words = {"min": ordered, "max": ordered, "add": [bits, "U" + bits, number, ""]}.get(operation, [bits, ""])
        return [f".{operation.upper()}" + (f".{word}" if word else "") for word in words]
    words = f".{name.upper()}" + (f"x{count}" if count > 1 else "")
    # The accumulator of sums is wider where PTX says so: F32ADD on Hopper, HPADD on Blackwell.
    sums = {"load_reduce": ["F32ADD", "HPADD"] if SIZE[name] < 4 else ["ADD"], "reduce": ["ADD"]}
    return [f".{word}{words}" for word in (sums[call] if operation == "add" else [operation.upper()])]


def problem(k, code):
    """What is wrong with the instructions of a kernel; empty if nothing."""
    call, name, operation, size, order, scope = k
    opcode = {"load_reduce": "LDGMC", "reduce": "REDG", "store": "STG"}[call]
    accesses = [i for i in code if i.startswith(opcode)]
    if len(accesses) != 1:
        return f"{len(accesses)} instructions {opcode}"
    access = accesses[0]
    strength = {"load_reduce": ".STRONG.SYS"}.get(call) or {"system": ".STRONG.SYS", "device": ".STRONG.GPU",
                                                           "block": ".STRONG.S?M"}[scope]
    ends = [f"{opcode}\\.E{re.escape(words)}(\\.FTZ)?(\\.RN)?{strength.replace('.', chr(92) + '.')}"
            for words in type_words(call, name, operation, size)]
    if not any(re.fullmatch(end, access) for end in ends):
        return f"{access} is none of {', '.join(ends)}"
    at = code.index(access)
    if scope == "block":  # a multiprocessor's own order
        return ""
    fence_before = any(i.startswith("MEMBAR") for i in code[:at])
    cache_after = any(i.startswith("CCTL.IVALL") for i in code[at:])
    if fence_before != (order == "release"):
        return "a release without a fence before it" if order == "release" else "a fence that nobody asked for"
    if cache_after != (order == "acquire"):
        return "an acquire that leaves old lines in L1" if order == "acquire" else "L1 is emptied for nothing"
    return ""


def table(codes):
    """A row for the sum of each type in its widest access, and for each width of a store."""
    widest = {}
    for call, name, operation, size in forms():
        if call == "store" and name == "u32" or operation == "add":
            widest[call, name, size if call == "store" else 0] = (call, name, operation, size, "relaxed", "system")
    rows = ["| access | `sm_90` | `sm_100a` |", "|---|---|---|"]
    for (call, name, _), k in widest.items():
        size = k[3]
        access = {"store": f"`store`, {size} bytes", "load_reduce": f"`load_reduce<sum, {size}>` of {name}",
                  "reduce": f"`reduce<sum>` of {size} bytes of {name}"}[call]
        opcode = {"load_reduce": "LDGMC", "reduce": "REDG", "store": "STG"}[call]
        cells = [next((f"`{i}`" for i in codes[target].get(kernel_name(k), []) if i.startswith(opcode)), "none")
                 for target in ("sm_90", "sm_100a")]
        rows.append(f"| {access} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


# Target, access, and what the compiler says of it.
REFUSALS = (
    ("sm_80", "multimem::ptr<float, multimem::hardware>(w).store(1.0f);", "this target has no multimem"),
    ("sm_90", "(void)multimem::ptr<__nv_fp8_e4m3, multimem::hardware>(w).load_reduce<sum>();",
     "this target's switch does not reduce 8-bit floats"),
    ("sm_90", "(void)multimem::ptr<__nv_fp8_e5m2, multimem::hardware>(w).load_reduce<maximum>();",
     "this target's switch does not reduce 8-bit floats"),
)


def refusal(nvcc, root, work, target, access):
    """What the compiler says of an access that a target lacks; empty if it takes it."""
    file = work / f"multimem_lacks_{target}.cu"
    file.write_text("#include <cuda_fp8.h>\n#include <devcomm/multimem/ptr.cuh>\nusing namespace devcomm;\n"
                    f"__global__ void refused(window w) {{ {access} }}\n")
    result = subprocess.run([nvcc, "-std=c++17", f"-arch={target}", f"-I{root / 'include'}", "-cubin", "-o",
                             file.with_suffix(".cubin"), file], capture_output=True, text=True)
    return result.stderr if result.returncode else ""


def main():
    nvcc, nvdisasm, root, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4])
    work.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        codes = dict(zip(TARGETS, pool.map(lambda t: machine_code(nvcc, nvdisasm, root, work, t), TARGETS)))
    wrong = 0
    tried = 0
    for target in TARGETS:
        for k in kernels(target):
            tried += 1
            text = problem(k, codes[target].get(kernel_name(k), []))
            if text:
                wrong += 1
                print(f"{target} {' '.join(str(part) for part in k)}: {text} in {codes[target].get(kernel_name(k))}",
                      file=sys.stderr)
    rows = table(codes)
    if "--table" in sys.argv:
        print(rows)
    version = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    if f"release {TABLE_OF}," not in version:
        print(f"docs/multimem.md is not compared: its table is of CUDA {TABLE_OF}")
    elif rows not in (root / "docs/multimem.md").read_text():
        wrong += 1
        print(f"docs/multimem.md has another table; it should be:\n{rows}", file=sys.stderr)
    # The test must be able to fail: a form read as another one is wrong.
    sample = ("load_reduce", "f16", "add", 16, "acquire", "system")
    code = codes["sm_90"][kernel_name(sample)]
    for other in (("load_reduce", "f16", "max", 16, "acquire", "system"), ("load_reduce", "bf16", "add", 16, "acquire", "system"),
                  ("load_reduce", "f16", "add", 8, "acquire", "system"), ("load_reduce", "f16", "add", 16, "relaxed", "system")):
        if not problem(other, code):
            wrong += 1
            print(f"the code of {sample} passes for {other}: nothing is checked", file=sys.stderr)
    for target, access, reason in REFUSALS:
        if reason not in refusal(nvcc, root, work, target, access):
            wrong += 1
            print(f"{access} compiles for {target}, or is refused for another reason", file=sys.stderr)
    print(f"{tried} forms on {len(TARGETS)} targets, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
