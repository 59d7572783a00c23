/// \file sum_over_block.cuh
/// One number from all threads of a block, by CUB.
#pragma once

#include <cub/block/block_reduce.cuh>

namespace example {

/// The sum of `value` over a block of `Threads` threads, in all of them; synchronizes it.
template <int Threads>
__device__ float sum_over_block(float value) {
  using reduction = cub::BlockReduce<float, Threads>;
  __shared__ typename reduction::TempStorage storage;
  __shared__ float total;
  const float sum = reduction(storage).Sum(value);  // in thread 0
  if (threadIdx.x == 0) total = sum;
  __syncthreads();
  value = total;
  __syncthreads();  // before the next call writes
  return value;
}

}  // namespace example
