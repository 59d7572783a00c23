/// \file two_shot_zero_copy.cuh
/// Two-shot all-reduce straight from the peers' inputs to their outputs, between two barriers. See
/// `all_reduce_algorithm`.
#pragma once

#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>

namespace devcomm::collective {

/// Each rank owns a shard of the vector: it reads the shard from all inputs, reduces it, and writes the result to all
/// outputs. For large vectors when there is no scratch memory; with chunk buffers `all_reduce_two_shot_chunked` is
/// faster. Each rank reads and writes `(ranks - 1) / ranks` times the vector over its links.
///
///     lsa::barrier_session barrier{block{}, comm, blockIdx.x};
///     collective::all_reduce_two_shot_zero_copy<float>(barrier, tensor, tensor, count, sum{});  // in place
///
/// `input` and `output` may be the same memory. Elements accumulate in `accumulator_t<T>` in the order of the ranks,
/// and each is computed once, so all ranks get the same bits in every run.
///
/// *Blocks*: block `b` synchronizes only with block `b` of the other ranks. Inputs must be complete before the launch,
/// and outputs are complete after it, or the grid is synchronized before and after the call.
///
/// *Collective* over the barrier's group on every rank of the LSA team, once in each block of the grid, with the same
/// grid and `count`. After a failure, see `barrier_session`, the output is undefined; a failure at the first barrier
/// leaves outputs unchanged.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void all_reduce_two_shot_zero_copy(lsa::barrier_session<Group>& barrier, sym_ptr<T> input,
                                                  sym_ptr<T> output, uint64_t count, Operator op) {
  const team ranks = barrier.members();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), input.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(input, count);
  detail::check_in_window(output, count);
  const auto members = static_cast<uint64_t>(ranks.size);
  const uint64_t shard = (packs_of<T>(count) + members - 1) / members;  // of each rank, in packs
  const slice mine = slice_of_block(shard);
  const auto element = [&](uint64_t p) {
    const uint64_t i = (static_cast<uint64_t>(ranks.rank) * shard + p) * pack<T>::size;
    return i < count ? i : count;
  };
  const uint64_t first = element(mine.begin);

  const trace_span traced = barrier.trace_call(collective_call::all_reduce_two_shot_zero_copy, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  reduce_copy<T>(
      barrier.group(), ranks.size, [&](int rank) { return static_cast<const T*>(input.lsa(rank)) + first; }, ranks.size,
      [&](int step) {  // ranks write to different peers at a time
        const int rank = ranks.rank + step;
        return output.lsa(rank < ranks.size ? rank : rank - ranks.size) + first;
      },
      element(mine.end) - first, op);
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective
