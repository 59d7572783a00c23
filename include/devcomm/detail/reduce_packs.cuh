/// \file reduce_packs.cuh
/// Packs from all members of a channel, reduced in the order of the ranks.
#pragma once

#include <devcomm/pack.cuh>
#include <devcomm/reduction.cuh>

namespace devcomm::detail {

/// Calls `run` with the size of a team as a constant where short code pays, else with 0: code is fetched anew by
/// every launch.
template <class Run>
DEVCOMM_DEVICE void with_ranks(int ranks, Run run) {
  if (ranks == 2) {
    run(constant<2>{});
  } else if (ranks == 4) {
    run(constant<4>{});
  } else if (ranks == 8) {
    run(constant<8>{});
  } else {
    run(constant<0>{});
  }
}

/// Members whose packs a thread receives at once.
template <int Ranks>
inline constexpr int members_at_once = Ranks != 0 ? Ranks : 4;

/// Receives pack `i` from all `members` members and reduces. `Ranks` is their number, or 0 where it is not known.
template <int Ranks, class T, class Channel, class Operator>
DEVCOMM_DEVICE pack<T> receive_and_reduce(Channel& channel, int members, uint32_t i, Operator op) {
  using accumulator = accumulator_t<T>;
  constexpr int at_once = members_at_once<Ranks>;
  const int end = Ranks != 0 ? Ranks : members;
  accumulator total[pack<T>::size];
  DEVCOMM_UNROLL_BY(1)
  for (int first = 0; first < end; first += at_once) {
    pack<T> values[at_once];
    channel.receive_packs(first, end, i, values);
    DEVCOMM_UNROLL
    for (int m = 0; m < at_once; ++m) {
      if (first + m >= end) break;
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) {
        const accumulator element = to_accumulator<T>(values[m][e], op);
        total[e] = first + m == 0 ? element : op(total[e], element);
      }
    }
  }
  pack<T> result;
  DEVCOMM_UNROLL
  for (int e = 0; e < pack<T>::size; ++e) result[e] = from_accumulator<T>(total[e], end, op);
  return result;
}

}  // namespace devcomm::detail
