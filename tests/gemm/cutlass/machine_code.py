#!/usr/bin/env python3
"""Compiles the kernels of sm90_test.cu and of docs/fusion.md for sm_90a: none may spill registers, and in none may
ptxas put matrix instructions in a row (its warning C7510 and the like). Controls show that both would be seen.

  machine_code.py NVCC PROJECT CUTLASS_INCLUDE WORK
"""

import re
import subprocess
import sys
from pathlib import Path

SPILLS = """
__global__ void too_many(float* x) {
  float held[64];
  for (int i = 0; i < 64; ++i) held[i] = x[i * 32 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 64; ++i) x[i * 32 + threadIdx.x] = held[63 - i] * held[i];
}
"""


def faults(nvcc, options, source, work):
    """How many kernels there are, and what ptxas says against them."""
    done = subprocess.run(
        [nvcc, "-std=c++20", "-O3", "-gencode", "arch=compute_90a,code=sm_90a", "--expt-relaxed-constexpr", "-Xptxas",
         "-v", "-c", str(source), "-o", str(work / "out.o"), *options], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"nvcc cannot compile {source}:\n{done.stderr[-4000:]}")
    said = done.stdout + done.stderr
    spilled = [line.strip() for line in re.findall(r".*bytes spill stores.*", said) if " 0 bytes spill stores" not in line]
    serialized = re.findall(r".*\(?C75\d\d\)?.*", said)
    return len(re.findall(r"Compiling entry function", said)), spilled, serialized


def main():
    nvcc, project, cutlass, work = sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    work.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{project}/{folder}" for folder in ("include", "host/include", "tests")] + ["-isystem", cutlass]
    failed = []

    page = (project / "docs/fusion.md").read_text()
    of_docs = work / "docs.cu"
    of_docs.write_text("#include <devcomm/host/communicator.hpp>\n#include <devcomm/launch.hpp>\n" + next(
        text for text in re.findall(r"```cpp\n(.*?)```", page, re.S) if "sm90_product.cuh" in text))
    for source in (project / "tests/gemm/cutlass/sm90_test.cu", of_docs):
        kernels, spilled, serialized = faults(nvcc, ["-DNDEBUG", *includes], source, work)
        print(f"{source.name}: {kernels} kernels, {len(spilled)} spill, {len(serialized)} warnings of serialized "
              "matrix instructions")
        if kernels == 0 or spilled or serialized:
            failed += [source.name, *spilled, *serialized]

    for name, text, options, of in (("with assertions", of_docs.read_text(), ["-UNDEBUG", *includes], 2),
                                    ("with too few registers", SPILLS, ["-maxrregcount=32"], 1)):
        source = work / f"{name.replace(' ', '_')}.cu"
        source.write_text(text)
        seen = faults(nvcc, options, source, work)[of]
        print(f"control {name}: {len(seen)} {'seen' if seen else 'NOT seen'}")
        if not seen:
            failed.append(f"the control {name} showed nothing")
    if failed:
        sys.exit("\n".join(failed))


main()
