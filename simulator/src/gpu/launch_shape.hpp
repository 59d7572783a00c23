/// \file launch_shape.hpp
/// Shape of a launch, and the built-in variables by which a kernel sees it.
#pragma once

#include <vector_types.h>

#include <devcomm/simulator/detail/execution.hpp>

#include <cstddef>
#include <cstdint>

namespace devcomm::simulator::detail {

struct launch_shape {
  dim3 grid;
  dim3 block;
  size_t dynamic_bytes = 0;
  dim3 cluster{1, 1, 1};
  bool cooperative = false;
  bool programmatic = false;  ///< may start before the launch before it in its stream has ended

  [[nodiscard]] uint64_t blocks() const { return uint64_t{grid.x} * grid.y * grid.z; }
  [[nodiscard]] uint32_t threads() const { return block.x * block.y * block.z; }
  [[nodiscard]] uint32_t cluster_blocks() const { return cluster.x * cluster.y * cluster.z; }
};

/// Why a grid cannot have clusters of that dimension; null if it can.
[[nodiscard]] const char* wrong_cluster(const dim3& grid, const dim3& cluster);

/// `blockIdx` of the block with that rank in its grid, x fastest.
[[nodiscard]] uint3 block_index(const dim3& grid, uint64_t block_rank);
/// Sets the built-in variables that are the same for all threads of the block which the calling OS thread runs.
void set_block_variables(const dim3& grid, const dim3& block, uint64_t block_rank);

}  // namespace devcomm::simulator::detail
