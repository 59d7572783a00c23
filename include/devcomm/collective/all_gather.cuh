/// \file all_gather.cuh
/// All-gather: through packets, one trip over the links; or straight into the peers' outputs, between two barriers.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>

namespace devcomm::detail {

template <class T, class Session, class Produce, class Consume>
struct all_gather_rounds {
  Session& session;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
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
          session.template send_pack_to_all<Ranks>(
              at, at.is_below(count) ? static_cast<pack<T>>(produce(begin + at.index())) : pack<T>{});
      }
      {
        const trace_span phase = session.trace({"receive", span_kind::copy});
        for (auto at = start; at.first() < count; at.next())
          receive_shards<shards_at_once<Ranks>, T>(session, members, at, [&](int member, const pack<T>& value) {
            if (at.is_below(count)) consume(member, begin + at.index(), value);
          });
      }
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank sends its shard of the vector to all: one trip over the links, without a barrier. Each rank sends
/// `ranks - 1` times its shard, with LL twice that.
///
/// `produce(i)` returns pack `i` of this rank's shard; `consume(rank, i, pack)` takes pack `i` of `rank`'s shard. Each
/// is called once for each `i` in the slice `packs`, and each rank, both by the same thread of the session's group. So
/// this rank's shard may already be at its position in the result. Inputs and outputs are private: peers do not access
/// them. `from_memory` and `to_shards` are such functors for vectors in memory.
///
/// `session` is an `lsa::ll_session` or an `lsa::ll128_session`, which transfer all bits, or, for floating-point types,
/// an `lsa::lamport_session`, which may change the bits of a NaN. Shards longer than its capacity take several rounds.
///
/// *Collective* over the session's group, with the same `packs` on every rank. Checked launches compare them; otherwise
/// ranks that differ time out or get wrong results. After a failure, see `ll_session`, `consume` is called only for
/// packs that arrived.
template <class T, class Session, class Produce, class Consume>
DEVCOMM_DEVICE void all_gather(Session& session, slice packs, const Produce& produce, const Consume& consume) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
  const uint32_t capacity = session.pack_capacity();
  DEVCOMM_ASSERT(capacity > 0, "the mailbox of an all-gather needs a capacity of at least one pack");
  if (capacity == 0) return;
  session.begin_call(call_contract::of<collective_call::all_gather>(packs.begin, packs.end, sizeof(T)));
  const trace_span traced = session.trace_call(collective_call::all_gather, packs.size());
  detail::with_ranks(session.members().size, detail::all_gather_rounds<T, Session, Produce, Consume>{
                                                 session, packs, produce, consume, capacity});
}

}  // namespace devcomm::collective

namespace devcomm::detail {

/// Copies from `source` to elements `part` of the outputs of `targets` ranks. Starts at the rank `first` after this one
/// and skips the one `skipped` after it, so that the ranks write to different peers at a time.
template <class T, class Group>
DEVCOMM_DEVICE void push_part(const Group& group, team ranks, int targets, int first, int skipped, const T* source,
                              sym_ptr<T> output, collective::slice part) {
  copy_to_all<T>(
      group, targets,
      [&](int d) {
        const int step = first + d < skipped ? first + d : first + d + 1;
        const int rank = ranks.rank + step;
        return output.lsa(rank < ranks.size ? rank : rank - ranks.size) + part.begin;
      },
      source, part.size());
}

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank writes its shard, `shard_of(count, ranks, rank)`, to the outputs of all. Each rank writes `ranks - 1`
/// times its shard over its links. Only outputs, of `count` elements, are in a window: `input` is private, and may be
/// the shard's position in the output. All bits are transferred unchanged.
///
/// *Blocks*: block `b` synchronizes only with block `b` of the other ranks. Outputs may be written from the launch on
/// and are complete after it, or the grid is synchronized before and after the call.
///
/// *Collective* over the barrier's group, on every rank of the LSA team, once in each block of the grid, with the same
/// grid and `count`. After a failure, see `barrier_session`, the output is undefined; a failure at the first barrier
/// leaves outputs unchanged.
template <class T, class Group>
DEVCOMM_DEVICE void all_gather_zero_copy(lsa::barrier_session<Group>& barrier, const T* input, sym_ptr<T> output,
                                         uint64_t count) {
  const team ranks = barrier.members();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(output, count);
  const slice shard = shard_of(count, ranks.size, ranks.rank);
  const trace_span traced = barrier.trace_call(collective_call::all_gather_zero_copy, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  for_each_part_of_block<T>(shard, [&](slice part) {
    detail::push_part(barrier.group(), ranks, ranks.size, 0, ranks.size, input + (part.begin - shard.begin), output,
                      part);
  });
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective
