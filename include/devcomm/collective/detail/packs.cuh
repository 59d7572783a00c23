/// \file packs.cuh
/// Building blocks of the collectives over packets: send packs to, and receive them from, all members of a session.
#pragma once

#include <devcomm/data/pack.cuh>
#include <devcomm/data/reduction.cuh>

namespace devcomm::detail {

/// Calls `body.template run<Ranks>()` with the team's size as a constant for 2, 4 and 8 ranks, where unrolled code
/// pays, else with 0: every launch fetches its code anew, so more variants cost time. (Not a generic lambda: NVRTC
/// takes those for host code.)
template <class Body>
DEVCOMM_DEVICE void with_ranks(int ranks, const Body& body) {
  if (ranks == 2) {
    body.template run<2>();
  } else if (ranks == 4) {
    body.template run<4>();
  } else if (ranks == 8) {
    body.template run<8>();
  } else {
    body.template run<0>();
  }
}

/// Members whose packs a thread reduces at once.
template <int Ranks>
inline constexpr int members_at_once = Ranks != 0 ? Ranks : 4;

/// Members whose packs a thread moves at once; with more, 512 threads would run out of registers.
template <int Ranks>
inline constexpr int shards_at_once = Ranks == 2 ? 2 : 4;

/// Receives pack `i`, an index or a cursor, from all `members` members, `AtOnce` at a time, and reduces. `Ranks` is
/// their number, or 0 where it is not a constant.
template <int Ranks, class T, int AtOnce = members_at_once<Ranks>, class Session, class Cursor, class Operator>
DEVCOMM_DEVICE pack<T> receive_and_reduce(Session& session, int members, const Cursor& i, const Operator& op) {
  using accumulator = accumulator_t<T>;
  const int end = Ranks != 0 ? Ranks : members;
  accumulator total[pack<T>::size];
  DEVCOMM_UNROLL_BY(1)
  for (int first = 0; first < end; first += AtOnce) {
    pack<T> values[AtOnce];
    session.receive_packs(first, end, i, values);
    DEVCOMM_UNROLL
    for (int m = 0; m < AtOnce; ++m) {
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

/// Sends `produce(member)` as pack `i` to each of the first `end` members.
template <int AtOnce, class T, class Session, class Cursor, class Produce>
DEVCOMM_DEVICE void send_shards(Session& session, int end, const Cursor& i, const Produce& produce) {
  DEVCOMM_UNROLL_BY(1)
  for (int first = 0; first < end; first += AtOnce) {
    pack<T> values[AtOnce];
    DEVCOMM_UNROLL
    for (int m = 0; m < AtOnce; ++m)
      if (first + m < end) values[m] = produce(first + m);
    DEVCOMM_UNROLL
    for (int m = 0; m < AtOnce; ++m)
      if (first + m < end) session.send_pack(first + m, i, values[m]);
  }
}

/// Calls `consume(member, value)` with pack `i` from each of the first `end` members, unless the session has failed.
template <int AtOnce, class T, class Session, class Cursor, class Consume>
DEVCOMM_DEVICE void receive_shards(Session& session, int end, const Cursor& i, const Consume& consume) {
  DEVCOMM_UNROLL_BY(1)
  for (int first = 0; first < end; first += AtOnce) {
    pack<T> values[AtOnce];
    session.receive_packs(first, end, i, values);
    DEVCOMM_UNROLL
    for (int m = 0; m < AtOnce; ++m)
      if (first + m < end && session.is_alive()) consume(first + m, values[m]);
  }
}

}  // namespace devcomm::detail
