// An all-reduce by the switch: each rank sums all that it needs (one shot), or its part, which it stores to all (two).
#include "ranks.h"

#include <nccl_device.h>

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr std::size_t count = 3360;  // parts of whole float4

__device__ float4 sum_of_all(const float* address) {
  float4 sum;
  asm volatile("multimem.ld_reduce.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(sum.x), "=f"(sum.y), "=f"(sum.z), "=f"(sum.w)
               : "l"(address)
               : "memory");
  return sum;
}
__device__ void store_to_all(float* address, float4 value) {
  asm volatile("multimem.st.global.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
}

__global__ void one_shot(ncclWindow_t in, float* out, std::size_t length, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x, true);
  barrier.sync(ncclCoopCta(), cuda::memory_order_acquire);
  const auto* from = static_cast<const float*>(ncclGetLsaMultimemPointer(in, 0, comm));
  for (std::size_t i = 4 * (blockIdx.x * blockDim.x + threadIdx.x); i < length; i += 4 * gridDim.x * blockDim.x)
    *reinterpret_cast<float4*>(out + i) = sum_of_all(from + i);
  barrier.sync(ncclCoopCta(), cuda::memory_order_release);
}

__global__ void two_shot(ncclWindow_t in, ncclWindow_t out, std::size_t length, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x, true);
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);
  const std::size_t part = length / comm.lsaSize, first = comm.lsaRank * part;
  const auto* from = static_cast<const float*>(ncclGetLsaMultimemPointer(in, sizeof(float) * first, comm));
  auto* to = static_cast<float*>(ncclGetLsaMultimemPointer(out, sizeof(float) * first, comm));
  for (std::size_t i = 4 * (blockIdx.x * blockDim.x + threadIdx.x); i < part; i += 4 * gridDim.x * blockDim.x)
    store_to_all(to + i, sum_of_all(from + i));
  barrier.sync(ncclCoopCta(), cuda::memory_order_release);
}

int main() {
  return run_ranks([](const Rank& mine) {
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    CHECK_NCCL(ncclCommQueryProperties(mine.comm, &properties));
    if (!properties.multimemSupport) {
      if (mine.rank == 0) std::printf("no multimem here\n");
      return;
    }
    const Buffer in = mine.allocate(count), out = mine.allocate(count);
    ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    requirements.lsaBarrierCount = blocks;
    requirements.lsaMultimem = true;
    ncclDevComm comm;
    CHECK_NCCL(ncclDevCommCreate(mine.comm, &requirements, &comm));
    for (int round = 0; round < 4; ++round) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(mine.rank + round + static_cast<int>(i % 100));
      mine.write(in, values);
      if (round % 2 == 0) {
        one_shot<<<blocks, threads, 0, mine.stream>>>(in.window, out.data, count, comm);
      } else {
        two_shot<<<blocks, threads, 0, mine.stream>>>(in.window, out.window, count, comm);
      }
      CHECK_CUDA(cudaGetLastError());
      mine.expect(out, count, [&](std::size_t i) {
        return static_cast<float>(mine.ranks * (mine.ranks - 1) / 2 + mine.ranks * (round + static_cast<int>(i % 100)));
      });
    }
    CHECK_NCCL(ncclDevCommDestroy(mine.comm, &comm));
    mine.free(in);
    mine.free(out);
  });
}
