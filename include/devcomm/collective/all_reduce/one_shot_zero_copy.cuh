/// \file one_shot_zero_copy.cuh
/// One-shot all-reduce straight from the peers' inputs, between two barriers. See `all_reduce_algorithm`.
#pragma once

#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>

namespace devcomm::collective {

/// Every rank reads the inputs of all ranks and reduces them itself. Each rank reads `ranks - 1` times the vector over
/// its links. Only inputs are in a window: `output` is private, of any alignment, and not the input.
/// `all_reduce_one_shot` takes less time for short vectors, and `all_reduce_two_shot_zero_copy` moves less of long
/// ones.
///
/// Elements accumulate in `accumulator_t<T>` in the order of the ranks, so all ranks get the same bits in every run.
///
/// *Blocks*: block `b` synchronizes only with block `b` of the other ranks. Inputs must be complete before the launch
/// and may be written again after it, or the grid is synchronized before and after the call.
///
/// *Collective* over the barrier's group on every rank of the LSA team, once in each block of the grid, with the same
/// grid and `count`. After a failure, see `barrier_session`, the output is undefined; a failure at the first barrier
/// leaves it unchanged.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void all_reduce_one_shot_zero_copy(lsa::barrier_session<Group>& barrier, sym_ptr<T> input, T* output,
                                                  uint64_t count, Operator op) {
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), input.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(input, count);
  DEVCOMM_ASSERT(
      input.local() + count <= output || output + count <= input.local(),
      "a one-shot all-reduce cannot be in place: peers still read the input; use all_reduce_two_shot_zero_copy");
  const slice mine = part_of_block<T>({0, count});
  const trace_span traced = barrier.trace_call(collective_call::all_reduce_one_shot_zero_copy, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;
  reduce_copy<T>(
      barrier.group(), barrier.members().size,
      [&](int rank) { return static_cast<const T*>(input.lsa(rank)) + mine.begin; }, 1,
      [&](int) { return output + mine.begin; }, mine.size(), op);
  barrier.sync(memory_order::acq_rel);  // inputs are read
}

}  // namespace devcomm::collective
