#!/usr/bin/env python3
"""Rewrites, token by token, what is CUDA and not C++, for the simulator.

devcomm_translate.py launches IN.cu OUT.cpp FOLDERS
    kernel<<<grid, block, shared, stream>>>(arguments) becomes a call of the simulator's runtime. `return;` in a
    __global__ function also says its line to the simulator, which tells by it that lanes of a warp reach a barrier in a
    destructor by different ways, and variables that are __device__ or __constant__ get a place of which each simulated
    GPU has its own. Inline PTX becomes C++ (devcomm_ptx.py); an instruction that is not known is an error where it is
    compiled. __CUDA_ARCH__ and __CUDACC__ are those of the simulated GPU. Lines keep their numbers. A file without any of
    these is included by OUT.cpp as it is.
    OUT.cpp.options gets compiler options: where the file, or one that it includes by "name", has volatile or loads
    like it, the runtime is called in each basic block, so that loops over such memory are interrupted. Such files are
    looked for beside the one that includes them and in FOLDERS, separated by semicolons; OUT.cpp.d lists them for make.

devcomm_translate.py ptx FOLDER OUT
    The headers below FOLDER/cub that have inline PTX are written to OUT/cub with C++ in its place. An instruction that is
    not known fails the launch that reaches it, with its text. What C++ compilers refuse or their sanitizers report, and
    nvcc does not, is mended.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True  # the folder is that of the sources, or of an installation
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from devcomm_ptx import has_asm, translate_ptx  # noqa: E402
from devcomm_tokens import (  # noqa: E402
    BLANK, CLOSING, OPENING, Problem, after, before, in_directives, matching, matching_back,
    one_line, template_start, tokens_of)  # fmt: skip

# --- launches ---


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


RESTRICTED = re.compile(r"(?=[^*]*\bconst\b)(?![^*]*\bvolatile\b)[^*&]*\*\s*(?:const\s+)?(?:__restrict__|__restrict)\s+(?:const\s+)?(\w+)")


def restricted_parameters(tokens, brace):
    """Names of the parameters `const T* __restrict__ p` of the kernel whose body begins at `brace`."""
    close = before(tokens, brace)
    if close < 0 or tokens[close].text != ")":
        return set()
    parameters, depth = [""], 0
    for t in tokens[matching_back(tokens, close) + 1 : close]:
        depth += t.text in ("(", "[", "{", "<")
        depth -= t.text in (")", "]", "}", ">")
        if t.text == "," and depth == 0:
            parameters.append("")
        else:
            parameters[-1] += " " if t.kind in BLANK else t.text
    return {m[1] for p in parameters if (m := RESTRICTED.fullmatch(p.strip()))}


def restricted_reads(text):
    """`p[i]` of a kernel's parameter `const T* __restrict__ p`, as the read by a cache that compilers may make of it."""
    if "__restrict" not in text:
        return text
    tokens = tokens_of(text)
    for begin, end in kernel_bodies(tokens):
        names = restricted_parameters(tokens, begin)
        for i in range(begin, end) if names else ():
            if tokens[i].text in names and tokens[after(tokens, i)].text == "[" and (
                    tokens[before(tokens, i)].text not in ("&", ".", "->", "::")):
                tokens[i].text = f"::devcomm::simulator::detail::restrict_reads({tokens[i].text})"
    return "".join(t.text for t in tokens)


def cluster_dims(tokens):
    """Where `__cluster_dims__(...)` is in front of a kernel's body, and the body's brace."""
    bodies = [first for first, _ in kernel_bodies(tokens)]
    directives = in_directives(tokens)
    for i, t in enumerate(tokens):
        if t.kind != "name" or t.text != "__cluster_dims__" or i in directives:
            continue
        last = matching(tokens, after(tokens, i))
        body = next((b for b in bodies if b > i), None)
        if body is None or any(between.text == ";" for between in tokens[last:body]):
            raise Problem(t.line, "__cluster_dims__ is read where the kernel is defined, not where it is declared")
        yield i, last, body


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
    clusters = list(cluster_dims(tokens)) if "__cluster_dims__" in text else []
    if not launches and not returns and not variables and not clusters:
        return None
    insert = {}  # text before a token
    replace = {i: "return ::devcomm::simulator::detail::return_at(__LINE__)" for i in returns}
    replace |= {i: f"{tokens[i].text} DEVCOMM_SIMULATOR_OF_EACH_GPU" for i in variables}
    for first, last, body in clusters:
        given = one_line(tokens[first + 1 : last + 1])
        replace |= {i: "\n" * tokens[i].text.count("\n") for i in range(first, last + 1)}
        replace[body] = f"{{ ::devcomm::simulator::detail::use_clusters{given};"
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


OF_NVCC = {
    "__CUDA_ARCH__": "DEVCOMM_SIMULATOR_CUDA_ARCH",
    "__CUDACC__": "DEVCOMM_SIMULATOR_CUDACC",
    "__NVCC__": "DEVCOMM_SIMULATOR_CUDACC",
    "__CUDACC_VER_MAJOR__": "DEVCOMM_SIMULATOR_CUDACC",
}


def rename_macros(text):
    """What nvcc defines, which is not to be seen by the headers of others."""
    if not any(name in text for name in OF_NVCC):
        return text
    return "".join(OF_NVCC.get(t.text, t.text) if t.kind == "name" else t.text for t in tokens_of(text))


def aligned_shared(text):
    """`__shared__ alignas(16) T name`, which is no C++, has the compiler's own word for it."""
    if "__shared__" not in text or "alignas" not in text:
        return text
    tokens = tokens_of(text)
    for i, t in enumerate(tokens):
        if t.text != "alignas" or t.kind != "name":
            continue
        previous = before(tokens, i)
        while previous >= 0 and tokens[previous].text in ("const", "volatile", "static", "extern"):
            previous = before(tokens, previous)
        if previous >= 0 and tokens[previous].text == "__shared__":
            t.text = "__attribute__((aligned"
            tokens[matching(tokens, after(tokens, i))].text = ")))"
    return "".join(t.text for t in tokens)


def pragmas_of_macros(text):
    """`#define UNROLL #pragma unroll`, which nvcc takes."""
    def as_operator(match):
        quoted_pragma = match[2].strip().replace("\\", "\\\\").replace('"', '\\"')
        return f'{match[1]}_Pragma("{quoted_pragma}")'

    return re.sub(r"^([^\S\n]*#[^\S\n]*define[^\S\n]+\w+[^\S\n]+)#[^\S\n]*pragma\b([^\n]*)$", as_operator, text, flags=re.MULTILINE)


TO_ADDRESS = r"(?:\(\s*(?:const\s+)?void(?:\s+const)?\s*\*\s*\)|(?:reinterpret_cast|static_cast)\s*<\s*(?:const\s+)?void(?:\s+const)?\s*\*\s*>)"
LAUNCH_OF_ADDRESS = re.compile(rf"\b(cudaLaunch(?:Cooperative)?Kernel\s*\(\s*|cudaLaunchKernelExC\s*\([^,;]*,\s*){TO_ADDRESS}\s*")


def launches_of_addresses(text):
    """`cudaLaunchKernel((void*)kernel, ...)`: the simulator's takes the kernel by its own type."""
    return LAUNCH_OF_ADDRESS.sub(r"\1", text) if "cudaLaunch" in text else text


def translate(text, leaves_macros=False):
    """The text of a user's file for the simulator; as it is if nothing in it needs that. With `leaves_macros` inline PTX
    that macros make stays for `translate_preprocessed`."""
    if has_asm(text):
        declarations = {"#include <devcomm/simulator/device/ptx_multimem.hpp>"} if "multimem." in text else set()
        if re.search(r"\.b?f16(x2)?\b", text):
            declarations.add("#include <devcomm/simulator/device/ptx_halves.hpp>")
        if re.search(r"\b(mma\.sync|ldmatrix|stmatrix)\b", text):
            declarations.add("#include <devcomm/simulator/device/ptx_mma.hpp>")
        text = translate_ptx(text, declarations, leaves_macros) or text
        text = "".join(f"{each}\n" for each in sorted(declarations)) + ("#line 1\n" if declarations else "") + text
    text = launches_of_addresses(restricted_reads(aligned_shared(rename_macros(pragmas_of_macros(text)))))
    return translate_launches(text) or text


UNSEEN_LOADS = {"volatile", "__ldcv", "__ldcg", "__ldlu"}


def polls_unseen(text):
    if not UNSEEN_LOADS.intersection(re.findall(r"\w+", text)):
        return False
    tokens = tokens_of(text)
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


def quoted(path):
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def launches(source, target, folders=""):
    texts = with_included(source, [pathlib.Path(f) for f in folders.split(";") if f])
    text = texts[pathlib.Path(source)]
    try:
        translated = translate(text)
    except Problem as problem:
        sys.exit(f"{source}:{problem.line}: error: {problem}")
    name = quoted(source)
    result = f'#include "{name}"\n' if translated == text else f'#line 1 "{name}"\n{translated}'
    unseen = any(polls_unseen(t) for t in texts.values())
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(f"{target}.options").write_text("-fsanitize-coverage=trace-pc\n" if unseen else "\n")
    names = [str(path).replace(" ", "\\ ") for path in texts]
    pathlib.Path(f"{target}.d").write_text(f"{str(target).replace(' ', chr(92) + ' ')}: {' '.join(names)}\n")
    pathlib.Path(target).write_text(result, encoding="utf-8", errors="surrogateescape")


# --- CCCL ---

# Of libcu++, what is written for devices alone.
OF_DEVICES = ("cuda/barrier", "cuda/pipeline", "cuda/ptx", "cuda/__barrier/*.h", "cuda/__memcpy_async/*.h",
              "cuda/__ptx/**/*.h", "cuda/std/chrono", "cuda/std/__chrono/*.h",
              "cuda/std/__thread/threading_support_pthread.h", "cub/detail/strong_*.cuh")  # fmt: skip
OF_DEVICE_COMPILERS = {
    "__CUDA_ARCH__": "DEVCOMM_SIMULATOR_CUDA_ARCH",
    "__CUDA_ARCH_FEAT_SM90_ALL": "DEVCOMM_SIMULATOR_CUDACC",
    "_CCCL_HAS_CUDA_COMPILER": "DEVCOMM_SIMULATOR_HAS_CUDA_COMPILER",
    "__cccl_lib_experimental_ctk12_cp_async_exposure": "DEVCOMM_SIMULATOR_CUDACC",
    "__cccl_ptx_isa": "860",  # 8.6
}
LAUNCHER = "thrust/system/cuda/detail/core/triple_chevron_launch.h"
HIGHEST_SM = 90


def qualify_aliases(text):
    """`using BlockExchange = BlockExchange<...>` in a class: GCC refuses a name that changes its meaning there."""
    text = re.sub(r"\busing (empty_problem_init_t)(\s*=\s*)\1(?=<)", r"using \1\2detail::reduce::\1", text)
    return re.sub(r"\busing (\w+)(\s*=\s*)\1(?=<)", r"using \1\2CUB_NS_QUALIFIER::\1", text)


def align_storage(text):
    """GPUs ask of shared memory the alignment of an access, and C++ that of the type: storage gets it."""
    return re.sub(r"^(\s*)(?=DeviceWord storage\[WORDS\];)", r"\1alignas(T) ", text, flags=re.MULTILINE)


def yield_in_kernels(text):
    """Threads that wait sleep in simulated time, and let others run."""
    runtime = "::devcomm::simulator::detail::"
    text = text.replace("while (nanosleep(", f"if ({runtime}in_kernel()) __nanosleep(static_cast<unsigned>(__ns.count()));\n  else while (nanosleep(")
    return text.replace("sched_yield();", f"if ({runtime}in_kernel()) {runtime}preempt(); else sched_yield();")


def holds_on_device(condition):
    if match := re.fullmatch(r"NV_PROVIDES_SM_(\d+)", condition):
        return int(match[1]) <= HIGHEST_SM
    return condition in ("NV_IS_DEVICE", "NV_ANY_TARGET", f"NV_IS_EXACTLY_SM_{HIGHEST_SM}")


def choose_targets(text, for_both=False):
    """NV_IF_TARGET and its like as the device's branch; `for_both`: who runs it takes a branch for devices or hosts."""
    while match := re.search(r"\bNV_(IF_TARGET|IF_ELSE_TARGET|DISPATCH_TARGET)\s*\(", text):
        tokens = tokens_of(text[match.end() - 1 :])
        last = matching(tokens, 0)
        parts = [[]]
        depth = 0
        for t in tokens[1:last]:
            depth += t.text in ("(", "{", "[")
            depth -= t.text in (")", "}", "]")
            if t.text == "," and depth == 0 and (match[1] == "DISPATCH_TARGET" or len(parts) < 3):
                parts.append([])
            else:
                parts[-1].append(t)
        parts = ["".join(t.text for t in part).strip() for part in parts]
        if match[1] != "DISPATCH_TARGET":
            parts = [*parts[:2], "NV_ANY_TARGET", *parts[2:]] if len(parts) > 2 else parts
        chosen = next((code for condition, code in zip(parts[::2], parts[1::2]) if holds_on_device(condition)), "")
        if for_both and parts[0] in ("NV_IS_DEVICE", "NV_IS_HOST"):
            branches = [parts[1], parts[3] if len(parts) > 3 else "()"]
            device, host = branches if parts[0] == "NV_IS_DEVICE" else branches[::-1]
            chosen = (f"if (::devcomm::simulator::detail::in_kernel()) {{ {device.strip()[1:-1]}; }} "
                      f"else {{ {host.strip()[1:-1]}; }}")  # fmt: skip
        if chosen.startswith("(") and matching(tokens_of(chosen), 0) == len(tokens_of(chosen)) - 1:
            chosen = chosen[1:-1]
        end = match.end() - 1 + sum(len(t.text) for t in tokens[: last + 1])
        lines = text[match.start() : end].count("\n") - chosen.count("\n")
        text = f"{text[: match.start()]}{{{chosen};}}" + "\n" * lines + text[end:]
    return text


def as_on_devices(text):
    tokens = tokens_of(choose_targets(text))
    return "".join(OF_DEVICE_COMPILERS.get(t.text, t.text) if t.kind == "name" else t.text for t in tokens)


# What device-wide algorithms need: launches, and the device's or the host's branch by who runs it.
OF_CUB = {
    "triple_chevron_launch.h": lambda text: translate_launches(text) or text,
    "grid_queue.cuh": lambda text: choose_targets(text, for_both=True),
    "util_device.cuh": lambda text: text.replace("_CCCL_HAS_CUDA_COMPILER()", "DEVCOMM_SIMULATOR_HAS_CUDA_COMPILER()"),
    # Kernels are compiled for one architecture.
    "util_arch.cuh": lambda text: text.replace("!defined(__CUDA_ARCH__)", "0").replace("__CUDA_ARCH__", "DEVCOMM_SIMULATOR_CUDA_ARCH"),
}


def ptx(folder, target):
    """Copies of those of CCCL's headers that need to be rewritten."""
    root = pathlib.Path(folder)
    headers = {h: False for h in (root / "cub").rglob("*.cuh")}
    headers |= {h: False for h in root.glob(LAUNCHER)}
    headers |= {h: True for pattern in OF_DEVICES for h in root.glob(pattern)}
    for header, of_devices in sorted(headers.items()):
        text = header.read_text(encoding="utf-8", errors="surrogateescape")
        try:
            translated = yield_in_kernels(as_on_devices(text)) if of_devices else OF_CUB.get(header.name, str)(text)
            if header.name.startswith("tcgen05"):  # thousands of instructions of later GPUs, none of which is there
                translated = ""
            translated = align_storage(qualify_aliases(translate_ptx(translated) or translated if "asm" in text else translated))
        except Problem as problem:
            sys.exit(f"{header}:{problem.line}: error: {problem}")
        if header.name.startswith("multimem") and header.parent.name == "instructions":
            translated = f"#include <devcomm/simulator/device/ptx_multimem.hpp>\n{translated}"
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
