/// \file movers.cuh
/// Who moves a packet: a thread by itself, or the lanes of a warp together.
///
/// Lanes that move packets together wait together too: what one of them finds out on the way, such as that time is up,
/// ends the wait of all at the same look.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/arch/arch.cuh>
#include <devcomm/group.cuh>

namespace devcomm::detail {

/// A thread by itself.
struct one_thread {
  static constexpr uint32_t threads = 1;

  template <class Group>
  DEVCOMM_DEVICE static void check(const Group&) {}
  /// Whether one of them passes true.
  DEVCOMM_DEVICE static bool any(bool predicate) { return predicate; }
  /// For all of them the `value` of one that passes true for `chosen`; where none does, each its own.
  template <class T>
  DEVCOMM_DEVICE static T choose(bool, const T& value) {
    return value;
  }
};

/// All lanes of a warp, which call each function together. Orders no memory.
struct whole_warp {
  static constexpr uint32_t threads = arch::warp_threads;

  template <class Group>
  DEVCOMM_DEVICE static void check([[maybe_unused]] const Group& group) {
    DEVCOMM_ASSERT(group.size() % arch::warp_threads == 0 && group.thread_rank() % arch::warp_threads == arch::lane(),
                   "packs that warps move together need a group of whole warps: give it a multiple of 32 threads");
  }
  DEVCOMM_DEVICE static bool any(bool predicate) { return arch::any(arch::full_mask, predicate); }
  template <class T>
  DEVCOMM_DEVICE static T choose(bool chosen, const T& value) {
    const uint32_t lanes = arch::ballot(arch::full_mask, chosen);
    if (lanes == 0) return value;
    uint32_t lowest = 0;
    while ((lanes >> lowest & 1) == 0) ++lowest;
    return shuffle(arch::full_mask, value, lowest);
  }
};

}  // namespace devcomm::detail
