/// \file hierarchical.cuh
/// All-reduce over the world: reduce-scatter and all-gather inside each LSA team, and the same across, along the rails.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/barrier_session.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/group.cuh>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// The first part of a reduction in two: inputs are prepared, and the result is not finished.
template <class Operator>
struct partial_reduction {
  Operator op;

  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    return op(a, b);
  }
  template <class A, class Given = Operator>
  DEVCOMM_DEVICE auto prepare(A value) const -> decltype(declval<const Given&>().prepare(value)) {
    return op.prepare(value);
  }
};

/// The second part: partial results are reduced and finished, as those of `inputs` inputs.
template <class Operator>
struct rest_of_reduction {
  Operator op;
  int inputs;

  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    return op(a, b);
  }
  template <class A, class Given = Operator>
  DEVCOMM_DEVICE auto finish(A total, int) const -> decltype(declval<const Given&>().finish(total, 1)) {
    return op.finish(total, inputs);
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Packs of a piece of `all_reduce_hierarchical`: each rank of the world reduces one piece of the vector.
template <class T>
DEVCOMM_HOST_DEVICE constexpr uint64_t packs_of_piece(uint64_t count, int ranks) {
  return (packs_of<T>(count) + static_cast<uint64_t>(ranks) - 1) / static_cast<uint64_t>(ranks);
}
/// Elements that `all_reduce_hierarchical` needs as scratch on each rank of a world of `ranks`, `lsa_size` in each LSA
/// team: two pieces for each team.
template <class T>
DEVCOMM_HOST_DEVICE constexpr uint64_t hierarchical_scratch(uint64_t count, int ranks, int lsa_size) {
  return 2 * static_cast<uint64_t>(ranks / lsa_size) * packs_of_piece<T>(count, ranks) * (16 / sizeof(T));
}

/// The reduction of all inputs in every output. The vector has a piece for each rank. Inside an LSA team, each rank
/// reduces the pieces of its rail from all inputs of the team, and puts each of these partial results to the rank of
/// its rail that the piece belongs to; that one reduces what came from all teams, stores the result to the outputs of
/// its team and puts it to those of its rail, who store it to the outputs of theirs. With `h` LSA teams a rank sends
/// `2 * (h - 1)` pieces over the network, the least that is possible, in two trips however many teams there are; a ring
/// takes `2 * (h - 1)` trips. Two barriers of all ranks, two of the rail.
///
///     const auto scratch = needs.add(
///         gin::buffer<float>{collective::hierarchical_scratch<float>(count, comm.size(), comm.lsa().size)});
///
///     collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
///     const auto middle = gin::memory_of(comm, scratch);
///     collective::all_reduce_hierarchical<float>(barrier, tensor, tensor, middle, count, sum{});
///
/// `input` and `output` may be the same memory; `scratch` is neither. Elements accumulate in `accumulator_t<T>`, first
/// in the order of the ranks of a team, then, rounded to `T`, in the order of the teams; each is computed once, so all
/// ranks get the same bits in every run.
///
/// *Blocks*, *Ordering* and failures are those of `all_reduce_two_shot_zero_copy`, on every rank of the world. A rank
/// whose rail fails does not arrive at the last barrier, so that its whole LSA team fails. Blocks share `scratch`:
/// between calls of one launch with different counts the grid is synchronized.
///
/// *Collective* over the barrier's group on every rank of the world, once in each block of the grid, with the same grid
/// and `count`.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void all_reduce_hierarchical(barrier_session<Group>& barrier, sym_ptr<T> input, sym_ptr<T> output,
                                            sym_ptr<T> scratch, uint64_t count, Operator op) {
  const team lsa = barrier.inside().members();
  const team rail = barrier.rail();
  DEVCOMM_ASSERT(detail::spans_lsa_team(lsa, input.memory),
                 "an all-reduce needs windows of the communicator that made the device communicator");
  detail::check_in_window(input, count);
  detail::check_in_window(output, count);
  const uint64_t packs = packs_of_piece<T>(count, barrier.members().size);
  const slice mine = slice_of_block(packs);
  const Group& group = barrier.group();
  // The block's part of the piece of team `t`, of this rail: pieces of a rail are side by side.
  const auto part = [&](int t) {
    const uint64_t before = static_cast<uint64_t>(lsa.rank * rail.size + t) * packs;
    const auto element = [&](uint64_t p) {
      const uint64_t i = (before + p) * pack<T>::size;
      return i < count ? i : count;
    };
    return slice{element(mine.begin), element(mine.end)};
  };
  // A slot for it in scratch: for what goes to team `t`, and for what comes from there.
  const auto slot = [&](bool comes, int t) {
    const uint64_t number = static_cast<uint64_t>(comes ? rail.size + t : t);
    return scratch + static_cast<int64_t>((number * packs + mine.begin) * pack<T>::size);
  };
  const auto at = [](sym_ptr<T> vector, slice where) { return vector + static_cast<int64_t>(where.begin); };

  const trace_span traced = barrier.trace_call(collective_call::all_reduce_hierarchical, count);
  barrier.sync(gin::fence_level::none);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  auto net = barrier.context(group);
  const slice own = part(rail.rank);
  for (int step = 1; step <= rail.size; ++step) {  // the own one last, while the others are on their way
    const int t = (rail.rank + step) % rail.size;
    const slice piece = part(t);
    reduce_copy<T>(
        group, lsa.size, [&](int member) { return static_cast<const T*>(at(input, piece).lsa(member)); }, 1,
        [&](int) { return slot(false, t).local(); }, piece.size(), detail::partial_reduction<Operator>{op});
    if (t != rail.rank && piece.size() != 0)
      net.put(rail.world_rank(t), slot(true, rail.rank), slot(false, t), piece.size());
  }
  // A rank whose rail has failed does not arrive at its LSA barrier again: its team would believe that the call
  // succeeded.
  barrier.sync_rail(gin::fence_level::put);
  if (barrier.agree() != status::success) return;
  reduce_copy<T>(
      group, rail.size, [&](int t) { return static_cast<const T*>(slot(t != rail.rank, t).local()); }, lsa.size,
      [&](int step) { return at(output, own).lsa((lsa.rank + step) % lsa.size); }, own.size(),
      detail::rest_of_reduction<Operator>{op, barrier.members().size});
  for (int step = 1; step < rail.size && own.size() != 0; ++step) {
    const int t = (rail.rank + step) % rail.size;
    net.put(rail.world_rank(t), at(output, own), at(output, own), own.size());
  }
  barrier.sync_rail(gin::fence_level::put);
  if (barrier.agree() != status::success) return;
  for (int step = 1; step < rail.size; ++step) {
    const slice piece = part((rail.rank + step) % rail.size);
    for (int other = 1; other < lsa.size; ++other)
      copy(group, at(output, piece).lsa((lsa.rank + other) % lsa.size),
           static_cast<const T*>(at(output, piece).local()), piece.size());
  }
  barrier.inside().sync();
  net.flush();
}

}  // namespace devcomm::collective
