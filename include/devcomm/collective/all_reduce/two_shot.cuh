/// \file two_shot.cuh
/// Two-shot all-reduce through packets: two trips over the links, each element once on each. See
/// `all_reduce_algorithm`.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>

namespace devcomm::detail {

template <class T, class Session, class Produce, class Consume, class Operator>
struct two_shot_rounds {
  Session& session;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
  Operator op;
  uint32_t capacity;  // of one shard; the other half of the mailbox takes the results

  template <int Ranks>
  DEVCOMM_DEVICE void run() const {
    const int self = session.members().rank;
    constexpr int at_once = shards_at_once<Ranks>;
    const int members = Ranks != 0 ? Ranks : session.members().size;
    const uint64_t most = uint64_t{capacity} * static_cast<uint32_t>(members);
    for (uint64_t begin = packs.begin; begin < packs.end; begin += most) {
      const auto count = static_cast<uint32_t>(packs.end - begin < most ? packs.end - begin : most);
      const uint32_t shard = (count + static_cast<uint32_t>(members) - 1) / static_cast<uint32_t>(members);
      // Member `m` owns the packs from `m * shard` on; `owners(i)` is the number of shards that have a pack `i`.
      const auto owners = [&](uint32_t i) {
        const uint32_t last = static_cast<uint32_t>(members) - 1;
        return static_cast<int>(last * shard + i < count ? last + 1 : (count - i + shard - 1) / shard);
      };
      const auto index_of = [&](int owner, uint32_t i) { return begin + static_cast<uint32_t>(owner) * shard + i; };
      // Packs in a member's shard.
      const auto held = [&](int owner) {
        const uint32_t first = static_cast<uint32_t>(owner) * shard;
        return first < count ? (count - first < shard ? count - first : shard) : 0;
      };

      session.begin_round();
      {
        const trace_span phase = session.trace({"send", span_kind::copy});
        for (auto at = session.cursor(); at.first() < shard; at.next())
          send_shards<at_once, T>(session, owners(at.first()), at, [&](int owner) {
            return at.is_below(held(owner)) ? static_cast<pack<T>>(produce(index_of(owner, at.index()))) : pack<T>{};
          });
      }
      {
        const trace_span phase = session.trace({"reduce", span_kind::reduction});
        for (auto at = session.cursor(); at.first() < shard && static_cast<uint32_t>(self) * shard + at.first() < count;
             at.next())
          session.template send_pack_to_all<Ranks == 8 ? 0 : Ranks>(
              at + capacity, receive_and_reduce<Ranks, T, at_once>(session, members, at, op));
      }
      {
        const trace_span phase = session.trace({"receive", span_kind::copy});
        for (auto at = session.cursor(); at.first() < shard; at.next())
          receive_shards<at_once, T>(session, owners(at.first()), at + capacity, [&](int owner, const pack<T>& value) {
            if (at.is_below(held(owner))) consume(index_of(owner, at.index()), value);
          });
      }
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Capacity in packs that a session needs to all-reduce `packs` packs in one round of `all_reduce_two_shot`.
DEVCOMM_HOST_DEVICE constexpr uint32_t two_shot_capacity(uint64_t packs, int ranks) {
  const auto members = static_cast<uint64_t>(ranks);
  const uint64_t capacity = 2 * ((packs + members - 1) / members);
  return capacity < 0xfffffffeu ? static_cast<uint32_t>(capacity) : 0xfffffffeu;
}

/// Each rank owns a shard of the vector: it receives the shard from all ranks, reduces it, and sends the result to all.
/// Each rank sends `2 * (ranks - 1) / ranks` times the vector, with LL twice that, without a barrier.
///
/// Hooks, session, order of reduction and failures are those of `all_reduce_one_shot`. A round takes vectors of up to
/// `ranks * pack_capacity() / 2` packs. Packs are pipelined: each is forwarded as it arrives.
///
/// *Collective* over the session's group, with the same `packs` on every rank.
template <class T, class Session, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void all_reduce_two_shot(Session& session, slice packs, const Produce& produce, const Consume& consume,
                                        Operator op) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
  static_assert(detail::takes_packs_only<Consume, T>,
                "only all_reduce_two_shot_chunked calls map and complete of a consumer");
  const uint32_t capacity = decltype(session.cursor())::whole(session.pack_capacity() / 2);
  DEVCOMM_ASSERT(capacity > 0, "the mailbox of a two-shot all-reduce needs a capacity of at least two packs");
  if (capacity == 0) return;
  session.begin_call(call_contract::of<collective_call::all_reduce_two_shot>(packs.begin, packs.end, sizeof(T)));
  const trace_span traced = session.trace_call(collective_call::all_reduce_two_shot, packs.size());
  detail::with_ranks(session.members().size, detail::two_shot_rounds<T, Session, Produce, Consume, Operator>{
                                                 session, packs, produce, consume, op, capacity});
}

}  // namespace devcomm::collective
