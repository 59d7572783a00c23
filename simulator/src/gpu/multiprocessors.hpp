/// \file multiprocessors.hpp
/// What the multiprocessors of each simulated GPU hold. The same for every GPU.
#pragma once

#include "engine/grid.hpp"

#include <cstdint>

namespace devcomm::simulator::detail::resources {

inline constexpr uint32_t threads_per_block = 1024;
inline constexpr uint32_t threads_per_multiprocessor = 2048;
inline constexpr uint32_t blocks_per_multiprocessor = 32;
inline constexpr uint32_t shared_per_multiprocessor = 233472;  // 228 KiB
inline constexpr uint32_t shared_per_block = 49152;            // 48 KiB without asking
inline constexpr uint32_t shared_per_block_opt_in = 232448;    // 227 KiB
inline constexpr uint32_t shared_reserved_per_block = 1024;

/// Blocks of `shape` that one multiprocessor can hold at once.
[[nodiscard]] uint32_t blocks_at_once(const launch_shape& shape);

/// Takes room for one block; the multiprocessor, or -1 when the device is full.
[[nodiscard]] int take(int device, const launch_shape& shape);
void give_back(int device, int multiprocessor, const launch_shape& shape);

}  // namespace devcomm::simulator::detail::resources
