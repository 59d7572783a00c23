/// \file all_reduce_ll.cuh
/// One-shot all-reduce through LL packets: the shortest way for small messages.
#pragma once

#include <devcomm/lsa/ll_session.cuh>
#include <devcomm/pack.cuh>
#include <devcomm/reduction.cuh>

namespace devcomm::detail {

/// Receives the two packets of pack `p` from all members, `AtOnce` at a time, and reduces in their order.
template <int AtOnce, class T, class Group, class Operator>
DEVCOMM_DEVICE pack<T> receive_and_reduce(lsa::ll_session<Group>& channel, uint64_t p, Operator op) {
  using accumulator = accumulator_t<T>;
  const int members = channel.members().size;
  accumulator total[pack<T>::size];
  DEVCOMM_UNROLL_BY(1)
  for (int first = 0; first < members; first += AtOnce) {
    uint64_t words[AtOnce][2];
    channel.receive(first, static_cast<uint32_t>(2 * p), words);
    DEVCOMM_UNROLL
    for (int i = 0; i < AtOnce; ++i) {
      if (first + i >= members) break;
      pack<T> value;
      copy_bytes(&value, words[i], 16);
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) {
        const auto element = static_cast<accumulator>(value[e]);
        total[e] = first + i == 0 ? element : op(total[e], element);
      }
    }
  }
  pack<T> result;
  DEVCOMM_UNROLL
  for (int e = 0; e < pack<T>::size; ++e) result[e] = static_cast<T>(total[e]);
  return result;
}

}  // namespace devcomm::detail

namespace devcomm::collective {

/// LL packets that a channel needs for messages of `packs` packs in one round.
DEVCOMM_HOST_DEVICE constexpr uint32_t all_reduce_ll_packets(uint32_t packs) { return 2 * packs; }

/// Every rank sends its vector to all and reduces all vectors itself: one trip over the links, no barrier
/// before or after.
///
/// `produce(i)` returns pack `i` of this rank's vector, `consume(i, pack)` takes pack `i` of the result; each
/// is called once for each `i` in `[0, packs)`, by one thread of the channel's group, the same for both. So a
/// kernel can make its input on the way in and use the result on the way out. Inputs and outputs are this
/// rank's alone: peers touch neither.
///
/// Vectors longer than the channel's capacity take several rounds. Elements accumulate in `accumulator_t<T>` in
/// the order of the ranks, so all ranks get the same bits, in every run.
///
/// *Collective* over the channel's group, with the same `packs` on every rank. After a failure, see
/// `ll_session`, `consume` gets zeros.
template <class T, class Group, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void all_reduce_ll(lsa::ll_session<Group>& channel, uint64_t packs, const Produce& produce,
                                  const Consume& consume, Operator op) {
  const uint64_t threads = channel.group().size();
  const uint64_t rank = channel.group().thread_rank();
  const team ranks = channel.members();
  const uint64_t round = channel.capacity() / 2;
  DEVCOMM_ASSERT(round > 0, "an LL channel of an all-reduce needs a capacity of two packets at least");

  for (uint64_t begin = 0; begin < packs; begin += round) {
    const uint64_t count = packs - begin < round ? packs - begin : round;
    for (uint64_t p = rank; p < count; p += threads) {
      uint64_t words[2];
      const pack<T> value = produce(begin + p);
      detail::copy_bytes(words, &value, 16);
      channel.send_to_all(static_cast<uint32_t>(2 * p), words);
    }
    for (uint64_t p = rank; p < count; p += threads) {
      // Few ranks get short code: it is fetched anew by every launch.
      consume(begin + p, ranks.size <= 2   ? detail::receive_and_reduce<2, T>(channel, p, op)
                         : ranks.size <= 4 ? detail::receive_and_reduce<4, T>(channel, p, op)
                                           : detail::receive_and_reduce<8, T>(channel, p, op));
    }
    channel.next_round();
  }
}

}  // namespace devcomm::collective
