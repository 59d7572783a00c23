/// \file tile.cuh
/// A warp, or an aligned power-of-two part of one.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/arch.cuh>
#include <devcomm/detail/shuffle.cuh>

namespace devcomm {

/// `Size` consecutive lanes of the caller's warp, starting at a multiple of `Size`.
///
/// *Requires* that all of them call each function together.
template <int Size>
struct tile {
  static_assert(Size == 1 || Size == 2 || Size == 4 || Size == 8 || Size == 16 || Size == 32,
                "a tile is 1, 2, 4, 8, 16 or 32 lanes; use devcomm::lanes for other shapes");

  DEVCOMM_DEVICE static uint32_t thread_rank() { return detail::arch::lane() % Size; }
  DEVCOMM_DEVICE static constexpr uint32_t size() { return Size; }
  DEVCOMM_DEVICE static void sync() { detail::arch::sync_warp(mask()); }
  DEVCOMM_DEVICE static bool any(bool predicate) { return detail::arch::any(mask(), predicate); }

  /// `value` of member `root`, for all members.
  template <class T>
  DEVCOMM_DEVICE static T broadcast(const T& value, uint32_t root) {
    DEVCOMM_ASSERT(root < size(), "broadcast root is outside the group");
    return detail::shuffle(mask(), value, first_lane() + root);
  }

  /// The lanes as CUDA's warp functions name them.
  DEVCOMM_DEVICE static uint32_t mask() {
    DEVCOMM_ASSERT(detail::arch::thread_rank() - thread_rank() + Size <= detail::arch::block_threads(),
                   "the block ends within the tile");
    if constexpr (Size == 32) return detail::arch::full_mask;
    return ((1u << (Size % 32)) - 1u) << first_lane();
  }

 private:
  DEVCOMM_DEVICE static uint32_t first_lane() { return detail::arch::lane() / Size * Size; }
};

using warp = tile<32>;

}  // namespace devcomm
