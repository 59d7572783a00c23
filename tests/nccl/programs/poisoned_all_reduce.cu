// An all-reduce of small vectors in one trip without a barrier: receivers poll for elements that are no longer poison,
// and poison them again. Two buffers in turn: who writes to one has seen what its owner sent after poisoning it.
#include "ranks.h"

#include <nccl_device.h>

constexpr int threads = 64;
constexpr int count = 200;
constexpr int rounds = 5;
constexpr unsigned poison = 0xffffffffu;  // a NaN that no sum has

__global__ void all_reduce(ncclWindow_t scratch, const float* in, float* out, int length, int round, ncclDevComm comm) {
  const std::size_t buffer = std::size_t{sizeof(float)} * (round % 2) * comm.lsaSize * length;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= length) return;
  for (int peer = 0; peer < comm.lsaSize; ++peer) {
    auto* to = static_cast<volatile float*>(ncclGetLsaPointer(scratch, buffer, peer));
    to[comm.lsaRank * length + i] = in[i];
  }
  auto* came = static_cast<volatile unsigned*>(ncclGetLocalPointer(scratch, buffer));
  float sum = 0;
  for (int peer = 0; peer < comm.lsaSize; ++peer) {
    unsigned word;
    do word = came[peer * length + i];
    while (word == poison);
    came[peer * length + i] = poison;
    sum += __uint_as_float(word);
  }
  out[i] = sum;
}

/// All ranks have done what they did to each other's memory.
__global__ void finish(ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopWarp> barrier(ncclCoopWarp(), comm, ncclTeamTagLsa(), 0);
  barrier.sync(ncclCoopWarp(), cuda::memory_order_release);
}

int main() {
  return run_ranks([](const Rank& mine) {
    const std::size_t words = 2ull * mine.ranks * count;
    const Buffer scratch = mine.allocate(words);
    CHECK_CUDA(cudaMemset(scratch.data, 0xff, words * sizeof(float)));
    const Buffer in = mine.allocate(count), out = mine.allocate(count);
    ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    requirements.lsaBarrierCount = 1;
    ncclDevComm comm;
    CHECK_NCCL(ncclDevCommCreate(mine.comm, &requirements, &comm));  // all ranks' scratch is poisoned by now
    for (int round = 0; round < rounds; ++round) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(mine.rank + round) + static_cast<float>(i);
      mine.write(in, values);
      all_reduce<<<(count + threads - 1) / threads, threads, 0, mine.stream>>>(scratch.window, in.data, out.data, count,
                                                                               round, comm);
      CHECK_CUDA(cudaGetLastError());
      mine.expect(out, count, [&](std::size_t i) {
        return static_cast<float>(mine.ranks * (mine.ranks - 1) / 2 + mine.ranks * round) +
               static_cast<float>(mine.ranks) * static_cast<float>(i);
      });
    }
    finish<<<1, 32, 0, mine.stream>>>(comm);
    CHECK_CUDA(cudaStreamSynchronize(mine.stream));
    CHECK_NCCL(ncclDevCommDestroy(mine.comm, &comm));
    mine.free(scratch);
    mine.free(in);
    mine.free(out);
  });
}
