/// \file reduce_scatter.cuh
/// Reduce-scatter: through packets, one trip over the links; straight from the peers' inputs, between two barriers; or
/// in chunks, which chunks.cuh has the protocol of.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/chunks.cuh>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>

namespace devcomm::detail {

template <class T, class Session, class Produce, class Consume, class Operator>
struct reduce_scatter_rounds {
  Session& session;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
  Operator op;
  uint32_t capacity;

  template <int Ranks>
  DEVCOMM_DEVICE void run() const {
    const auto start = session.cursor();
    const int members = Ranks != 0 ? Ranks : session.members().size;
    for (uint64_t begin = packs.begin; begin < packs.end; begin += capacity) {
      const auto count = static_cast<uint32_t>(packs.end - begin < capacity ? packs.end - begin : capacity);
      session.begin_round();
      {
        const trace_span phase = session.trace({"send", span_kind::copy});
        for (auto at = start; at.first() < count; at.next())
          send_shards<shards_at_once<Ranks>, T>(session, members, at, [&](int member) {
            return at.is_below(count) ? static_cast<pack<T>>(produce(member, begin + at.index())) : pack<T>{};
          });
      }
      {
        const trace_span phase = session.trace({"reduce", span_kind::reduction});
        for (auto at = start; at.first() < count; at.next()) {
          const pack<T> result = receive_and_reduce<Ranks, T>(session, members, at, op);
          if (session.is_alive() && at.is_below(count)) consume(begin + at.index(), result);
        }
      }
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank sends each peer that peer's shard of the vector, and reduces the shards that it receives: one trip over
/// the links, without a barrier. Each rank sends `(ranks - 1) / ranks` times the vector, with LL twice that.
///
/// `produce(rank, i)` returns pack `i` of the shard for `rank`; `consume(i, pack)` takes pack `i` of this rank's
/// reduced shard. Each is called once for each `i` in the slice `packs`, and each rank, both by the same thread of the
/// session's group. So the result may overwrite this rank's own shard. Inputs and outputs are private: peers do not
/// access them. `from_shards` and `to_memory` are such functors for vectors in memory.
///
/// `session` is an `lsa::ll_session`, an `lsa::ll128_session` or, for floating-point types, an `lsa::lamport_session`.
/// Shards longer than its capacity take several rounds. Elements accumulate in `accumulator_t<T>` in the order of the
/// ranks: the same bits in every run, and those of `all_reduce_one_shot`.
///
/// *Collective* over the session's group, with the same `packs` on every rank. Checked launches compare them; otherwise
/// ranks that differ time out or get wrong results. After a failure, see `ll_session`, `consume` is called only for
/// packs that arrived from every rank.
template <class T, class Session, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void reduce_scatter(Session& session, slice packs, const Produce& produce, const Consume& consume,
                                   Operator op) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
  static_assert(detail::takes_packs_only<Consume, T>,
                "only all_reduce_two_shot_chunked calls map and complete of a consumer");
  const uint32_t capacity = session.pack_capacity();
  DEVCOMM_ASSERT(capacity > 0, "the mailbox of a reduce-scatter needs a capacity of at least one pack");
  if (capacity == 0) return;
  session.begin_call(call_contract::of<collective_call::reduce_scatter>(packs.begin, packs.end, sizeof(T)));
  const trace_span traced = session.trace_call(collective_call::reduce_scatter, packs.size());
  detail::with_ranks(session.members().size, detail::reduce_scatter_rounds<T, Session, Produce, Consume, Operator>{
                                                 session, packs, produce, consume, op, capacity});
}

}  // namespace devcomm::collective

namespace devcomm::collective {

/// Every rank reads its shard of all inputs and reduces it. Each rank reads `(ranks - 1) / ranks` times the vector of
/// `count` elements over its links. Only inputs are in a window: `output` is private and takes
/// `shard_of(count, ranks, rank)`. It may be that shard of the input.
///
/// Blocks, order of reduction and failures are those of `all_reduce_one_shot_zero_copy`.
///
/// *Collective* over the barrier's group, on every rank of the LSA team, once in each block of the grid, with the same
/// grid and `count`.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void reduce_scatter_zero_copy(lsa::barrier_session<Group>& barrier, sym_ptr<T> input, T* output,
                                             uint64_t count, Operator op) {
  const team ranks = barrier.members();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), input.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(input, count);
  const slice shard = shard_of(count, ranks.size, ranks.rank);
  const slice mine = part_of_block<T>(shard);
  const trace_span traced = barrier.trace_call(collective_call::reduce_scatter_zero_copy, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;
  reduce_copy<T>(
      barrier.group(), ranks.size, [&](int rank) { return static_cast<const T*>(input.lsa(rank)) + mine.begin; }, 1,
      [&](int) { return output + (mine.begin - shard.begin); }, mine.size(), op);
  barrier.sync(memory_order::acq_rel);  // inputs are read
}

/// Every rank stores each peer's shard into scratch memory of that peer, chunk by chunk, and reduces what has come:
/// stores in place of the loads of `reduce_scatter_zero_copy`, which links take better, and no window. `n` rounds of
/// chunks take `n + 1` barriers.
///
/// `produce(rank, i)`, `consume(i, pack)`, the slice `packs` of each shard and the order of reduction are those of
/// `reduce_scatter`, for any type; groups and scratch those of `all_reduce_two_shot_chunked`, whose buffer of results
/// is not used.
///
///     collective::reduce_scatter_chunked<float>(barrier, scratch, packs,
///                                               collective::from_shards<float>{input, count, shard},
///                                               collective::to_memory<float>{output, own_count}, sum{});
///
/// *Collective* over the barrier's group, on every rank of the LSA team, with the same `packs` and scratch; failures
/// are those of `all_reduce_two_shot_chunked`.
template <class T, class Group, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE DEVCOMM_FORCEINLINE void reduce_scatter_chunked(lsa::barrier_session<Group>& barrier,
                                                               const chunk_scratch& scratch, slice packs,
                                                               const Produce& produce, const Consume& consume,
                                                               Operator op) {
  static_assert(detail::takes_packs_only<Consume, T>,
                "only all_reduce_two_shot_chunked calls map and complete of a consumer");
  if (!detail::has_whole_rows(scratch, barrier.members())) return;
  const trace_span traced = barrier.trace_call(collective_call::reduce_scatter_chunked, packs.size());
  detail::with_ranks(barrier.members().size, detail::chunked_reduction<false, T, Group, Produce, Consume, Operator>{
                                                 barrier, barrier.members(), scratch, packs, produce, consume, op});
}

}  // namespace devcomm::collective
