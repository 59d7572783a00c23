#!/usr/bin/env python3
"""NCCL's names: those that the headers declare, those that tests use, those that are refused. Fails where a function, a
class or an action has no test, and where docs/nccl.md has another list; writes that list with --write.

    names.py SOURCE_DIR [--write]
"""
import pathlib
import re
import sys

NAME = r"\b(?:nccl[A-Z]\w*|NCCL_[A-Z]\w*)\b"
# What is behind a handle.
BEHIND_HANDLES = {"ncclComm", "ncclWindow_vidmem", "ncclWindowTable", "ncclConfig_v22800", "ncclGinOptFlags"}
# What stops compilation, or a call, with a sentence; and what is not declared. Test nvrtc_nccl has the sentences of
# device code.
VA_SIGNALS = [f"ncclGin_{kind}VASignal{change}" for kind in ("Strong", "Weak", "") for change in ("Inc", "Add")]
REFUSED = [
    (VA_SIGNALS, "proxies change the signals of contexts alone: take one of those"),
    (["ncclCft", "NCCL_WIN_CFT_COUNTED"], "needs hardware of its own"),
    (["ncclPutSignal", "ncclSignal", "ncclWaitSignal"], "on streams: signal from a kernel, or take `ncclSend` and `ncclRecv`"),
    (["ncclCommShrink"], "the ranks that go on make another communicator"),
]
UNDECLARED = [
    (["ncclGin_C", "ncclGinPut", "ncclGinPutValue", "ncclGinSignal", "ncclGinGet", "ncclGinFlush", "ncclGinWaitSignal"],
     "and what else is for generated code that links NCCL's device library"),
    (["ncclFlowProcessor"], "experimental; devcomm's own are [channels](channels.md)"),
    (["ncclLsaCopyTma"], "`ncclLsaCopy` does the same"),
    (["ncclTeamCft"], "as `ncclCft`"),
    (["ncclGroupSimulateEnd"], "nothing here estimates times"),
]
BEGIN, END = "<!-- by tests/nccl/names.py -->\n", "<!-- to here -->"


def names(paths, pattern=NAME):
    text = "\n".join(re.sub(r"//.*|/\*.*?\*/", "", path.read_text()) for path in paths)
    return set(re.findall(pattern, text))


source = pathlib.Path(sys.argv[1])
folder = source / "compat/nccl/include"
headers = sorted(folder.rglob("*.h"))
tests = [*(source / "tests/nccl").rglob("*.*"), source / "tests/mistakes/nccl_kernels.cuh", source / "tests/nvrtc/nccl_test.cpp"]
tests = [path for path in tests if path.suffix in (".cu", ".cuh", ".hpp", ".h", ".c", ".cpp")]

declared = names(headers)
used = names(tests)
plain = {re.sub(r"_t$", "", name) for name in used}
refused = {name for group, _ in REFUSED for name in group}


def interface(paths):
    functions = {name for name in names(paths, NAME + r"(?=\()") if name.startswith("nccl")}
    return (functions | names(paths, r"\bstruct (nccl[A-Z]\w*)")) - BEHIND_HANDLES


def listing():
    lines = ["| header | functions and classes |", "|---|---|"]
    seen = set()
    for header in headers:
        here = sorted(interface([header]) - refused - seen, key=str.lower)
        seen |= set(here)
        if here:
            lines.append(f"| `{header.relative_to(folder)}` | {', '.join(f'`{name}`' for name in here)} |")
    lines += ["", "| refused, or not there | why |", "|---|---|"]
    for group, why in REFUSED + UNDECLARED:
        lines.append(f"| {', '.join(f'`{name}`' for name in group)} | {why} |")
    return "\n".join(lines) + "\n"


whole = interface(headers)
untested = sorted(name for name in whole - refused if name not in used and name not in plain)
undeclared = [name for group, _ in UNDECLARED for name in group]
print(f"{len(declared)} names in the headers, {len(whole)} of them functions and classes; {len(declared & used)} names are "
      f"used by tests; {len(refused)} are refused with a sentence, and {len(undeclared)} are not declared", flush=True)
if untested:
    sys.exit("no test uses " + ", ".join(untested))
wrong = [name for name in undeclared if name in declared] + sorted(refused - declared)
if wrong:
    sys.exit("REFUSED or UNDECLARED is wrong of " + ", ".join(wrong))
page = source / "docs/nccl.md"
text = page.read_text()
if BEGIN not in text or END not in text:
    sys.exit(f"{page} lacks the place for the list")
before, rest = text.split(BEGIN)
made = before + BEGIN + listing() + END + rest.split(END)[1]
if "--write" in sys.argv:
    page.write_text(made)
elif made != text:
    sys.exit("docs/nccl.md has another list: python3 tests/nccl/names.py . --write")
