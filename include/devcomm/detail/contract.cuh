/// \file contract.cuh
/// What the launches of peers must have in common, as the ranks publish it to each other.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/diagnostics/failure.hpp>

namespace devcomm::detail {

/// Which member is the `i`-th when `self` is left out.
DEVCOMM_DEVICE constexpr int nth_peer(int i, int self) { return i < self ? i : i + 1; }

// A launch that follows a timeout arrives at the same epoch again, and stores the same contract while the
// late peer may be reading it: so the words are strong.

DEVCOMM_DEVICE inline void store_contract(launch_contract* slot, launch_contract mine) {
  auto* words = reinterpret_cast<uint64_t*>(slot);
  const uint64_t shape = uint64_t{mine.group_threads} << 32 | mine.grid_blocks;
  arch::store_check(words, shape);
  arch::store_check(words + 1, mine.key);
}

DEVCOMM_DEVICE inline launch_contract load_contract(const launch_contract* slot) {
  const auto* words = reinterpret_cast<const uint64_t*>(slot);
  const uint64_t shape = arch::load_check(words);
  const uint64_t key = arch::load_check(words + 1);
  return {static_cast<uint32_t>(shape), static_cast<uint32_t>(shape >> 32), key};
}

DEVCOMM_DEVICE inline void store_contract(call_contract* slot, const call_contract& mine) {
  auto* words = reinterpret_cast<uint64_t*>(slot);
  for (int i = 0; i < 3; ++i) arch::store_check(words + i, mine.name[i]);
  arch::store_check(words + 3, mine.begin);
  arch::store_check(words + 4, mine.end);
  arch::store_check(words + 5, uint64_t{static_cast<uint32_t>(mine.root)} << 32 | mine.element_bytes);
}

DEVCOMM_DEVICE inline call_contract load_contract(const call_contract* slot) {
  const auto* words = reinterpret_cast<const uint64_t*>(slot);
  const uint64_t last = arch::load_check(words + 5);
  return {{arch::load_check(words), arch::load_check(words + 1), arch::load_check(words + 2)},
          arch::load_check(words + 3),
          arch::load_check(words + 4),
          static_cast<uint32_t>(last),
          static_cast<int32_t>(last >> 32)};
}

DEVCOMM_DEVICE inline bool same_contract(const launch_contract& a, const launch_contract& b) {
  return a.grid_blocks == b.grid_blocks && a.group_threads == b.group_threads && a.key == b.key;
}
DEVCOMM_DEVICE inline bool same_contract(const call_contract& a, const call_contract& b) {
  return a.name[0] == b.name[0] && a.name[1] == b.name[1] && a.name[2] == b.name[2] && a.begin == b.begin &&
         a.end == b.end && a.element_bytes == b.element_bytes && a.root == b.root;
}

/// Shows this rank's contract to one thread's peers, from peer
/// `first` in steps of `step`, and keeps it in this rank's own slot. `slot` is the slot on member 0, `stride` the bytes
/// from one member's to the next's. *Ordering*: releases; a relaxed store of the flags may follow.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline void show_contract(char* slot, int64_t stride, int self, int members, int first,
                                                          int step, launch_contract mine) {
  if (first == 0) store_contract(reinterpret_cast<launch_contract*>(slot + self * stride), mine);
  DEVCOMM_UNROLL_BY(1)
  for (int i = first; i < members - 1; i += step)
    store_contract(reinterpret_cast<launch_contract*>(slot + nth_peer(i, self) * stride), mine);
  arch::check_fence<memory_order::release>();
}

/// The first of one thread's peers whose contract is not this rank's, or -1. `slots` holds what each member
/// showed. *Ordering*: acquires; relaxed loads of the flags may come before.
DEVCOMM_DEVICE inline int first_difference(const launch_contract* slots, int self, int members, int first, int step) {
  arch::check_fence<memory_order::acquire>();
  const launch_contract mine = load_contract(slots + self);
  DEVCOMM_UNROLL_BY(1)
  for (int i = first; i < members - 1; i += step) {
    if (!same_contract(load_contract(slots + nth_peer(i, self)), mine)) return nth_peer(i, self);
  }
  return -1;
}

}  // namespace devcomm::detail
