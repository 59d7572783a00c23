/// \file ring.hpp
/// The ring over a team, and which chunk of an all-reduce passes along it when.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/team.hpp>

namespace devcomm {

/// The member to which the caller sends, where the ring has the order of the team: where the ranks of a host are
/// numbered one after another, as launchers do, it enters and leaves each host once. Otherwise see `ring_order`.
DEVCOMM_HOST_DEVICE constexpr int ring_next(team t) { return t.rank + 1 == t.size ? 0 : t.rank + 1; }
/// The member from which the caller receives.
DEVCOMM_HOST_DEVICE constexpr int ring_previous(team t) { return (t.rank == 0 ? t.size : t.rank) - 1; }

/// A ring over a team in any order: this rank's position, and which rank is at each. Plain data; pass it to the kernel.
/// `channel::ring_table` makes it, of `host::communicator::lsa_ring()` or of an order of the caller's own. The same
/// order on all ranks.
struct ring_order {
  const int32_t* members;  ///< the member at each position, in device memory; null: members are positions
  int32_t size;
  int32_t position;  ///< this rank's
  int32_t next;      ///< member to which this rank sends
  int32_t previous;  ///< member from which it receives

  /// The member at a position. *Requires* `0 <= at < size`.
  DEVCOMM_HOST_DEVICE constexpr int member(int at) const { return members == nullptr ? at : members[at]; }
};

static_assert(sizeof(ring_order) == 24, "it enters kernels");

/// The order of the team.
DEVCOMM_HOST_DEVICE constexpr ring_order in_team_order(team t) {
  return {nullptr, t.size, t.rank, ring_next(t), ring_previous(t)};
}

/// What a member does in one step: it sends one chunk to the next member and receives another from the previous one.
struct ring_step {
  int32_t sends;
  int32_t receives;
  bool reduces;  ///< adds what it receives to its own; otherwise the chunk is complete, and is kept
};

/// Steps of an all-reduce over `t`: as many reduce as only pass results on.
DEVCOMM_HOST_DEVICE constexpr int ring_all_reduce_steps(team t) { return 2 * (t.size - 1); }

/// Step `step` of an all-reduce of `t.size` chunks, in NCCL's order. *Requires* `0 <= step < ring_all_reduce_steps(t)`.
///
/// A member sends in each step what it received, and reduced or kept, in the step before; in step 0 it sends its
/// own input of the chunk before its own. After half of the steps, member `i` has the result of chunk `i`, so that half
/// is a reduce-scatter, and the other an all-gather.
DEVCOMM_HOST_DEVICE constexpr ring_step ring_all_reduce_step(team t, int step) {
  const int32_t behind = step + 1;  // at most 2 size - 2
  return {(t.rank - behind + 2 * t.size) % t.size, (t.rank - behind - 1 + 2 * t.size) % t.size, step < t.size - 1};
}

}  // namespace devcomm
