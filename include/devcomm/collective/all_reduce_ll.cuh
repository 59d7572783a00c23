/// \file all_reduce_ll.cuh
/// One-shot all-reduce through LL packets: the shortest way for small messages.
#pragma once

#include <devcomm/lsa/ll_session.cuh>
#include <devcomm/pack.cuh>
#include <devcomm/reduction.cuh>

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
  constexpr int at_once = 8;  // members whose packets are on their way at a time
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
      for (int i = 1; i <= ranks.size; ++i) {  // itself last, and not all to one rank at first
        const int member = ranks.rank + i < ranks.size ? ranks.rank + i : ranks.rank + i - ranks.size;
        channel.send(member, static_cast<uint32_t>(2 * p), words[0]);
        channel.send(member, static_cast<uint32_t>(2 * p + 1), words[1]);
      }
    }
    for (uint64_t p = rank; p < count; p += threads) {
      using accumulator = accumulator_t<T>;
      accumulator total[pack<T>::size];
      for (int first = 0; first < ranks.size; first += at_once) {
        uint64_t words[at_once][2];
        channel.receive(first, static_cast<uint32_t>(2 * p), words);
        DEVCOMM_UNROLL
        for (int i = 0; i < at_once; ++i) {
          if (first + i >= ranks.size) break;
          pack<T> value;
          detail::copy_bytes(&value, words[i], 16);
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
      consume(begin + p, result);
    }
    channel.next_round();
  }
}

}  // namespace devcomm::collective
