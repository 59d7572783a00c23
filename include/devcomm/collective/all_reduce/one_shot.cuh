/// \file one_shot.cuh
/// One-shot all-reduce through packets: the shortest way for small messages.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>

namespace devcomm::detail {

template <class T, class Channel, class Produce, class Consume, class Operator>
struct one_shot_rounds {
  Channel& channel;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
  Operator op;
  uint32_t room;

  template <int Ranks>
  DEVCOMM_DEVICE void run() const {
    for (uint64_t begin = packs.begin; begin < packs.end; begin += room) {
      const auto count = static_cast<uint32_t>(packs.end - begin < room ? packs.end - begin : room);
      channel.begin_round();
      {
        const trace_span phase = channel.trace({"send", span_kind::copy});
        for (auto at = channel.walk(); at.first() < count; at.next())
          channel.template send_pack_to_all<Ranks>(
              at, at.is_below(count) ? static_cast<pack<T>>(produce(begin + at.index())) : pack<T>{});
      }
      {
        const trace_span phase = channel.trace({"reduce", span_kind::reduction});
        for (auto at = channel.walk(); at.first() < count; at.next()) {
          const pack<T> result = receive_and_reduce<Ranks, T>(channel, channel.members().size, at, op);
          if (channel.is_alive() && at.is_below(count)) consume(begin + at.index(), result);
        }
      }
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Packs of room that a channel needs for vectors of `packs` packs in one round of `all_reduce_one_shot`.
DEVCOMM_HOST_DEVICE constexpr uint32_t one_shot_capacity(uint64_t packs) {
  return packs < 0xffffffffu ? static_cast<uint32_t>(packs) : 0xffffffffu;
}

/// Every rank sends its vector to all and reduces all vectors itself: one trip over the links, no barrier
/// before or after. Each rank sends `ranks - 1` times the vector, or with LL twice that.
///
/// `produce(i)` returns pack `i` of this rank's vector, `consume(i, pack)` takes pack `i` of the result; each
/// is called once for each `i` in the slice `packs`, by one thread of the channel's group, the same for both. So a
/// kernel can make its input on the way in and use the result on the way out. Inputs and outputs are this
/// rank's alone: peers touch neither.
///
/// `channel` is an `lsa::ll_session`, an `lsa::ll128_session` or, for floating-point types, an `lsa::lamport_session`.
/// Vectors longer than its capacity take several rounds. Elements accumulate in `accumulator_t<T>` in the order of the
/// ranks, so all ranks get the same bits, in every run.
///
/// *Collective* over the channel's group, with the same `packs` on every rank: checked launches compare them; else
/// ranks that differ wait in vain or get wrong sums. After a failure, see `ll_session`, `consume` is not called for
/// packs that did not come from every rank: what it gets is complete.
template <class T, class Channel, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void all_reduce_one_shot(Channel& channel, slice packs, const Produce& produce, const Consume& consume,
                                        Operator op) {
  static_assert(Channel::template can_carry<T>, "this channel cannot carry this type; use an LL mailbox");
  static_assert(detail::takes_packs_only<Consume, T>, "only all_reduce_chunked calls map and complete of a consumer");
  const uint32_t room = channel.pack_capacity();
  DEVCOMM_ASSERT(room > 0, "the channel of an all-reduce needs a capacity of one pack at least");
  if (room == 0) return;
  channel.begin_call(call_contract::of("all_reduce_one_shot", packs.begin, packs.end, sizeof(T)));
  const trace_span traced = channel.trace_call(collective_call::all_reduce_one_shot, packs.size());
  detail::with_ranks(channel.members().size, detail::one_shot_rounds<T, Channel, Produce, Consume, Operator>{
                                                 channel, packs, produce, consume, op, room});
}

}  // namespace devcomm::collective
