// An all-to-all by the network alone: each block puts its part of every shard, in a context of its own.
#include "ranks.h"

#include <nccl_device.h>

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr std::size_t shard = 600;  // elements from each rank to each

__global__ void all_to_all(ncclWindow_t in, ncclWindow_t out, std::size_t length, ncclDevComm comm) {
  const ncclCoopCta cta;
  const ncclGin gin(comm, blockIdx.x % comm.ginContextCount);
  const std::uint64_t before = gin.readSignal(0);  // peers change it once they have met this rank
  ncclGinBarrierSession<ncclCoopCta> barrier(cta, gin, ncclTeamTagWorld(), blockIdx.x);
  barrier.sync(cta, cuda::memory_order_relaxed, ncclGinFenceLevel::None);
  const std::size_t part = length / gridDim.x;
  const ncclTeam world = ncclTeamWorld(comm);
  for (int peer = threadIdx.x; peer < comm.nRanks; peer += blockDim.x)
    gin.put(world, peer, out, sizeof(float) * (comm.rank * length + blockIdx.x * part), in,
            sizeof(float) * (peer * length + blockIdx.x * part), sizeof(float) * part, ncclGin_WeakSignalInc{0});
  gin.waitSignal(cta, 0, before + comm.nRanks);
  gin.flush(cta);
}

int main() {
  return run_ranks([](const Rank& mine) {
    const Buffer in = mine.allocate(shard * mine.ranks), out = mine.allocate(shard * mine.ranks);
    ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    requirements.worldGinBarrierCount = blocks;
    requirements.ginContextCount = blocks;
    requirements.ginSignalCount = 1;
    requirements.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
    ncclDevComm comm;
    CHECK_NCCL(ncclDevCommCreate(mine.comm, &requirements, &comm));
    for (int round = 0; round < 3; ++round) {
      std::vector<float> values(shard * mine.ranks);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(mine.rank * 10000 + round) + static_cast<float>(i);
      mine.write(in, values);
      all_to_all<<<blocks, threads, 0, mine.stream>>>(in.window, out.window, shard, comm);
      CHECK_CUDA(cudaGetLastError());
      mine.expect(out, shard * mine.ranks, [&](std::size_t i) {
        return static_cast<float>(static_cast<int>(i / shard) * 10000 + round) +
               static_cast<float>(mine.rank * shard + i % shard);
      });
    }
    CHECK_NCCL(ncclDevCommDestroy(mine.comm, &comm));
    mine.free(in);
    mine.free(out);
  });
}
