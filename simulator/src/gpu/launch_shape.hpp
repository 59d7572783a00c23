/// \file launch_shape.hpp
/// Shape of a launch.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

namespace devcomm::simulator::detail {

struct launch_shape {
  dim3 grid;
  dim3 block;
  size_t dynamic_bytes = 0;
  bool cooperative = false;

  [[nodiscard]] uint64_t blocks() const { return uint64_t{grid.x} * grid.y * grid.z; }
  [[nodiscard]] uint32_t threads() const { return block.x * block.y * block.z; }
};

}  // namespace devcomm::simulator::detail
