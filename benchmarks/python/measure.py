#!/usr/bin/env python3
"""devcomm from Python on a GPU: right results, and what calls cost. Ranks share the GPU.

    measure.py operators --ranks 4        all operators and types: eager, captured and replayed, compiled; also under torchrun
    measure.py host_time                  host time of a call beside its floors, one rank
    measure.py graphs --perf PROGRAM      time of a call in a CUDA graph beside devcomm-perf
    measure.py first_call                 cold, from the disk cache, and by 4 processes at once
    measure.py engine --ranks 2           32 layers of two GEMMs and two operators, captured, 1,000 replays

scripts/gpu_results.sh --only python runs them all and keeps what they print. Needs PyTorch, and nvcc for a floor of host_time.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import devcomm
import devcomm.torch as dt
import torch
from devcomm import ops

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTEGERS = [torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16]
COUNTS = [1, 5, 127, 128, 1000, 70_001, 3_000_000]
REPLAYS = 1000
ON_GPU = devcomm.backend == "cuda"


def device_of(comm):
    return torch.device("cuda", comm.device) if ON_GPU else torch.device("cpu")


def values(rank, shape, dtype, device):
    """Small whole numbers, alike on every machine: sums are exact in every type."""
    random = torch.Generator().manual_seed(1000 * rank + sum(shape))
    lowest = 0 if dtype == torch.uint8 else -1
    return torch.randint(lowest, 2, shape, generator=random).to(dtype).to(device)


def captured(stream, call):
    """A graph of `call`, which has run once before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        call()
    return graph


def check(found, expected, what):
    if not torch.equal(found.cpu().double(), expected.cpu().double()):
        raise SystemExit(f"wrong: {what}: {found} instead of {expected}")


def cases(comm, dtype, count):
    """Name, call that takes the input and returns the result, input, and what is right."""
    n, me, group, device = comm.size, comm.rank, dt.group(comm), device_of(comm)
    parts = [values(r, (n, count), dtype, device) for r in range(n)]
    mine = parts[me]
    total = sum(p.cpu().double() for p in parts)
    counts = torch.tensor([1] * n, device=device)

    def all_to_all_v(x):
        out, came = torch.zeros_like(x), torch.zeros_like(counts)
        dt.all_to_all_v(x, counts, out, came, group)
        return out

    def around(x):
        out = torch.zeros_like(x)
        dt.send_receive([(x, (me + 1) % n)], [(out, (me - 1) % n)], group)
        return out

    yield "all_reduce", lambda x: dt.all_reduce(x, group), mine, total
    yield "reduce_scatter", lambda x: dt.reduce_scatter(x, group), mine, total[me : me + 1]
    yield "all_gather", lambda x: dt.all_gather(x, group), mine, torch.cat([p.cpu() for p in parts])
    yield "broadcast", lambda x: dt.broadcast_(x.clone(), group, n - 1), mine, parts[n - 1]
    yield "all_to_all", lambda x: dt.all_to_all(x, group), mine, torch.stack([p[me].cpu() for p in parts])
    yield "all_to_all_v", all_to_all_v, mine, torch.stack([p[me].cpu() for p in parts])
    yield "send_receive", around, mine, parts[(me - 1) % n]
    row_bytes = count * mine.element_size()
    if dtype in FLOATS[:3] and row_bytes % 16 == 0 and row_bytes <= ops.MAX_ROW_BYTES:
        weight = torch.ones(count, dtype=dtype, device=device)
        wide = total / torch.sqrt((total**2).mean(-1, keepdim=True) + 1e-6)
        # Rounded twice, so only ones and zeros are compared: the sign.
        yield (
            "all_reduce_rms_norm",
            lambda x: dt.all_reduce_rms_norm(x, torch.zeros_like(x), weight, group).sign(),
            mine,
            wide.sign(),
        )
        scale = torch.tensor([0.01], device=device)

        def quantized(x):
            out = torch.zeros_like(x, dtype=torch.float8_e4m3fn)
            dt.all_reduce_rms_norm_quantized(x, torch.zeros_like(x), weight, out, group, scale=scale)
            return out.float().sign()

        yield "all_reduce_rms_norm_quantized", quantized, mine, wide.sign()


def operators(ranks):
    def rank(comm):
        stream = torch.cuda.Stream(device_of(comm)) if ON_GPU else None
        number = 0
        for dtype in FLOATS + INTEGERS:
            for count in COUNTS if ON_GPU else COUNTS[:4]:
                for name, call, x, expected in cases(comm, dtype, count):
                    what = f"{name} of {count} {dtype}, rank {comm.rank} of {comm.size}"
                    number += 1
                    if not ON_GPU:
                        check(call(x), expected, what)
                        continue
                    with torch.cuda.stream(stream):
                        check(call(x), expected, what)
                        result = []
                        graph = captured(stream, lambda: result.append(call(x)))  # noqa: B023
                        for _ in range(REPLAYS if count < 70_000 else 20):
                            graph.replay()
                        stream.synchronize()
                        check(result[0], expected, f"{what}, captured")
                        if dtype == torch.bfloat16:
                            torch._dynamo.reset()
                            compiled = torch.compile(lambda x: call(x * 1), fullgraph=True)  # noqa: B023
                            check(compiled(x), expected, f"{what}, compiled")
            comm.check()
        if comm.rank == 0:
            print(f"operators, {comm.size} ranks: {number} cases right", flush=True)

    devcomm.run_ranks(rank, ranks)


def microseconds(call, times=10_000):
    """Median host time of a call; the device is let catch up every 100."""
    taken = []
    for i in range(times):
        begin = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - begin)
        if i % 100 == 99:
            torch.cuda.synchronize()
    return statistics.median(taken) / 1000


KERNEL = r"""
#include <devcomm/devcomm.cuh>
__global__ void nothing(devcomm::device_comm comm, float* x, int n) {
  if (n < 0) x[0] = static_cast<float>(comm.rank);
}
"""
LAUNCH = (
    KERNEL
    + r"""
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>
extern "C" double median_us(const void* comm, float* x, int times) {
  devcomm::device_comm c;
  std::memcpy(&c, comm, sizeof c);
  std::vector<double> taken;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    nothing<<<1, 32>>>(c, x, 32);
    taken.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    if (i % 100 == 99) cudaDeviceSynchronize();
  }
  std::nth_element(taken.begin(), taken.begin() + times / 2, taken.end());
  return taken[times / 2];
}
"""
)


def from_cpp(device_comm, x):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "launch.cu")
        source.write_text(LAUNCH)
        library = f"{folder}/launch.so"
        subprocess.run(
            ["nvcc", "-O2", "-std=c++17", "-arch=native", "-shared", "-Xcompiler=-fPIC", f"-I{devcomm.include_path()}",
             str(source), "-o", library],
            check=True,
        )  # fmt: skip
        launch = ctypes.CDLL(library).median_us
        launch.restype = ctypes.c_double
        return launch(device_comm.kernel_argument(), ctypes.c_void_p(x.data_ptr()), 10_000)


def host_time():
    with devcomm.connect(rank=0, size=1, unique_id=devcomm.create_unique_id()) as comm:
        device = device_of(comm)
        x = torch.zeros(32, device=device)
        device_comm = comm.create_device_comm(comm.requirements())
        kernel = devcomm.compile(KERNEL).nothing
        comm.prepare(kernel)
        a, b, c = (torch.zeros(1024, device=device) for _ in range(3))
        group = dt.group(comm)
        rows = {
            "own kernel, from C++": from_cpp(device_comm, x),
            "own kernel, from Python": microseconds(lambda: kernel(1, 32)(device_comm, x, 32)),
            "torch.add(a, b, out=c)": microseconds(lambda: torch.add(a, b, out=c)),
            "ops.all_reduce(comm, a, out=c)": microseconds(lambda: ops.all_reduce(comm, a, out=c)),
            "torch.ops.devcomm.all_reduce_": microseconds(lambda: dt.all_reduce_(a, group)),
        }
        try:
            import cupy

            raw = cupy.RawKernel('extern "C" __global__ void nothing(float* x, int n) {}', "nothing")
            y = cupy.asarray(x)
            rows["CuPy's RawKernel"] = microseconds(lambda: raw((1,), (32,), (y, 32)))
        except ImportError:
            print("no CuPy here: its row is left out")
        comm.check()
    for name, value in rows.items():
        print(f"{name:34} {value:7.2f} us")


def graphs(ranks, perf):
    calls, sizes = 20, [1024, 16_384, 262_144, 4_194_304]

    def rank(comm):
        device = device_of(comm)
        stream = torch.cuda.Stream(device)
        rows = []
        with torch.cuda.stream(stream):
            for size in sizes:
                x = torch.zeros(size // 2, dtype=torch.bfloat16, device=device)
                out = torch.empty_like(x)
                ops.all_reduce(comm, x, out=out)
                stream.synchronize()
                graph = captured(stream, lambda: [ops.all_reduce(comm, x, out=out) for _ in range(calls)])  # noqa: B023
                taken = []
                for _ in range(200):
                    comm.barrier()
                    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    begin.record()
                    graph.replay()
                    end.record()
                    end.synchronize()
                    taken.append(begin.elapsed_time(end) * 1000 / calls)
                rows.append((size, statistics.median(taken)))
        comm.check()
        return rows

    for size, value in devcomm.run_ranks(rank, ranks)[0]:
        print(f"all_reduce in a graph from Python, {ranks} ranks, {size:8} bytes: {value:8.2f} us a call", flush=True)
    if perf:
        words = [
            "all_reduce",
            "-n",
            str(ranks),
            "-b",
            "1K",
            "-e",
            "4M",
            "--dtype",
            "bf16",
            "--algo",
            "auto",
            "--place",
            "out",
        ]
        subprocess.run([perf, *words], check=True)


FIRST = """
import time, sys
import devcomm
from devcomm import ops
begin = time.monotonic()
ops._compiled("all_reduce_one_shot<__nv_bfloat16, devcomm::sum, devcomm::lsa::lamport_session<devcomm::block>>")
print(f"{sys.argv[1]}: {1000 * (time.monotonic() - begin):.0f} ms", flush=True)
"""


def first_call():
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        for name in ("cold", "from the disk cache"):
            subprocess.run([sys.executable, "-c", FIRST, name], env=environment, check=True)
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        running = [
            subprocess.Popen([sys.executable, "-c", FIRST, f"cold, rank {r} of 4"], env=environment) for r in range(4)
        ]
        if any([process.wait() for process in running]):
            raise SystemExit("a process failed")
        cubins = len(list(pathlib.Path(cache).rglob("*.cubin")))
        print(f"4 ranks at once: {cubins} compilation")
        if cubins != 1:
            raise SystemExit("they compiled more than once")


def engine(ranks):
    layers, hidden, batch = 32, 1024, 8

    def rank(comm):
        device, group = device_of(comm), dt.group(comm)
        random = torch.Generator(device).manual_seed(1)
        weights = [
            [
                torch.randint(-1, 2, (hidden, hidden), generator=random, device=device).bfloat16() / hidden
                for _ in range(2)
            ]
            for _ in range(layers)
        ]
        norm = torch.ones(hidden, dtype=torch.bfloat16, device=device)
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream), torch.cuda.use_mem_pool(comm.pool()):
            x = torch.randint(-1, 2, (batch, hidden), generator=random, device=device).bfloat16()
            tokens = x.clone()

        def step():
            y, residual = tokens, tokens.clone()
            for up, down in weights:
                y = dt.all_reduce_rms_norm(y @ up, residual, norm, group)
                y = dt.all_reduce(y @ down, group)
            return y

        with torch.cuda.stream(stream):
            expected = step().clone()
            stream.synchronize()
            result = []
            graph = captured(stream, lambda: result.append(step()))
            graph.replay()
            stream.synchronize()
            before = torch.cuda.memory_stats(device)["num_alloc_retries"], torch.cuda.memory_reserved(device)
            begin = time.monotonic()
            for _ in range(REPLAYS):
                graph.replay()
            stream.synchronize()
            taken = time.monotonic() - begin
        comm.check()
        after = torch.cuda.memory_stats(device)["num_alloc_retries"], torch.cuda.memory_reserved(device)
        if before != after or not torch.equal(result[0], expected):
            raise SystemExit(f"wrong: {before} {after}, or the result")
        return taken / REPLAYS * 1e6

    for r, each in enumerate(devcomm.run_ranks(rank, ranks)):
        print(f"engine, rank {r} of {ranks}: {each:.0f} us a step of {layers} layers, {REPLAYS} replays, right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["operators", "host_time", "graphs", "first_call", "engine"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--perf")
    given = parser.parse_args()
    if given.part == "operators":
        operators(given.ranks)
    elif not ON_GPU:
        raise SystemExit(f"{given.part} is measured on a GPU; here is the backend {devcomm.backend}")
    elif given.part == "host_time":
        host_time()
    elif given.part == "graphs":
        graphs(given.ranks, given.perf)
    elif given.part == "first_call":
        first_call()
    else:
        engine(given.ranks)
