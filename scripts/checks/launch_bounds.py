#!/usr/bin/env python3
"""Kernels of programs that launch large blocks say so, so that ptxas gives them no more registers than an SM has.

    scripts/checks/launch_bounds.py [ROOT]

A kernel may take 255 registers, and an SM has 65,536: enough for 256 threads. In a file that has a constant number of
threads above that, each kernel has __launch_bounds__, which holds ptxas to the product.
"""
import pathlib
import re
import sys

FOLDERS = ("tests", "examples", "benchmarks")
FOR_SIMULATOR_ALONE = ("tests/mistakes", "tests/simulator", "tests/race", "tests/exhaustive")
MOST = 65536 // 255
THREADS = re.compile(r"\b\w*(?:threads|block)\w*(?:\s*=\s*|\{)(\d+)u?\b")
KERNEL = re.compile(r"__global__\s+(?!void\s+__launch_bounds__)(?:void\s+)?(\w+)")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    failed = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.cu*")):
            name = path.relative_to(root).as_posix()
            if name.startswith(FOR_SIMULATOR_ALONE):
                continue
            text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), path.read_text())
            large = max((int(n) for n in THREADS.findall(text) if MOST < int(n) <= 1024), default=0)
            if large == 0:
                continue
            for kernel in KERNEL.finditer(text):
                if kernel[1] == "__launch_bounds__":
                    continue
                line = text.count("\n", 0, kernel.start()) + 1
                print(f"{name}:{line}: error: {kernel[1]} needs __launch_bounds__, as the file has blocks of {large} threads")
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
