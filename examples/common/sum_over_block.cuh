/// \file sum_over_block.cuh
/// One number from all threads of a block.
#pragma once

#include <devcomm/devcomm.cuh>

namespace example {

/// The sum of `value` over the block; synchronises it. *Requires* whole warps.
inline __device__ float sum_over_block(float value) {
  __shared__ float of_warps[32];
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : 0.0f;
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  __syncthreads();  // before the next call writes
  return value;
}

}  // namespace example
