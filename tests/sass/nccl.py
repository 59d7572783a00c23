#!/usr/bin/env python3
"""What NCCL's names cost: registers and instructions of three kernels by them, beside the same by devcomm's own names.

    nccl.py NVCC NVDISASM SOURCE_DIR WORK_DIR
"""
import pathlib
import re
import subprocess
import sys

MOST_REGISTERS = 4  # more
# More, in percent. `ncclGin` is no object that lasts: each call makes a context, and reads where its queue is.
MOST_INSTRUCTIONS = {"all_reduce": 10, "copy_to_all": 10, "exchange": 15}

nvcc, nvdisasm, source, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4])
work.mkdir(parents=True, exist_ok=True)
command = [nvcc, "-std=c++17", "-O3", "-arch=sm_90", f"-I{source}/compat/nccl/include", f"-I{source}/include", "-Xptxas", "-v",
           "-cubin", "-o", str(work / "nccl.cubin"), str(source / "tests/sass/nccl.cu")]  # fmt: skip
made = subprocess.run(command, capture_output=True, text=True)
if made.returncode != 0:
    sys.exit(made.stderr)
registers = dict(re.findall(r"entry function '(\w+)'.*?Used (\d+) registers", made.stderr + made.stdout, re.DOTALL))
code = subprocess.run([nvdisasm, "-c", str(work / "nccl.cubin")], capture_output=True, text=True, check=True).stdout
counts = {name: len(re.findall(r"^ +/\*[0-9a-f]+\*/ .*;", body, re.MULTILINE))
          for name, body in re.findall(r"^\s*\.section\s+\.text\.(\w+),.*?\n(.*?)(?=^\s*\.section|\Z)", code, re.MULTILINE | re.DOTALL)}
failed = False
for kernel, most in MOST_INSTRUCTIONS.items():
    of_nccl, own = (counts[f"{kernel}_{by}"] for by in ("nccl", "own"))
    used_of_nccl, used = (int(registers[f"{kernel}_{by}"]) for by in ("nccl", "own"))
    good = used_of_nccl <= used + MOST_REGISTERS and of_nccl <= own * (1 + most / 100)
    failed = failed or not good
    print(f"{kernel:12} registers {used_of_nccl} beside {used}, instructions {of_nccl} beside {own} "
          f"({100 * of_nccl / own - 100:+.0f} %){'' if good else ': too many'}")
sys.exit(1 if failed else 0)
