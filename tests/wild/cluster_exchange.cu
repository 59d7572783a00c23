// Clusters of blocks that use each other's shared memory: one reads its neighbor's values, one writes to the next
// block's. Without cooperative groups in the second, as kernels do that are written in PTX.
// options: --ranks 1
//
// bug 1: the neighbor's values are read before it is known to have started
//   race: not ordered with the earlier write of .* by (the start of a block|device 0)
// bug 2: a block ends while its neighbor still reads its values
//   race: by the end of a block, with which its shared memory goes
// bug 3: the barrier after the writes does not release
//   race: data race .* variable .*box
// bug 4: a block asks for one that its cluster does not have
//   plain: the cluster has 2 blocks, and none of rank 2
// bug 5: threads arrive at the cluster's barrier twice before they wait
//   plain: arrives at the cluster's barrier again without waiting
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#if !defined(BUG)
#  define BUG 0
#endif

namespace cg = cooperative_groups;

constexpr int threads = 64;
constexpr int blocks = 8;

__global__ void __cluster_dims__(2, 1, 1) add_neighbors(const int* in, int* out) {
  __shared__ int part[threads];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned i = blockIdx.x * threads + threadIdx.x;
  part[threadIdx.x] = in[i];
#if BUG == 1
  __syncthreads();
#else
#  if BUG == 5
  cluster.barrier_arrive();
#  endif
  cluster.sync();
#endif
  const int* theirs = cluster.map_shared_rank(part, BUG == 4 ? 2 : cluster.block_rank() ^ 1);
  out[i] = part[threadIdx.x] + theirs[threadIdx.x];
#if BUG != 2
  cluster.sync();
#endif
}

__global__ void __cluster_dims__(4) pass_on(int* out) {
  __shared__ int box;
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const auto mine = static_cast<unsigned>(__cvta_generic_to_shared(&box));
  unsigned next;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(next) : "r"(mine), "r"((rank + 1) % 4));
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0) asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(next), "r"(100 + rank) : "memory");
#if BUG == 3
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#else
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
  if (threadIdx.x == 0) out[blockIdx.x] = box;
}

int main() {
  std::vector<int> host(blocks * threads);
  for (int i = 0; i < blocks * threads; ++i) host[i] = i;
  const size_t bytes = host.size() * sizeof(int);
  int *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaMemcpy(in, host.data(), bytes, cudaMemcpyHostToDevice);
  add_neighbors<<<blocks, threads>>>(in, out);
  cudaMemcpy(host.data(), out, bytes, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < blocks * threads; ++i) wrong += host[i] != i + (i ^ threads);
  pass_on<<<blocks, 32>>>(out);
  cudaMemcpy(host.data(), out, bytes, cudaMemcpyDeviceToHost);
  for (int i = 0; i < blocks; ++i) wrong += host[i] != 100 + (i + 3) % 4;
  std::printf("%s: %d wrong\n", cudaGetErrorString(cudaGetLastError()), wrong);
  return wrong != 0;
}
