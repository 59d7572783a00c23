// The sum of all ranks' rows, normalized: each rank takes some of the rows, and stores them to all. Two launches, each
// of which may find the other ranks behind.
#include "ranks.h"

#include <nccl_device.h>

#include <cmath>

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr int rows = 13;
constexpr int hidden = 96;

__global__ void rms_norm(ncclWindow_t in, ncclWindow_t out, int row_count, int length, ncclDevComm comm) {
  ncclCoopCta cta;
  ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x, true);
  barrier.sync(cta, cuda::memory_order_relaxed);
  __shared__ float squares;
  const int mine = comm.lsaRank * gridDim.x + blockIdx.x;
  for (int row = mine; row < row_count; row += comm.lsaSize * gridDim.x) {
    if (threadIdx.x == 0) squares = 0;
    __syncthreads();
    float part = 0;
    const std::size_t at = std::size_t{sizeof(float)} * row * length;
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
      float sum = 0;
      for (int peer = 0; peer < comm.lsaSize; ++peer)
        sum += static_cast<const float*>(ncclGetLsaPointer(in, at, peer))[i];
      static_cast<float*>(ncclGetLocalPointer(out, at))[i] = sum;
      part += sum * sum;
    }
    atomicAdd(&squares, part);
    __syncthreads();
    const float scale = 1 / sqrtf(squares / static_cast<float>(length));
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
      const float value = static_cast<float*>(ncclGetLocalPointer(out, at))[i] * scale;
      for (int peer = 0; peer < comm.nRanks; ++peer) static_cast<float*>(ncclGetPeerPointer(out, at, peer))[i] = value;
    }
    __syncthreads();
  }
  barrier.sync(cta, cuda::memory_order_release);
}

int main() {
  return run_ranks([](const Rank& mine) {
    const Buffer in = mine.allocate(rows * hidden), out = mine.allocate(rows * hidden);
    ncclDevCommRequirements requirements;
    memset(&requirements, 0, sizeof requirements);  // as programs for 2.28 do
    requirements.lsaBarrierCount = blocks;
    ncclDevComm comm;
    CHECK_NCCL(ncclDevCommCreate(mine.comm, &requirements, &comm));
    for (int round = 0; round < 2; ++round) {
      std::vector<float> values(rows * hidden);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i + round) % 5 + 1);
      mine.write(in, values);
      rms_norm<<<blocks, threads, 0, mine.stream>>>(in.window, out.window, rows, hidden, comm);
      CHECK_CUDA(cudaGetLastError());
      const std::vector<float> have = mine.read(out, rows * hidden);
      for (std::size_t row = 0; row < rows; ++row) {
        double squares = 0;
        for (std::size_t i = 0; i < hidden; ++i) squares += std::pow(values[row * hidden + i], 2);
        for (std::size_t i = 0; i < hidden; ++i) {
          const double right = values[row * hidden + i] / std::sqrt(squares / hidden);
          if (std::abs(have[row * hidden + i] - right) <= 1e-4 * right) continue;
          std::fprintf(stderr, "rank %d, round %d, row %zu, element %zu: %g instead of %g\n", mine.rank, round, row, i,
                       static_cast<double>(have[row * hidden + i]), right);
          std::exit(1);
        }
      }
    }
    CHECK_NCCL(ncclDevCommDestroy(mine.comm, &comm));
    mine.free(in);
    mine.free(out);
  });
}
