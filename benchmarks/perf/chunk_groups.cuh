/// \file chunk_groups.cuh
/// How kernels in chunks are launched: blocks of one or two groups, each with a barrier and chunks of its own.
#pragma once

#include "perf/algorithm.hpp"
#include "perf/options.hpp"

#include <devcomm/devcomm.cuh>

#include <cstdint>
#include <string>

namespace perf {

/// While one group waits at its barrier another moves data, which pays as long as few blocks do.
inline constexpr unsigned most_groups_of_block = 2;
constexpr unsigned groups_of_block(const launch_shape& shape) {
  return shape.blocks <= 32 && shape.threads >= 128 ? most_groups_of_block : 1;
}
/// Bytes of the buffers for inputs, and for results: more is no faster, half is slower (docs/performance.md).
constexpr std::uint64_t chunk_buffer_bytes(bool simulated) { return simulated ? 1 << 15 : 32 << 20; }

inline void check_groups(const launch_shape& shape, const std::string& name) {
  const unsigned groups = groups_of_block(shape);
  if (shape.threads % (32 * groups) != 0)
    throw usage_error("--threads " + std::to_string(shape.threads) + ": " + name + " takes whole warps for each of " +
                      std::to_string(groups) + " groups of a block: a multiple of " + std::to_string(32 * groups));
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
