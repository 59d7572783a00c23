#!/usr/bin/env python3
"""A kernel may return early from some lanes of a warp while a session lives: the session's destructor then runs at two
places of the machine code. The barrier there must be one that lanes may reach by different ways.

    tests/sass/ends.py NVCC NVDISASM SOURCE_DIR WORK_DIR

For each session and each group that covers whole warps, a kernel marks the place before such a return. No path from the
mark to EXIT may have a BAR that is aligned: ptxas emits the unaligned form as a test of convergence, BRA.CONV or BRA.DIV,
with a BAR for converged warps and one behind a WARPSYNC.COLLECTIVE for others. With an aligned barrier in sync_block_apart every block kernel must be refused.
"""

import pathlib
import re
import shutil
import subprocess
import sys

GROUPS = {
    "block": "block{}",
    "any_group": "any_group(block{})",
    "thread_block": "cooperative_groups::this_thread_block()",
    "own_block": "own_block{}",
    "warp_span": "warp_span(0, blockDim.x / 32, 1)",
    "any_span": "any_group(warp_span(0, blockDim.x / 32, 1))",
}
SESSIONS = {
    "lsa_barrier": ("lsa::barrier_session session{group, k.comm, 0u}; session.sync();", None),
    "multimem_barrier": ("multimem::barrier_session session{group, k.comm, k.multimem_barriers, 0u}; session.sync();", None),
    "gin_barrier": ("gin::barrier_session session{group, k.comm, k.comm.world(), k.contexts, gin::one_context(0), 0u};"
                    "session.sync();", None),
    "hybrid_barrier": ("collective::barrier_session session{group, k.comm, k.contexts, gin::one_context(0), 0u};"
                       "session.sync();", None),
    "ll": ("lsa::ll_session session{group, k.comm, k.ll, 0u}; session.begin_round();", None),
    "ll128": ("lsa::ll128_session session{group, k.comm, k.ll128, 0u}; session.begin_round();", ("own_block",)),
    "lamport": ("lsa::lamport_session session{group, k.comm, k.lamport, 0u}; session.begin_round();", None),
    "ll_all_to_all": ("lsa::ll_all_to_all_session session{group, k.comm, k.slots, 0u};", None),
    "signal": ("lsa::signal_session session{group, k.comm, k.signals, 0u}; session.take(1);", None),
    "fifo": ("channel::session session{group, k.comm, k.fifos, channel::from_previous(k.comm.lsa(), 0),"
             "channel::to_next(k.comm.lsa(), 0)};", None),
    "messages": ("channel::group_session session{group, k.comm, k.connections, channel::stripe_of_block()};", None),
}  # fmt: skip
SOURCE = """
#include <cooperative_groups.h>
#include <devcomm/devcomm.cuh>
using namespace devcomm;
struct own_block {  // of a user's
  __device__ static unsigned thread_rank() { return threadIdx.x; }
  __device__ static unsigned size() { return blockDim.x; }
  __device__ static void sync() { __syncthreads(); }
  __device__ static void sync_apart() { block::sync_apart(); }
};
struct kernel_arguments {
  device_comm comm;
  gin::context_handle contexts;
  multimem::barrier_handle multimem_barriers;
  lsa::ll_handle ll;
  lsa::ll128_handle ll128;
  lsa::lamport_handle lamport;
  lsa::ll_slots_handle slots;
  lsa::signal_handle signals;
  channel::fifo_handle<channel::protocol::simple> fifos;
  channel::connection_handle connections;
  float* out;
};
"""
ENTRY = """extern "C" __global__ void {name}(kernel_arguments k) {{
  const auto group = {group};
  {session}
  asm volatile("pmevent 7;");
  if (k.out[threadIdx.x] != 0) return;
  k.out[threadIdx.x] = 1;
}}
"""

BRANCHES = re.compile(r"^(BRA|BRX|JMP|RET|CALL|BREAK)\b")


def source():
    text = SOURCE
    for session, (code, without) in SESSIONS.items():
        for group, expression in GROUPS.items():
            if without and group in without:
                continue
            text += ENTRY.format(name=f"{session}__{group}", group=expression, session=code)
    return text


def functions(text):
    """The instructions of each kernel: (predicate, opcode and operands), and where labels are."""
    found = {}
    current = None
    for line in text.splitlines():
        if begin := re.match(r"\.text\.(\w+):", line):
            current = found.setdefault(begin[1], ([], {}))
        elif current and (label := re.match(r"(\.L_x_\d+):", line)):
            current[1][label[1]] = len(current[0])
        elif current and (code := re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z].*?)\s*;", line)):
            current[0].append((code[1], code[2]))
    return found


def problem(code, labels):
    """What is wrong on the paths from the mark to EXIT; empty if nothing."""
    marks = [i for i, (_, text) in enumerate(code) if text.startswith("PMTRIG")]
    if len(marks) == 0:
        return "no PMTRIG: the mark is gone"
    waiting = [(i + 1, False) for i in marks]
    seen = set()
    barriers = 0
    while waiting:
        i, guarded = waiting.pop()
        if (i, guarded) in seen or i >= len(code):
            continue
        seen.add((i, guarded))
        predicate, text = code[i]
        target = re.search(r"`\((\.L_x_\d+)\)", text)
        if text.startswith("BAR."):
            if not guarded:
                return f"an aligned {text}"
            barriers += 1
            guarded = False
        if text.startswith("WARPSYNC.COLLECTIVE"):  # to its label and on: a guarded sequence
            guarded = True
        elif text.startswith("BRA.CONV"):
            waiting.append((labels[target[1]], True))
        elif text.startswith("BRA.DIV"):
            waiting.append((labels[target[1]], False))
            guarded = True
        elif target and BRANCHES.match(text) and not text.startswith("CALL"):
            waiting.append((labels[target[1]], False))
            if predicate is None and not re.search(r"\bU?P\d", text):
                continue
        if (text.startswith("EXIT") or text.startswith("RET")) and predicate is None:
            continue
        waiting.append((i + 1, guarded))
    return "" if barriers else "no barrier at the session's end"


def problems(nvcc, nvdisasm, include, work):
    file = work / "ends.cu"
    file.write_text(source())
    cubin = file.with_suffix(".cubin")
    subprocess.run([nvcc, "-std=c++17", "-O3", "-arch=sm_90", f"-I{include}", "-cubin", "-o", cubin, file], check=True)
    text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    return {name: problem(*body) for name, body in functions(text).items() if "__" in name}


def main():
    nvcc, nvdisasm, root, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    found = problems(nvcc, nvdisasm, root / "include", work)
    expected = source().count("__global__")
    assert len(found) == expected, f"{len(found)} kernels of {expected} were found"
    wrong = {name: why for name, why in found.items() if why}
    for name, why in wrong.items():
        print(f"{name}: {why}")

    shutil.copytree(root / "include", work / "aligned")
    seam = work / "aligned/devcomm/arch/cuda.cuh"
    text = seam.read_text()
    unaligned = 'asm volatile("barrier.sync 0;" : : : "memory");'
    assert text.count(unaligned) == 1, "sync_block_apart has changed: keep this test in step with it"
    seam.write_text(text.replace(unaligned, "__syncthreads();"))
    broken = problems(nvcc, nvdisasm, work / "aligned", work)
    passed = [n for n, why in broken.items() if not why and not n.endswith("span")]
    for name in passed:
        print(f"{name}: an aligned barrier at its end is not found")
    print(f"{expected} kernels, {len(wrong)} wrong; with an aligned barrier {len(passed)} pass unseen")
    sys.exit(1 if wrong or passed else 0)


if __name__ == "__main__":
    main()
