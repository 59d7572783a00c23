"""A kernel of one's own, fused with an all-reduce: relu(sum of all ranks' partial products + bias).

Each rank has a part of a matrix product's inner dimension, so the sum over ranks is the product. One kernel adds the
parts up, adds the bias and applies the activation: what would be an all-reduce and two more kernels.

    python fused_bias.py                                    # 4 ranks in one process
    torchrun --standalone --nproc-per-node=4 fused_bias.py  # a process each
"""

import devcomm
import numpy

SOURCE = r"""
#include <devcomm/devcomm.cuh>
using namespace devcomm;

__global__ void bias_relu_all_reduce(device_comm comm, lsa::ll_handle mailboxes, const float* partial,
                                     const float* bias, float* output, unsigned long count, unsigned columns) {
  lsa::ll_session session{block{}, comm, mailboxes, blockIdx.x};
  const collective::slice packs = collective::slice_of_block(collective::packs_of<float>(count));
  const collective::to_memory<float> store{output, count};
  collective::all_reduce_one_shot<float>(
      session, packs, collective::from_memory<float>{partial, count},
      [&](uint64_t i, pack<float> sum) {
        for (int j = 0; j < pack<float>::size; ++j)
          sum[j] = max(sum[j] + bias[(i * pack<float>::size + j) % columns], 0.0f);
        store(i, sum);
      },
      devcomm::sum{});
}
"""
ROWS, COLUMNS, INNER, BLOCKS = 16, 24, 32, 2


def rank(comm: devcomm.Communicator) -> None:
    kernels = devcomm.compile(SOURCE, name="fused_bias.cu")
    needs = comm.requirements().whole_world()
    mailboxes = needs.add_mailboxes("ll", count=BLOCKS, packets=256)
    device_comm = comm.create_device_comm(needs)
    comm.prepare(kernels)

    random = numpy.random.default_rng(1)  # the same on all ranks
    a, b = random.integers(-3, 4, (ROWS, INNER)), random.integers(-3, 4, (INNER, COLUMNS))
    bias = comm.empty(COLUMNS)
    bias.set(numpy.arange(COLUMNS) - 10)
    partial, output = comm.empty((ROWS, COLUMNS)), comm.empty((ROWS, COLUMNS))
    own = slice(comm.rank * INNER // comm.size, (comm.rank + 1) * INNER // comm.size)
    partial.set(a[:, own] @ b[own])

    kernels.bias_relu_all_reduce(BLOCKS, 64)(device_comm, mailboxes, partial, bias, output, output.size, COLUMNS)
    comm.synchronize()
    comm.check()
    assert (output.get() == numpy.maximum(a @ b + bias.get(), 0)).all()
    print(f"rank {comm.rank} of {comm.size}: right")


if __name__ == "__main__":
    devcomm.run_ranks(rank, 4)
