// An all-reduce by loads and stores in place: each rank sums its part of the vector, and stores that to all.
#include "ranks.h"

#include <nccl_device.h>

constexpr int blocks = 3;
constexpr int threads = 64;

__global__ void all_reduce(ncclWindow_t window, std::size_t offset, std::size_t count, ncclDevComm comm) {
  ncclCoopCta cta;
  ncclLsaBarrierSession<ncclCoopCta> barrier{cta, comm, ncclTeamTagLsa(), blockIdx.x};
  barrier.sync(cta, cuda::memory_order_relaxed);
  const int ranks = comm.lsaSize;
  const std::size_t part = (count + ranks * gridDim.x - 1) / (ranks * gridDim.x);
  const std::size_t first = (comm.lsaRank * gridDim.x + blockIdx.x) * part;
  for (std::size_t i = first + threadIdx.x; i < first + part && i < count; i += blockDim.x) {
    float sum = 0;
    for (int peer = 0; peer < ranks; ++peer) sum += static_cast<float*>(ncclGetLsaPointer(window, offset, peer))[i];
    for (int peer = 0; peer < ranks; ++peer) static_cast<float*>(ncclGetLsaPointer(window, offset, peer))[i] = sum;
  }
  barrier.sync(cta, cuda::memory_order_release);
}

int main() {
  return run_ranks([](const Rank& mine) {
    constexpr std::size_t count = 1000;
    const Buffer data = mine.allocate(count);
    ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    requirements.lsaBarrierCount = blocks;
    ncclDevComm comm;
    CHECK_NCCL(ncclDevCommCreate(mine.comm, &requirements, &comm));
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(mine.rank + 1 + static_cast<int>(i % 7));
    mine.write(data, values);
    all_reduce<<<blocks, threads, 0, mine.stream>>>(data.window, 0, count, comm);
    CHECK_CUDA(cudaGetLastError());
    mine.expect(data, count, [&](std::size_t i) {
      return static_cast<float>(mine.ranks * (mine.ranks + 1) / 2 + mine.ranks * static_cast<int>(i % 7));
    });
    CHECK_NCCL(ncclDevCommDestroy(mine.comm, &comm));
    mine.free(data);
  });
}
