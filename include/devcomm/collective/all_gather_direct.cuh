/// \file all_gather_direct.cuh
/// All-gather straight into the peers' outputs, between two barriers.
#pragma once

#include <devcomm/collective/pieces.cuh>
#include <devcomm/copy.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/trace_span.cuh>

namespace devcomm::detail {

/// Copies from `source` to elements `part` of the outputs of `places` ranks: from `first` ranks after this one on,
/// without the one that comes `skipped` ranks after it, so that not all ranks write to one at a time.
template <class T, class Group>
DEVCOMM_DEVICE void push_part(const Group& group, team ranks, int places, int first, int skipped, const T* source,
                              sym_ptr<T> output, collective::slice part) {
  copy_to_all<T>(
      group, places,
      [&](int d) {
        const int step = first + d < skipped ? first + d : first + d + 1;
        const int rank = ranks.rank + step;
        return output.lsa(rank < ranks.size ? rank : rank - ranks.size) + part.begin;
      },
      source, part.size());
}

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank writes its piece, `piece_of(count, ranks, rank)`, to the outputs of all. Each rank writes `ranks - 1`
/// times its piece over its links, and only outputs, of `count` elements, lie in a window: `input` is this rank's
/// alone, and may be the place of its piece in the output. All bits arrive as they are.
///
/// Each block meets its like on the other ranks, and no other block: outputs may be written from the launch on, and are
/// complete after it, or the grid is synchronised before and after the call.
///
/// *Collective* over `group`, which is the barrier's, on every rank of `comm.lsa()`, once in each block of the grid,
/// with the same grid and `count`. After a failure, see `barrier_session`, the output is not to be trusted; one at the
/// first barrier leaves outputs alone.
template <class T, class Group>
DEVCOMM_DEVICE void all_gather_direct(lsa::barrier_session<Group>& barrier, const Group& group, const device_comm& comm,
                                      const T* input, sym_ptr<T> output, uint64_t count) {
  const team ranks = comm.lsa();
  const slice piece = piece_of(count, ranks.size, ranks.rank);
  const slice mine = part_of_block<T>(piece);
  const trace_span traced = barrier.trace_call(collective_call::all_gather_direct, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a peer that is late may still use its memory
  detail::push_part(group, ranks, ranks.size, 0, ranks.size, input + (mine.begin - piece.begin), output, mine);
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective
