"""An all-reduce of numpy arrays by a kernel of one's own: `python -m devcomm.demo --ranks 4`."""

from __future__ import annotations

import argparse

import devcomm
import numpy
import numpy.typing

SOURCE = r"""
#include <devcomm/devcomm.cuh>
using namespace devcomm;

/// Each rank adds all ranks' inputs up, in one order everywhere.
__global__ void all_reduce(device_comm comm, sym_ptr<float> input, sym_ptr<float> output, int count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::acq_rel);  // all inputs are there
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int rank = 0; rank < comm.lsa_size; ++rank) sum += input.lsa(rank)[i];
    output.local()[i] = sum;
  }
  barrier.sync(memory_order::acq_rel);  // they may change again
}
"""


def run(comm: devcomm.Communicator, count: int) -> float:
    """The largest difference from what the sum should be."""
    blocks = 4
    device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks).whole_world())
    kernels = devcomm.compile(SOURCE, name="demo.cu")
    comm.prepare(kernels)
    source = comm.empty(count, "float32", name="input")
    result = comm.empty(count, "float32", name="output")
    source.set(values(comm.rank, count))
    kernels.all_reduce(grid=blocks, block=128)(device_comm, source, result, count)
    comm.synchronize()
    comm.check()
    expected = sum(values(rank, count) for rank in range(comm.size))
    return float(abs(result.get() - expected).max())


def values(rank: int, count: int) -> numpy.typing.NDArray[numpy.float32]:
    return (numpy.arange(count, dtype=numpy.float32) % 1000) * numpy.float32(rank + 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m devcomm.demo", description=__doc__)
    parser.add_argument("--ranks", type=int, default=None, help="ranks, as threads of this process; one for each GPU")
    parser.add_argument("--count", type=int, default=100_000, help="elements of each rank's array")
    given = parser.parse_args()
    differences = devcomm.run_ranks(run, given.ranks, given.count)
    worst = max(differences)
    print(f"all-reduce of {given.count} float32 on {devcomm.backend}: largest difference {worst:g}")
    if worst != 0:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
