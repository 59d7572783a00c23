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

/// Every rank sends its shard of the vector to all: one trip over the links, no barrier before or after. Each rank
/// sends `ranks - 1` times its shard, or with LL twice that.
///
/// `produce(i)` returns pack `i` of this rank's shard, `consume(rank, i, pack)` takes pack `i` of `rank`'s shard; each
/// is called once for each `i` in the slice `packs`, and each rank, by one thread of the session's group, the same for
/// both. So this rank's shard may be where the result puts it. Inputs and outputs are this rank's alone: peers touch
/// neither. `from_memory` and `to_shards` are such functors for vectors in memory.
///
/// `session` is an `lsa::ll_session` or an `lsa::ll128_session`, which bring all bits, or, for floating-point types, an
/// `lsa::lamport_session`, which may bring another NaN. Shards longer than its capacity take several rounds.
///
/// *Collective* over the session's group, with the same `packs` on every rank: checked launches compare them; else
/// ranks that differ wait in vain or get wrong results. After a failure, see `ll_session`, `consume` is not called for
/// packs that did not come: what it gets is complete.
template <class T, class Session, class Produce, class Consume>
DEVCOMM_DEVICE void all_gather(Session& session, slice packs, const Produce& produce, const Consume& consume) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an LL mailbox");
  const uint32_t capacity = session.pack_capacity();
  DEVCOMM_ASSERT(capacity > 0, "the session of an all-gather needs a capacity of one pack at least");
  if (capacity == 0) return;
  session.begin_call(call_contract::of<collective_call::all_gather>(packs.begin, packs.end, sizeof(T)));
  const trace_span traced = session.trace_call(collective_call::all_gather, packs.size());
  detail::with_ranks(session.members().size, detail::all_gather_rounds<T, Session, Produce, Consume>{
                                                 session, packs, produce, consume, capacity});
}

}  // namespace devcomm::collective

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

/// Every rank writes its shard, `shard_of(count, ranks, rank)`, to the outputs of all. Each rank writes `ranks - 1`
/// times its shard over its links, and only outputs, of `count` elements, lie in a window: `input` is this rank's
/// alone, and may be the place of its shard in the output. All bits arrive as they are.
///
/// Each block meets its like on the other ranks, and no other block: outputs may be written from the launch on, and are
/// complete after it, or the grid is synchronised before and after the call.
///
/// *Collective* over `group`, which is the barrier's, on every rank of `comm.lsa()`, once in each block of the grid,
/// with the same grid and `count`. After a failure, see `barrier_session`, the output is not to be trusted; one at the
/// first barrier leaves outputs alone.
template <class T, class Group>
DEVCOMM_DEVICE void all_gather_zero_copy(lsa::barrier_session<Group>& barrier, const T* input, sym_ptr<T> output,
                                         uint64_t count) {
  const team ranks = barrier.members();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  const slice shard = shard_of(count, ranks.size, ranks.rank);
  const slice mine = part_of_block<T>(shard);
  const trace_span traced = barrier.trace_call(collective_call::all_gather_zero_copy, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a peer that is late may still use its memory
  detail::push_part(barrier.group(), ranks, ranks.size, 0, ranks.size, input + (mine.begin - shard.begin), output,
                    mine);
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective
