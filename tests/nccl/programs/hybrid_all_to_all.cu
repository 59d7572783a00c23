// An all-to-all by stores inside a host and by the network to others.
#include "ranks.h"

#include <nccl_device.h>

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr std::size_t shard = 400;  // elements from each rank to each

__global__ void all_to_all(ncclWindow_t in, ncclWindow_t out, std::size_t length, ncclDevComm comm) {
  const ncclCoopCta cta;
  const ncclGin gin{comm, static_cast<int>(blockIdx.x)};
  ncclBarrierSession<ncclCoopCta> barrier{cta, ncclTeamTagWorld(), gin, blockIdx.x};
  const std::uint64_t before = gin.readSignal(0);
  barrier.sync(cta, cuda::memory_order_acquire, ncclGinFenceLevel::Relaxed);
  const ncclTeam world = ncclTeamWorld(comm), lsa = ncclTeamLsa(comm);
  const std::size_t part = length / gridDim.x, first = blockIdx.x * part;
  for (int peer = threadIdx.x; peer < comm.nRanks; peer += blockDim.x)
    if (!ncclTeamRankIsMember(lsa, world, peer))
      gin.put(world, peer, out, sizeof(float) * (comm.rank * length + first), in,
              sizeof(float) * (peer * length + first), sizeof(float) * part, ncclGin_SignalInc{0});
  for (int member = 0; member < lsa.nRanks; ++member) {
    const int peer = ncclTeamRankToWorld(comm, lsa, member);
    const auto* from = static_cast<const float*>(ncclGetLocalPointer(in, sizeof(float) * (peer * length + first)));
    auto* to = static_cast<float*>(ncclGetLsaPointer(out, sizeof(float) * (comm.rank * length + first), member));
    for (std::size_t i = threadIdx.x; i < part; i += blockDim.x) to[i] = from[i];
  }
  gin.waitSignal(cta, 0, before + comm.nRanks - lsa.nRanks);
  gin.flush(cta);
  barrier.sync(cta, cuda::memory_order_release, ncclGinFenceLevel::None);
}

int main() {
  return run_ranks([](const Rank& mine) {
    const Buffer in = mine.allocate(shard * mine.ranks), out = mine.allocate(shard * mine.ranks);
    ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    requirements.barrierCount = blocks;
    requirements.ginContextCount = blocks;
    requirements.ginSignalCount = 1;
    requirements.ginForceEnable = true;
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
