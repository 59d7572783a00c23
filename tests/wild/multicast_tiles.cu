// Both blocks of a cluster need the same tiles: each loads half of a tile into the shared memory of both by one copy. A
// stage is empty when both blocks have used it, so consumers arrive at the mbarriers of both.
// options: --ranks 1
//
// bug 1: consumers arrive at their own block's mbarrier alone
//   race: data race .* variable .*stage
// bug 2: the blocks do not wait until the other's mbarriers are there
//   race: there is no mbarrier|data race .* variable
// bug 3: a block ends while the other's copies still come in
//   race: there is no mbarrier|the block ends while a bulk copy still writes its shared memory|by the end of a block
#include <cuda_runtime.h>
#include <cuda/ptx>

#include <cstdint>
#include <cstdio>
#include <vector>

#if !defined(BUG)
#  define BUG 0
#endif

namespace ptx = cuda::ptx;

constexpr int tiles = 6;
constexpr int width = 128;

__global__ void __cluster_dims__(2) sum_tiles(const int* in, int* out) {
  __shared__ alignas(128) int stage[width];
  __shared__ uint64_t full, empty;
  const unsigned rank = ptx::get_sreg_cluster_ctarank();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_init(&empty, BUG == 1 ? 1 : 2);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
#if BUG == 2
  __syncthreads();
#else
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
#endif
  int sum = 0;
  for (int t = 0; t < tiles; ++t) {
    if (threadIdx.x == 0) {
      while (!ptx::mbarrier_try_wait_parity(&empty, (t & 1) ^ 1)) {
      }
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof stage);
      const unsigned half = rank * width / 2;
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage + half, in + t * width + half, sizeof stage / 2,
                         &full, static_cast<uint16_t>(3));
    }
    while (!ptx::mbarrier_try_wait_parity(&full, t & 1)) {
    }
    sum += stage[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      const auto mine = static_cast<unsigned>(__cvta_generic_to_shared(&empty));
      for (unsigned to = 0; to < 2; ++to) {
        if (BUG == 1 && to != rank) continue;
        asm volatile(
            "{\n"
            "  .reg .b32 there;\n"
            "  mapa.shared::cluster.u32 there, %0, %1;\n"
            "  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
            "}" ::"r"(mine),
            "r"(to)
            : "memory");
      }
    }
  }
  out[blockIdx.x * width + threadIdx.x] = sum;
#if BUG != 3
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
#endif
}

int main() {
  std::vector<int> host(tiles * width);
  for (int i = 0; i < tiles * width; ++i) host[i] = i;
  const size_t bytes = host.size() * sizeof(int);
  int *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaMemcpy(in, host.data(), bytes, cudaMemcpyHostToDevice);
  sum_tiles<<<2, width>>>(in, out);
  cudaMemcpy(host.data(), out, bytes, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < 2 * width; ++i) wrong += host[i] != tiles * (i % width) + width * tiles * (tiles - 1) / 2;
  std::printf("%s: %d wrong\n", cudaGetErrorString(cudaGetLastError()), wrong);
  return wrong != 0;
}
