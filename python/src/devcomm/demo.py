"""An all-reduce of numpy arrays by a kernel of one's own: `python -m devcomm.demo --ranks 4`."""

from __future__ import annotations

import argparse
from typing import Any

import devcomm

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


def run(comm: Any, count: int) -> float:
    """The largest difference from what the sum should be."""
    import numpy

    blocks = 4
    device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks).whole_world())
    kernels = devcomm.compile(SOURCE)
    source = comm.empty(count, "float32", name="input")
    result = comm.empty(count, "float32", name="output")
    expected = sum(values(numpy, rank, count) for rank in range(comm.size))
    copy(comm, source, values(numpy, comm.rank, count))
    kernels.all_reduce(grid=blocks, block=128)(device_comm, source, result, count)
    comm.synchronize()
    comm.check()
    return float(abs(copy(comm, result) - expected).max())


def values(numpy: Any, rank: int, count: int) -> Any:
    return (numpy.arange(count, dtype=numpy.float32) % 1000) * (rank + 1)


def copy(comm: Any, array: Any, source: Any = None) -> Any:
    """To `array` from a numpy array, or to a new one from it."""
    import numpy

    if devcomm.backend == "simulator":
        view = numpy.from_dlpack(array)
        if source is not None:
            view[:] = source
        return view.copy()
    import torch

    view = torch.from_dlpack(array)
    if source is not None:
        view.copy_(torch.from_numpy(source))
        torch.cuda.synchronize(comm.device)
    return view.cpu().numpy()


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
