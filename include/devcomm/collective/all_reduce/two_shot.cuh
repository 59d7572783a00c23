/// \file two_shot.cuh
/// Two-shot all-reduce through packets: two trips over the links, each element once on each.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/team.hpp>

namespace devcomm::detail {

template <class T, class Channel, class Produce, class Consume, class Operator>
struct two_shot_rounds {
  Channel& channel;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
  Operator op;
  uint32_t room;  // of one share; the other half of the channel takes the results

  template <int Ranks>
  DEVCOMM_DEVICE void run() const {
    const team ranks_of_channel = channel.members();
    constexpr int at_once = pieces_at_once<Ranks>;
    const int members = Ranks != 0 ? Ranks : ranks_of_channel.size;
    const uint64_t most = uint64_t{room} * static_cast<uint32_t>(members);
    for (uint64_t begin = packs.begin; begin < packs.end; begin += most) {
      const auto count = static_cast<uint32_t>(packs.end - begin < most ? packs.end - begin : most);
      const uint32_t share = (count + static_cast<uint32_t>(members) - 1) / static_cast<uint32_t>(members);
      // Member `m` owns the packs from `m * share` on; of the `i`-th packs of all shares, the first so many exist.
      const auto owners = [&](uint32_t i) {
        const uint32_t last = static_cast<uint32_t>(members) - 1;
        return static_cast<int>(last * share + i < count ? last + 1 : (count - i + share - 1) / share);
      };
      const auto place = [&](int owner, uint32_t i) { return begin + static_cast<uint32_t>(owner) * share + i; };
      // Packs of a member's share that exist.
      const auto held = [&](int owner) {
        const uint32_t first = static_cast<uint32_t>(owner) * share;
        return first < count ? (count - first < share ? count - first : share) : 0;
      };

      channel.begin_round();
      {
        const trace_span phase = channel.trace({"send", span_kind::copy});
        for (auto at = channel.walk(); at.first() < share; at.next())
          send_pieces<at_once, T>(channel, owners(at.first()), at, [&](int owner) {
            return at.is_below(held(owner)) ? static_cast<pack<T>>(produce(place(owner, at.index()))) : pack<T>{};
          });
      }
      {
        const trace_span phase = channel.trace({"reduce", span_kind::reduction});
        for (auto at = channel.walk();
             at.first() < share && static_cast<uint32_t>(ranks_of_channel.rank) * share + at.first() < count; at.next())
          channel.template send_pack_to_all<Ranks == 8 ? 0 : Ranks>(
              at + room, receive_and_reduce<Ranks, T, at_once>(channel, members, at, op));
      }
      {
        const trace_span phase = channel.trace({"receive", span_kind::copy});
        for (auto at = channel.walk(); at.first() < share; at.next())
          receive_pieces<at_once, T>(channel, owners(at.first()), at + room, [&](int owner, const pack<T>& value) {
            if (at.is_below(held(owner))) consume(place(owner, at.index()), value);
          });
      }
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Packs of room that a channel needs for vectors of `packs` packs in one round of `all_reduce_two_shot`.
DEVCOMM_HOST_DEVICE constexpr uint32_t two_shot_capacity(uint64_t packs, int ranks) {
  const auto members = static_cast<uint64_t>(ranks);
  const uint64_t room = 2 * ((packs + members - 1) / members);
  return room < 0xfffffffeu ? static_cast<uint32_t>(room) : 0xfffffffeu;
}

/// Each rank owns a share of the vector: all send it theirs, it reduces, and sends the result to all. Each rank
/// sends `2 * (ranks - 1) / ranks` times the vector, or with LL twice that; no barrier before or after.
///
/// Hooks, channel, order of reduction and failures are those of `all_reduce_one_shot`. A round takes vectors of up to
/// `ranks * pack_capacity() / 2` packs. Nothing waits for a whole share: each pack goes on as it arrives.
///
/// *Collective* over the channel's group, with the same `packs` on every rank.
template <class T, class Channel, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void all_reduce_two_shot(Channel& channel, slice packs, const Produce& produce, const Consume& consume,
                                        Operator op) {
  static_assert(Channel::template can_carry<T>, "this channel cannot carry this type; use an LL mailbox");
  static_assert(detail::takes_packs_only<Consume, T>, "only all_reduce_chunked calls map and complete of a consumer");
  const uint32_t room = decltype(channel.walk())::whole(channel.pack_capacity() / 2);
  DEVCOMM_ASSERT(room > 0, "the channel of a two-shot all-reduce needs a capacity of two packs at least");
  if (room == 0) return;
  channel.begin_call(call_contract::of("all_reduce_two_shot", packs.begin, packs.end, sizeof(T)));
  const trace_span traced = channel.trace_call(collective_call::all_reduce_two_shot, packs.size());
  detail::with_ranks(channel.members().size, detail::two_shot_rounds<T, Channel, Produce, Consume, Operator>{
                                                 channel, packs, produce, consume, op, room});
}

}  // namespace devcomm::collective
