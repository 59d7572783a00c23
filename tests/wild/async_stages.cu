// Reverses rows of 64 elements: each thread copies 16 bytes of the next row by cp.async while the row before is used.
// options: --ranks 1
//
// bug 1: one group more may be pending than the use of a row allows
//   race: data race .* variable .*rows
// bug 2: threads use what others copied without a barrier
//   race: data race .* variable .*rows
// bug 3: a row is copied again before all threads have used it
//   race: data race .* variable .*rows
// bug 4: nobody waits for the copies
//   race: data race .* variable .*rows
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#if !defined(BUG)
#  define BUG 0
#endif

constexpr int width = 64;
constexpr int height = 5;

__device__ void copy(float4* to, const float4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}

__global__ void reverse(const float4* in, float4* out) {
  __shared__ float4 rows[2][width];
  const unsigned t = threadIdx.x;
  copy(&rows[0][t], in + t);
  asm volatile("cp.async.commit_group;" ::: "memory");
  for (int i = 0; i < height; ++i) {
    if (i + 1 < height) copy(&rows[(i + 1) % 2][t], in + (i + 1) * width + t);
    asm volatile("cp.async.commit_group;" ::: "memory");
#if BUG == 1
    asm volatile("cp.async.wait_group 2;" ::: "memory");
#elif BUG != 4
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
#if BUG != 2
    __syncthreads();
#endif
    out[i * width + t] = rows[i % 2][width - 1 - t];
#if BUG != 3
    __syncthreads();
#endif
  }
}

int main() {
  std::vector<float4> host(width * height);
  for (int i = 0; i < width * height; ++i) host[i] = {static_cast<float>(i), 0, 0, 1};
  const size_t bytes = host.size() * sizeof(float4);
  float4 *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaMemcpy(in, host.data(), bytes, cudaMemcpyHostToDevice);
  reverse<<<1, width>>>(in, out);
  cudaMemcpy(host.data(), out, bytes, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < width * height; ++i)
    wrong += host[i].x != static_cast<float>(i / width * width + width - 1 - i % width);
  std::printf("%s: %d wrong\n", cudaGetErrorString(cudaGetLastError()), wrong);
  return wrong != 0;
}
