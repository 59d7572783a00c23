/// \file chunk_groups.cuh
/// How kernels in chunks are launched: blocks of one or two groups, each with a barrier and chunks of its own.
#pragma once

#include "perf/algorithm.hpp"

#include <devcomm/devcomm.cuh>

#include <cstdint>

namespace perf {

/// While one group waits at its barrier another moves data, which pays as long as few blocks do.
inline constexpr unsigned max_groups_of_block = 2;
constexpr unsigned groups_of_block(const launch_shape& shape) {
  return shape.blocks <= 32 && shape.threads >= 128 ? max_groups_of_block : 1;
}

/// The calling thread's group of the `groups` of its block.
struct chunk_group {
  devcomm::warp_span group;
  unsigned index;  ///< among all of the launch

  __device__ explicit chunk_group(unsigned groups) : chunk_group(groups, blockDim.x / 32 / groups) {}

 private:
  __device__ chunk_group(unsigned groups, unsigned warps) : chunk_group(groups, warps, threadIdx.x / 32 / warps) {}
  __device__ chunk_group(unsigned groups, unsigned warps, unsigned part)
      : group(part * warps, warps, 1 + part), index(blockIdx.x * groups + part) {}
};

}  // namespace perf
