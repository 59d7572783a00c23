// An all-to-all by stores. One thread drives all ranks, by groups of calls.
#include "ranks.h"

#include <nccl_device.h>

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr int count = 500;  // elements from each rank to each

__global__ void all_to_all(ncclSymPtr<float> in, ncclSymPtr<float> out, int length, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamLsa(comm), comm.lsaBarrier, blockIdx.x);
  barrier.sync(ncclCoopCta(), cuda::memory_order_acquire);
  const ncclTeam lsa = ncclTeamLsa(comm);
  for (int step = 0; step < lsa.nRanks; ++step) {
    const int peer = (lsa.rank + step) % lsa.nRanks;
    const float* from = (in + peer * length).localPtr();
    float* to = (out + lsa.rank * length).lsaPtr(peer);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < length; i += gridDim.x * blockDim.x) to[i] = from[i];
  }
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

int main() {
  int ranks = 0;
  CHECK_CUDA(cudaGetDeviceCount(&ranks));
  std::vector<ncclComm_t> comms(ranks);
  CHECK_NCCL(ncclCommInitAll(comms.data(), ranks, nullptr));
  std::vector<Rank> all;
  std::vector<Buffer> in(ranks), out(ranks);
  std::vector<ncclDevComm> device(ranks);
  const std::size_t bytes = std::size_t{count} * ranks * sizeof(float);
  for (int r = 0; r < ranks; ++r) {
    CHECK_CUDA(cudaSetDevice(r));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    all.push_back({r, ranks, comms[r], stream});
    CHECK_NCCL(ncclMemAlloc(reinterpret_cast<void**>(&in[r].data), bytes));
    CHECK_NCCL(ncclMemAlloc(reinterpret_cast<void**>(&out[r].data), bytes));
  }
  ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  requirements.lsaBarrierCount = blocks;
  CHECK_NCCL(ncclGroupStart());
  for (int r = 0; r < ranks; ++r) {
    CHECK_NCCL(ncclCommWindowRegister(comms[r], in[r].data, bytes, &in[r].window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK_NCCL(ncclCommWindowRegister(comms[r], out[r].data, bytes, &out[r].window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK_NCCL(ncclDevCommCreate(comms[r], &requirements, &device[r]));
  }
  CHECK_NCCL(ncclGroupEnd());
  for (int r = 0; r < ranks; ++r) {
    CHECK_CUDA(cudaSetDevice(r));
    std::vector<float> values(std::size_t{count} * ranks);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(r * 100000) + static_cast<float>(i);
    all[r].write(in[r], values);
    CHECK_CUDA(cudaStreamSynchronize(all[r].stream));
  }
  for (int r = 0; r < ranks; ++r) {
    CHECK_CUDA(cudaSetDevice(r));
    all_to_all<<<blocks, threads, 0, all[r].stream>>>(in[r].window, out[r].window, count, device[r]);
    CHECK_CUDA(cudaGetLastError());
  }
  for (int r = 0; r < ranks; ++r) {
    CHECK_CUDA(cudaSetDevice(r));
    all[r].expect(out[r], std::size_t{count} * ranks, [&](std::size_t i) {
      return static_cast<float>(static_cast<int>(i) / count * 100000 + r * count + static_cast<int>(i) % count);
    });
  }
  for (int r = 0; r < ranks; ++r) {
    CHECK_CUDA(cudaSetDevice(r));
    CHECK_NCCL(ncclDevCommDestroy(comms[r], &device[r]));
    all[r].free(in[r]);
    all[r].free(out[r]);
    CHECK_CUDA(cudaStreamDestroy(all[r].stream));
  }
  CHECK_NCCL(ncclGroupStart());
  for (int r = 0; r < ranks; ++r) CHECK_NCCL(ncclCommDestroy(comms[r]));
  CHECK_NCCL(ncclGroupEnd());
  std::printf("%d ranks: right\n", ranks);
}
