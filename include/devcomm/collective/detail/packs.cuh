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

/// Sends `produce(i)` as pack `i` to `member`, for this thread's of the first `count` packs from `next` on: `AtOnce` at
/// a time, so that loads overlap, and what is left one by one, since small vectors have no more.
template <int AtOnce, class T, class Session, class Cursor, class Produce>
DEVCOMM_DEVICE void send_packs(Session& session, int member, Cursor next, uint32_t count, const Produce& produce) {
  if constexpr (AtOnce > 1) {
    Cursor last = next;
    for (int u = 1; u < AtOnce; ++u) last.next();
    DEVCOMM_UNROLL_BY(1)
    while (last.first() < count) {
      pack<T> values[AtOnce];
      Cursor at = next;
      DEVCOMM_UNROLL
      for (int u = 0; u < AtOnce; ++u) {
        values[u] = produce(at);
        at.next();
        last.next();
      }
      DEVCOMM_UNROLL
      for (int u = 0; u < AtOnce; ++u) {
        session.send_pack(member, next, values[u]);
        next.next();
      }
    }
  }
  DEVCOMM_UNROLL_BY(1)
  for (; next.first() < count; next.next()) session.send_pack(member, next, produce(next));
}

/// Packs for some of the other members, `AtOnce` at most, that a thread loads before it sends the first.
template <int AtOnce, class T>
struct packs_for_peers {
  arch::vec16 values[AtOnce];  // in words, as packs of small elements are taken apart where paths join

  /// The `step`-th member after this one.
  DEVCOMM_DEVICE static int peer(int self, int members, int step) {
    return self + step < members ? self + step : self + step - members;
  }
  /// Calls `produce(member)` for those from the `first`-th after this one on.
  template <class Produce>
  DEVCOMM_DEVICE void load(int self, int members, int first, const Produce& produce) {
    DEVCOMM_UNROLL
    for (int m = 0; m < AtOnce; ++m)
      if (first + m < members) values[m] = to_vec16(produce(peer(self, members, first + m)));
  }
  template <class Session, class Cursor>
  DEVCOMM_DEVICE void send(Session& session, int self, int members, int first, const Cursor& i) const {
    DEVCOMM_UNROLL
    for (int m = 0; m < AtOnce; ++m)
      if (first + m < members) session.send_pack(peer(self, members, first + m), i, to_pack<T>(values[m]));
  }
};

/// Calls `consume(member, value)` with pack `i` from each of the members in `[begin, end)`, unless the session has
/// failed.
template <int AtOnce, class T, class Session, class Cursor, class Consume>
DEVCOMM_DEVICE void receive_from(Session& session, int begin, int end, const Cursor& i, const Consume& consume) {
  DEVCOMM_UNROLL_BY(1)
  for (int first = begin; first < end; first += AtOnce) {
    pack<T> values[AtOnce];
    session.receive_packs(first, end, i, values);
    DEVCOMM_UNROLL
    for (int m = 0; m < AtOnce; ++m)
      if (first + m < end && session.is_alive()) consume(first + m, values[m]);
  }
}

/// The same from the first `end` members.
template <int AtOnce, class T, class Session, class Cursor, class Consume>
DEVCOMM_DEVICE void receive_shards(Session& session, int end, const Cursor& i, const Consume& consume) {
  receive_from<AtOnce, T>(session, 0, end, i, consume);
}

}  // namespace devcomm::detail
