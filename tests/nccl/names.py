#!/usr/bin/env python3
"""Counts NCCL's names: those that the headers have, and those that a test uses; fails where a function, a class or an
action has none.

    names.py SOURCE_DIR
"""
import pathlib
import re
import sys

NAME = r"\b(?:nccl[A-Z]\w*|NCCL_[A-Z]\w*)\b"
# What is behind a handle.
BEHIND_HANDLES = {"ncclComm", "ncclWindow_vidmem", "ncclWindowTable", "ncclConfig_v22800", "ncclGinOptFlags"}


def names(paths, pattern=NAME):
    text = "\n".join(re.sub(r"//.*|/\*.*?\*/", "", path.read_text()) for path in paths)
    return set(re.findall(pattern, text))


source = pathlib.Path(sys.argv[1])
headers = sorted((source / "compat/nccl/include").rglob("*.h"))
tests = [*(source / "tests/nccl").rglob("*.*"), source / "tests/mistakes/nccl_kernels.cuh"]
tests = [path for path in tests if path.suffix in (".cu", ".cuh", ".hpp", ".h", ".c")]

declared = names(headers)
used = names(tests)
functions = {name for name in names(headers, NAME + r"(?=\()") if name.startswith("nccl")}
classes = names(headers, r"\bstruct (nccl[A-Z]\w*)") - BEHIND_HANDLES
plain = {re.sub(r"_t$", "", name) for name in used}
untested = sorted(name for name in functions | classes if name not in used and name not in plain)
print(f"{len(declared)} names in the headers, {len(functions)} of functions and constructors, {len(classes)} of classes; "
      f"{len(declared & used)} names are used by tests", flush=True)
if untested:
    sys.exit("no test uses " + ", ".join(untested))
