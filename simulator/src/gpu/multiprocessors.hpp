/// \file multiprocessors.hpp
/// What the multiprocessors of each simulated GPU hold. The same for every GPU.
#pragma once

#include "gpu/launch_shape.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace devcomm::simulator::detail {

namespace gpu_limits {
inline constexpr uint32_t threads_per_block = 1024;
inline constexpr uint32_t threads_per_multiprocessor = 2048;
inline constexpr uint32_t blocks_per_multiprocessor = 32;
inline constexpr uint32_t shared_per_multiprocessor = 233472;  // 228 KiB
inline constexpr uint32_t shared_per_block = 49152;            // 48 KiB without asking
inline constexpr uint32_t shared_per_block_opt_in = 232448;    // 227 KiB
inline constexpr uint32_t shared_reserved_per_block = 1024;
}  // namespace gpu_limits

/// Blocks of `shape` that one multiprocessor can hold at once.
[[nodiscard]] uint32_t blocks_at_once(const launch_shape& shape);

/// The multiprocessors of all GPUs, and what is free on each.
class multiprocessors {
 public:
  /// Reserves what one block needs; the index of the multiprocessor, or -1 when the device is full. A device has as
  /// many as `count` says the first time. `beyond`: one that is full takes it, too.
  [[nodiscard]] int take(int device, int count, const launch_shape& shape, bool beyond);
  void give_back(int device, int index, const launch_shape& shape);

 private:
  struct multiprocessor {
    uint32_t blocks = 0;
    uint32_t threads = 0;
    uint32_t shared = 0;
  };
  struct device_state {
    std::vector<multiprocessor> all;
    size_t next = 0;
  };
  std::vector<device_state> devices_;
};

}  // namespace devcomm::simulator::detail
