// The sum of all ranks' rows, normalized: each block of each rank takes some of the rows, and stores them to all. By
// loads and stores, by the switch, by the network, and by stores inside a host with the network between hosts.
#include "ranks.h"

#include <nccl_device.h>

#include <cmath>

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr int rows = 48;
constexpr int hidden = 96;

/// Normalizes a row that the block has; `from` may be `to`.
__device__ void normalize(const float* from, float* to, int length) {
  __shared__ float squares;
  if (threadIdx.x == 0) squares = 0;
  __syncthreads();
  float part = 0;
  for (int i = threadIdx.x; i < length; i += blockDim.x) part += from[i] * from[i];
  atomicAdd(&squares, part);
  __syncthreads();
  const float scale = 1 / sqrtf(squares / static_cast<float>(length));
  for (int i = threadIdx.x; i < length; i += blockDim.x) to[i] = from[i] * scale;
  __syncthreads();
}

__global__ void by_lsa(ncclWindow_t in, ncclWindow_t out, int row_count, int length, ncclDevComm comm) {
  ncclCoopCta cta;
  ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x, true);
  barrier.sync(cta, cuda::memory_order_relaxed);
  const int mine = comm.lsaRank * gridDim.x + blockIdx.x;
  for (int row = mine; row < row_count; row += comm.lsaSize * gridDim.x) {
    const std::size_t at = std::size_t{sizeof(float)} * row * length;
    auto* own = static_cast<float*>(ncclGetLocalPointer(out, at));
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
      float sum = 0;
      for (int peer = 0; peer < comm.lsaSize; ++peer)
        sum += static_cast<const float*>(ncclGetLsaPointer(in, at, peer))[i];
      own[i] = sum;
    }
    __syncthreads();
    normalize(own, own, length);
    for (int peer = 0; peer < comm.nRanks; ++peer)
      if (peer != comm.rank)
        for (int i = threadIdx.x; i < length; i += blockDim.x)
          static_cast<float*>(ncclGetPeerPointer(out, at, peer))[i] = own[i];
    __syncthreads();
  }
  barrier.sync(cta, cuda::memory_order_release);
}

__global__ void by_multimem(ncclWindow_t in, ncclWindow_t out, int row_count, int length, ncclDevComm comm) {
  extern __shared__ float row_of_all[];
  ncclCoopCta cta;
  ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x, true);
  barrier.sync(cta, cuda::memory_order_acquire);
  const int mine = comm.lsaRank * gridDim.x + blockIdx.x;
  for (int row = mine; row < row_count; row += comm.lsaSize * gridDim.x) {
    const std::size_t at = std::size_t{sizeof(float)} * row * length;
    const auto* from = static_cast<const float*>(ncclGetLsaMultimemPointer(in, at, comm));
    auto* to = static_cast<float*>(ncclGetLsaMultimemPointer(out, at, comm));
    for (int i = threadIdx.x; i < length; i += blockDim.x)
      asm volatile("multimem.ld_reduce.global.add.f32 %0, [%1];" : "=f"(row_of_all[i]) : "l"(from + i) : "memory");
    __syncthreads();
    normalize(row_of_all, row_of_all, length);
    for (int i = threadIdx.x; i < length; i += blockDim.x)
      asm volatile("multimem.st.global.f32 [%0], %1;" : : "l"(to + i), "f"(row_of_all[i]) : "memory");
    __syncthreads();
  }
  barrier.sync(cta, cuda::memory_order_release);
}

/// Each block owns as many consecutive rows. What ranks send of them comes into the inbox, which has a place for each
/// rank. Signal 0 tells of that, and signal 1 of rows that are done.
template <bool Hybrid>
__global__ void by_network(ncclWindow_t in, ncclWindow_t inbox, ncclWindow_t out, int row_count, int length,
                           ncclDevComm comm) {
  const ncclCoopCta cta;
  const ncclGin gin{comm, static_cast<int>(blockIdx.x)};
  ncclBarrierSession<ncclCoopCta> barrier{cta, ncclTeamTagWorld(), gin, blockIdx.x};
  const std::uint64_t came = gin.readSignal(0), done = gin.readSignal(1);
  barrier.sync(cta, cuda::memory_order_acquire, ncclGinFenceLevel::Relaxed);
  const ncclTeam world = ncclTeamWorld(comm), lsa = ncclTeamLsa(comm);
  const int rows_of_block = row_count / (comm.nRanks * gridDim.x);
  const int part = rows_of_block * length;  // elements
  const auto first_of = [&](int rank) { return sizeof(float) * (rank * gridDim.x + blockIdx.x) * part; };
  const auto by_network = [&](int peer) { return !Hybrid || !ncclTeamRankIsMember(lsa, world, peer); };
  const auto place = [&](int rank) { return sizeof(float) * (rank * gridDim.x + blockIdx.x) * part; };

  int senders = 0;
  for (int peer = 0; peer < comm.nRanks; ++peer) senders += by_network(peer);
  for (int peer = threadIdx.x; peer < comm.nRanks; peer += blockDim.x)
    if (by_network(peer))
      gin.put(world, peer, inbox, place(comm.rank), in, first_of(peer), sizeof(float) * part, ncclGin_WeakSignalInc{0});
  if (Hybrid) {
    for (int member = 0; member < lsa.nRanks; ++member) {
      const auto* from =
          static_cast<const float*>(ncclGetLocalPointer(in, first_of(ncclTeamRankToWorld(comm, lsa, member))));
      auto* to = static_cast<float*>(ncclGetLsaPointer(inbox, place(comm.rank), member));
      for (int i = threadIdx.x; i < part; i += blockDim.x) to[i] = from[i];
    }
    barrier.lsaBarrier().sync(cta, cuda::memory_order_acq_rel);
  }
  gin.waitSignal(cta, 0, came + senders);

  auto* own = static_cast<float*>(ncclGetLocalPointer(out, first_of(comm.rank)));
  for (int i = threadIdx.x; i < part; i += blockDim.x) {
    float sum = 0;
    for (int rank = 0; rank < comm.nRanks; ++rank)
      sum += static_cast<const float*>(ncclGetLocalPointer(inbox, place(rank)))[i];
    own[i] = sum;
  }
  __syncthreads();
  for (int row = 0; row < rows_of_block; ++row) normalize(own + row * length, own + row * length, length);

  int receivers = 0;
  for (int peer = 0; peer < comm.nRanks; ++peer) receivers += peer != comm.rank && by_network(peer);
  for (int peer = threadIdx.x; peer < comm.nRanks; peer += blockDim.x)
    if (peer != comm.rank && by_network(peer))
      gin.put(world, peer, out, first_of(comm.rank), out, first_of(comm.rank), sizeof(float) * part,
              ncclGin_WeakSignalInc{1});
  if (Hybrid)
    for (int member = 0; member < lsa.nRanks; ++member)
      if (member != lsa.rank)
        for (int i = threadIdx.x; i < part; i += blockDim.x)
          static_cast<float*>(ncclGetLsaPointer(out, first_of(comm.rank), member))[i] = own[i];
  gin.waitSignal(cta, 1, done + receivers);
  gin.flush(cta);
  barrier.sync(cta, cuda::memory_order_release, ncclGinFenceLevel::None);
}

int main() {
  return run_ranks([](const Rank& mine) {
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    CHECK_NCCL(ncclCommQueryProperties(mine.comm, &properties));
    const bool one_team = properties.nLsaTeams == 1;
    const Buffer in = mine.allocate(rows * hidden), inbox = mine.allocate(rows * hidden),
                 out = mine.allocate(rows * hidden);
    ncclDevCommRequirements requirements;
    memset(&requirements, 0, sizeof requirements);  // as programs for 2.28 do
    requirements.lsaBarrierCount = blocks;
    requirements.barrierCount = blocks;
    requirements.lsaMultimem = properties.multimemSupport && one_team;
    requirements.ginForceEnable = true;
    requirements.ginContextCount = blocks;
    requirements.ginSignalCount = 2;
    ncclDevComm comm;
    CHECK_NCCL(ncclDevCommCreate(mine.comm, &requirements, &comm));
    for (int way = 0; way < 4; ++way) {
      if (way == 0 && !one_team) continue;
      if (way == 1 && !requirements.lsaMultimem) continue;
      std::vector<float> values(rows * hidden);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i + way) % 5 + 1);
      mine.write(in, values);
      if (way == 0) by_lsa<<<blocks, threads, 0, mine.stream>>>(in.window, out.window, rows, hidden, comm);
      if (way == 1)
        by_multimem<<<blocks, threads, hidden * sizeof(float), mine.stream>>>(in.window, out.window, rows, hidden,
                                                                              comm);
      if (way == 2)
        by_network<false><<<blocks, threads, 0, mine.stream>>>(in.window, inbox.window, out.window, rows, hidden, comm);
      if (way == 3)
        by_network<true><<<blocks, threads, 0, mine.stream>>>(in.window, inbox.window, out.window, rows, hidden, comm);
      CHECK_CUDA(cudaGetLastError());
      const std::vector<float> have = mine.read(out, rows * hidden);
      for (std::size_t row = 0; row < rows; ++row) {
        double squares = 0;
        for (std::size_t i = 0; i < hidden; ++i) squares += std::pow(values[row * hidden + i], 2);
        for (std::size_t i = 0; i < hidden; ++i) {
          const double right = values[row * hidden + i] / std::sqrt(squares / hidden);
          if (std::abs(have[row * hidden + i] - right) <= 1e-4 * right) continue;
          std::fprintf(stderr, "rank %d, way %d, row %zu, element %zu: %g instead of %g\n", mine.rank, way, row, i,
                       static_cast<double>(have[row * hidden + i]), right);
          std::exit(1);
        }
      }
    }
    CHECK_NCCL(ncclDevCommDestroy(mine.comm, &comm));
    mine.free(in);
    mine.free(inbox);
    mine.free(out);
  });
}
