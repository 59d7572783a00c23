/// \file broadcast_direct.cuh
/// Broadcast straight into the peers' outputs, in two steps between three barriers.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/all_gather_direct.cuh>
#include <devcomm/trace_span.cuh>

namespace devcomm::collective {

/// The root writes to each rank its piece of the vector, and each rank writes its piece to the others: all links carry
/// it, and the root's no more than `2 * (ranks - 1) / ranks` times the vector of `count` elements. Only outputs lie in
/// a window; `input` is the root's alone, may be its output, and is not looked at on other ranks. All bits arrive as
/// they are.
///
/// Blocks and failures are those of `all_gather_direct`.
///
/// *Collective* over `group`, which is the barrier's, on every rank of `comm.lsa()`, once in each block of the grid,
/// with the same grid, `root` and `count`. *Requires* that `root` is a rank of `comm.lsa()`; for another, nothing is
/// done.
template <class T, class Group>
DEVCOMM_DEVICE void broadcast_direct(lsa::barrier_session<Group>& barrier, const Group& group, const device_comm& comm,
                                     int root, const T* input, sym_ptr<T> output, uint64_t count) {
  const team ranks = comm.lsa();
  DEVCOMM_ASSERT(root >= 0 && root < ranks.size, "the root of a broadcast is outside comm.lsa()");
  if (root < 0 || root >= ranks.size) return;
  const int to_root = root >= ranks.rank ? root - ranks.rank : root - ranks.rank + ranks.size;

  const trace_span traced = barrier.trace_call(collective_call::broadcast_direct, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a peer that is late may still use its memory
  if (to_root == 0) {
    for (int step = 0; step < ranks.size; ++step) {
      const int rank = root + step < ranks.size ? root + step : root + step - ranks.size;
      const slice part = part_of_block<T>(piece_of(count, ranks.size, rank));
      if (rank != root) copy(group, output.lsa(rank) + part.begin, input + part.begin, part.size());
      if (output.local() != input) copy(group, output.local() + part.begin, input + part.begin, part.size());
    }
  }

  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;
  const slice mine = part_of_block<T>(piece_of(count, ranks.size, ranks.rank));
  if (to_root == 0) {
    detail::push_part(group, ranks, ranks.size - 1, 1, ranks.size, input + mine.begin, output, mine);
  } else {
    detail::push_part(group, ranks, ranks.size - 2, 1, to_root, static_cast<const T*>(output.local()) + mine.begin,
                      output, mine);
  }
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective
