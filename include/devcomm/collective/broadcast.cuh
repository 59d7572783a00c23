/// \file broadcast.cuh
/// Broadcast: through packets, one trip over the links; or straight into the peers' outputs, between three barriers.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/all_gather.cuh>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/team.hpp>

namespace devcomm::collective {

/// The root sends its vector to all: one trip over the links, without a barrier. The root sends `ranks - 1` times the
/// vector, with LL twice that; `broadcast_zero_copy` spreads that over all links for large vectors.
///
/// In each round the other ranks send one empty packet to all, and every rank receives these with the first of the
/// root's packs: mailboxes can be used again two rounds later only because all ranks heard from all
/// (lsa/detail/packet_session.cuh). So a broadcast ends on a rank after all ranks have begun it.
///
/// `produce(i)` returns pack `i` of the root's vector; `consume(i, pack)` takes it, on the root as well. Each is called
/// once for each `i` in the slice `packs`, both by the same thread of the session's group, and `produce` on the root
/// only. Inputs and outputs are private: peers do not access them.
///
/// `session` is an `lsa::ll_session` or an `lsa::ll128_session`, which transfer all bits, or, for floating-point types,
/// an `lsa::lamport_session`, which may change the bits of a NaN. Vectors longer than its capacity take several rounds.
///
/// *Collective* over the session's group, with the same `root` and `packs` on every rank. Checked launches compare
/// them; otherwise ranks that differ time out. *Requires* that `root` is a member of the session's team; otherwise does
/// nothing. After a failure, see `ll_session`, `consume` is called only for packs that arrived.
template <class T, class Session, class Produce, class Consume>
DEVCOMM_DEVICE void broadcast(Session& session, int root, slice packs, const Produce& produce, const Consume& consume) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
  const int members = session.members().size;
  const int self = session.members().rank;
  const uint32_t capacity = session.pack_capacity();
  DEVCOMM_ASSERT(capacity > 0, "the mailbox of a broadcast needs a capacity of at least one pack");
  DEVCOMM_ASSERT(root >= 0 && root < members, "the root of a broadcast is outside the session's team");
  if (capacity == 0 || root < 0 || root >= members) return;
  session.begin_call(call_contract::of<collective_call::broadcast>(packs.begin, packs.end, sizeof(T), root));
  const trace_span traced = session.trace_call(collective_call::broadcast, packs.size());

  for (uint64_t begin = packs.begin; begin < packs.end; begin += capacity) {
    const auto count = static_cast<uint32_t>(packs.end - begin < capacity ? packs.end - begin : capacity);
    session.begin_round();
    if (self == root) {
      for (auto at = session.cursor(); at.first() < count; at.next())
        session.send_pack_to_all(at,
                                 at.is_below(count) ? static_cast<pack<T>>(produce(begin + at.index())) : pack<T>{});
    }
    auto at = session.cursor();
    if (at.first() == 0) {
      if (self != root) session.send_pack_to_all(at, pack<T>{});
      detail::receive_shards<4, T>(session, members, at, [&](int member, const pack<T>& value) {
        if (member == root && at.is_below(count)) consume(begin + at.index(), value);
      });
      at.next();
    }
    for (; at.first() < count; at.next()) {
      pack<T> value[1];
      session.receive_packs(root, root + 1, at, value);
      if (session.is_alive() && at.is_below(count)) consume(begin + at.index(), value[0]);
    }
  }
}

}  // namespace devcomm::collective

namespace devcomm::collective {

/// The root writes to each rank a shard of the vector, and each rank writes its shard to the others. This uses all
/// links, the root's for no more than `2 * (ranks - 1) / ranks` times the vector of `count` elements. Only outputs are
/// in a window. `input` is private to the root, may be its output, and is ignored on other ranks. All bits are
/// transferred unchanged.
///
/// Blocks and failures are those of `all_gather_zero_copy`.
///
/// *Collective* over the barrier's group, on every rank of the LSA team, once in each block of the grid, with the same
/// grid, `root` and `count`. *Requires* that `root` is a member of the LSA team; otherwise does nothing.
template <class T, class Group>
DEVCOMM_DEVICE void broadcast_zero_copy(lsa::barrier_session<Group>& barrier, int root, const T* input,
                                        sym_ptr<T> output, uint64_t count) {
  const team ranks = barrier.members();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(output, count);
  DEVCOMM_ASSERT(root >= 0 && root < ranks.size, "the root of a broadcast is outside the LSA team");
  if (root < 0 || root >= ranks.size) return;
  const int to_root = root >= ranks.rank ? root - ranks.rank : root - ranks.rank + ranks.size;

  const trace_span traced = barrier.trace_call(collective_call::broadcast_zero_copy, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  if (to_root == 0) {
    for (int step = 0; step < ranks.size; ++step) {
      const int rank = root + step < ranks.size ? root + step : root + step - ranks.size;
      for_each_part_of_block<T>(shard_of(count, ranks.size, rank), [&](slice part) {
        if (rank != root) copy(barrier.group(), output.lsa(rank) + part.begin, input + part.begin, part.size());
        if (output.local() != input)
          copy(barrier.group(), output.local() + part.begin, input + part.begin, part.size());
      });
    }
  }

  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;
  for_each_part_of_block<T>(shard_of(count, ranks.size, ranks.rank), [&](slice part) {
    if (to_root == 0) {
      detail::push_part(barrier.group(), ranks, ranks.size - 1, 1, ranks.size, input + part.begin, output, part);
    } else {
      detail::push_part(barrier.group(), ranks, ranks.size - 2, 1, to_root,
                        static_cast<const T*>(output.local()) + part.begin, output, part);
    }
  });
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective
