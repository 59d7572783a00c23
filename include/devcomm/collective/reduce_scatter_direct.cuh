/// \file reduce_scatter_direct.cuh
/// Reduce-scatter straight from the peers' inputs, between two barriers.
#pragma once

#include <devcomm/collective/pieces.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/reduce_copy.cuh>
#include <devcomm/trace_span.cuh>

namespace devcomm::collective {

/// Every rank reads its piece of all inputs and reduces it. Each rank reads `(ranks - 1) / ranks` times the vector of
/// `count` elements over its links, and only inputs lie in a window: `output` is this rank's alone, and takes
/// `piece_of(count, ranks, rank)`. It may be the place of that piece in the input.
///
/// Blocks, order of reduction and failures are those of `all_reduce_one_shot_pull`.
///
/// *Collective* over `group`, which is the barrier's, on every rank of `comm.lsa()`, once in each block of the grid,
/// with the same grid and `count`.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void reduce_scatter_direct(lsa::barrier_session<Group>& barrier, const Group& group,
                                          const device_comm& comm, sym_ptr<T> input, T* output, uint64_t count,
                                          Operator op) {
  const team ranks = comm.lsa();
  const slice piece = piece_of(count, ranks.size, ranks.rank);
  const slice mine = part_of_block<T>(piece);
  const trace_span traced = barrier.trace_call(collective_call::reduce_scatter_direct, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;
  reduce_copy<T>(
      group, ranks.size, [&](int rank) { return static_cast<const T*>(input.lsa(rank)) + mine.begin; }, 1,
      [&](int) { return output + (mine.begin - piece.begin); }, mine.size(), op);
  barrier.sync(memory_order::acq_rel);  // inputs are read
}

}  // namespace devcomm::collective
