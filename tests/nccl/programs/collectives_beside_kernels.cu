// Collectives on streams beside kernels that load from each other's memory: an all-reduce comes between the kernels
// that write and those that read, an exchange with neighbors behind them.
#include "ranks.h"

#include <nccl_device.h>

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr std::size_t count = 3000;

__global__ void fill(float* out, std::size_t length, int rank, int round) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < length; i += gridDim.x * blockDim.x)
    out[i] = static_cast<float>(rank + round + static_cast<int>(i % 10));
}
__global__ void sum_of_peers(ncclWindow_t window, float* out, std::size_t length, ncclDevComm comm) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < length; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      sum += static_cast<const float*>(ncclGetLsaPointer(window, 0, peer))[i];
    out[i] = sum;
  }
}

int main() {
  return run_ranks([](const Rank& mine) {
    const Buffer data = mine.allocate(count), sums = mine.allocate(count), largest = mine.allocate(1),
                 came = mine.allocate(count);
    ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevComm comm;
    CHECK_NCCL(ncclDevCommCreate(mine.comm, &requirements, &comm));
    const int next = (mine.rank + 1) % mine.ranks, before = (mine.rank + mine.ranks - 1) % mine.ranks;
    for (int round = 0; round < 3; ++round) {
      fill<<<blocks, threads, 0, mine.stream>>>(data.data, count, mine.rank, round);
      CHECK_NCCL(ncclAllReduce(data.data, largest.data, 1, ncclFloat, ncclMax, mine.comm, mine.stream));
      sum_of_peers<<<blocks, threads, 0, mine.stream>>>(data.window, sums.data, count, comm);
      CHECK_NCCL(ncclGroupStart());
      CHECK_NCCL(ncclSend(sums.data, count, ncclFloat, next, mine.comm, mine.stream));
      CHECK_NCCL(ncclRecv(came.data, count, ncclFloat, before, mine.comm, mine.stream));
      CHECK_NCCL(ncclGroupEnd());
      // Nobody fills before all have read.
      CHECK_NCCL(ncclAllReduce(came.data, came.data, count, ncclFloat, ncclAvg, mine.comm, mine.stream));
      mine.expect(largest, 1, [&](std::size_t) { return static_cast<float>(mine.ranks - 1 + round); });
      mine.expect(came, count, [&](std::size_t i) {  // the mean of all hosts' sums
        const float mean =
            static_cast<float>(mine.ranks - 1) / 2 + static_cast<float>(round + static_cast<int>(i % 10));
        return static_cast<float>(comm.lsaSize) * mean;
      });
    }
    CHECK_NCCL(ncclDevCommDestroy(mine.comm, &comm));
    mine.free(data);
    mine.free(sums);
    mine.free(largest);
    mine.free(came);
  });
}
