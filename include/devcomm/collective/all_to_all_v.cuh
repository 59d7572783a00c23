/// \file all_to_all_v.cuh
/// All-to-all of pieces whose lengths only their senders know, on the device: a router's tokens, for example. Through
/// packets, in one trip; or straight into the receivers' outputs.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// Counts as words of packs of any type, which no mailbox changes: 31 bits a word.
struct packed_counts {
  DEVCOMM_DEVICE static arch::vec16 encode(uint64_t first, uint64_t second) {
    return {low(first), high(first), low(second), high(second)};
  }
  DEVCOMM_DEVICE static uint64_t first(const arch::vec16& words) { return decode(words.x, words.y); }
  DEVCOMM_DEVICE static uint64_t second(const arch::vec16& words) { return decode(words.z, words.w); }

 private:
  DEVCOMM_DEVICE static uint32_t low(uint64_t count) { return static_cast<uint32_t>(count) & 0x7fffffffu; }
  DEVCOMM_DEVICE static uint32_t high(uint64_t count) { return static_cast<uint32_t>(count >> 31) & 0x7fffffffu; }
  DEVCOMM_DEVICE static uint64_t decode(uint32_t low, uint32_t high) { return low | uint64_t{high} << 31; }
};

/// What a block sends of each piece, or gets: virtual pack 0 has the piece's count and how many rounds its sender needs
/// for the longest of its pieces; the packs of the block's share follow. All ranks make as many rounds as the one that
/// needs most, and in each every rank sends at least one pack to each: mailboxes can be used again two rounds later
/// only because all heard from all.
template <class T, class Session, class Produce, class Consume>
struct all_to_all_v_rounds {
  Session& session;
  const uint64_t* counts;
  uint64_t* received;
  const Produce& produce;
  const Consume& consume;
  uint32_t capacity;

  using cursor = decltype(declval<Session&>().cursor());

  [[nodiscard]] DEVCOMM_DEVICE static collective::slice share_of(uint64_t count) {
    return collective::slice_of_block(collective::packs_of<T>(count));
  }
  /// Rounds for a piece of `count` elements in the block with the longest share.
  [[nodiscard]] DEVCOMM_DEVICE uint64_t rounds_for(uint64_t count) const {
    return collective::packs_per_block(collective::packs_of<T>(count), arch::grid_blocks()) / capacity + 1;
  }
  /// Virtual packs of a share in the round that begins with virtual pack `begin`.
  [[nodiscard]] DEVCOMM_DEVICE uint32_t count_in_round(const collective::slice& share, uint64_t begin) const {
    const uint64_t all = share.size() + 1;
    if (all <= begin) return 0;
    return static_cast<uint32_t>(all - begin < capacity ? all - begin : capacity);
  }

  DEVCOMM_DEVICE void run() const {
    const int members = session.members().size;
    const int self = session.members().rank;
    uint64_t most = 0;
    for (int m = 0; m < members; ++m)
      if (m != self && counts[m] > most) most = counts[m];
    uint64_t rounds = rounds_for(most);
    DEVCOMM_UNROLL_BY(1)
    for (uint64_t round = 0; round < rounds; ++round) {
      session.begin_round();
      {
        const trace_span phase = session.trace({"send", span_kind::copy});
        DEVCOMM_UNROLL_BY(1)
        for (int step = 1; step < members; ++step)
          send(packs_for_peers<1, T>::peer(self, members, step), round * capacity, rounds);
      }
      if (round == 0) {
        rounds = exchange_counts(rounds);
        const collective::slice own = share_of(counts[self]);
        DEVCOMM_UNROLL_BY(1)
        for (uint64_t i = own.begin + session.group().thread_rank(); i < own.end; i += session.group().size())
          consume(self, i, static_cast<pack<T>>(produce(self, i)));
      }
      const trace_span phase = session.trace({"receive", span_kind::copy});
      DEVCOMM_UNROLL_BY(1)
      for (int step = 1; step < members; ++step)
        receive(packs_for_peers<1, T>::peer(self, members, members - step), round * capacity);
    }
  }

 private:
  DEVCOMM_DEVICE void send(int member, uint64_t begin, uint64_t rounds) const {
    const collective::slice share = share_of(counts[member]);
    const uint32_t count = count_in_round(share, begin);
    const auto make = [&](const cursor& at) -> pack<T> {
      if (count == 0 || !at.is_below(count)) return pack<T>{};
      const uint64_t i = begin + at.index();
      if (i == 0) return to_pack<T>(packed_counts::encode(counts[member], rounds));
      return static_cast<pack<T>>(produce(member, share.begin + (i - 1)));
    };
    send_packs<4, T>(session, member, session.cursor(), count != 0 ? count : 1, make);
  }

  /// Receives the first pack of every peer, and shares what it says with the group. The rounds that all ranks make.
  DEVCOMM_DEVICE uint64_t exchange_counts(uint64_t rounds) const {
    const int members = session.members().size;
    const int self = session.members().rank;
    const cursor start = session.cursor();
    // All have read what the call before left in `received`. Packets are on their way meanwhile.
    session.group().sync();
    if (start.first() == 0) {
      const bool has_first = start.is_below(1);
      const auto take = [&](int member, const pack<T>& value) {
        if (!has_first) return;
        const arch::vec16 words = to_vec16(value);
        received[member] = packed_counts::first(words);
        if (packed_counts::second(words) > rounds) rounds = packed_counts::second(words);
      };
      receive_from<4, T>(session, 0, self, start, take);
      receive_from<4, T>(session, self + 1, members, start, take);
      if (has_first) {
        if (!session.is_alive()) {
          rounds = 1;
          for (int m = 0; m < members; ++m) received[m] = 0;
        }
        received[self] = counts[self];
        received[members] = rounds;
      }
    }
    session.group().sync();
    return received[members];
  }

  DEVCOMM_DEVICE void receive(int member, uint64_t begin) const {
    const collective::slice share = share_of(received[member]);
    const uint32_t count = count_in_round(share, begin);
    cursor at = session.cursor();
    if (cursor::moves_one && begin == 0 && at.first() == 0) at.next();  // that has been received
    DEVCOMM_UNROLL_BY(1)
    for (; at.first() < (count != 0 ? count : 1); at.next()) {
      pack<T> value[1];
      session.receive_packs(member, member + 1, at, value);
      if (!session.is_alive() || count == 0 || !at.is_below(count)) continue;
      const uint64_t i = begin + at.index();
      if (i != 0) consume(member, share.begin + (i - 1), value[0]);
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank sends each peer a piece of a length of its own, which the receiver learns with it: one trip over the
/// links, without a barrier, and nothing of it passes through the host.
///
/// `counts[m]` is how many elements this rank sends to member `m`, in memory that all threads read; `received[m]`
/// becomes how many `m` sends to it. `received` is memory of this group's own, shared or global, of one word more than
/// there are members. `produce(rank, i)` returns pack `i` of what this rank has for `rank`; `consume(rank, i, pack)`
/// takes pack `i` of what `rank` has for this one, when all of `received` is there, so that it can place pieces. The
/// blocks of the grid share the packs of each piece, `slice_of_block`. `from_pieces`, `to_pieces` and
/// `to_packed_pieces` are such functors. Inputs and outputs are private, and apart from each other.
///
/// `session` is an `lsa::ll_session` or an `lsa::ll128_session`, which transfer all bits, or, for floating-point types,
/// an `lsa::lamport_session`, which may change the bits of a NaN. A mailbox takes a pack for the count beside those of
/// a piece; longer ones take several rounds.
///
///     __shared__ std::uint64_t received[max_ranks + 1];
///     lsa::ll128_session session{block{}, comm, mailboxes, blockIdx.x};
///     collective::all_to_all_v<T>(session, counts, received, collective::from_pieces<T>{input, counts, offsets},
///                                 collective::to_packed_pieces<T>{output, received, capacity});
///
/// *Collective* over the session's group, once in each block of the grid, with the same grid on every rank. *Requires*
/// counts below 2^62. After a failure, see `ll_session`, `consume` is called only for packs that arrived, and for this
/// rank's own.
template <class T, class Session, class Produce, class Consume>
DEVCOMM_DEVICE void all_to_all_v(Session& session, const uint64_t* counts, uint64_t* received, const Produce& produce,
                                 const Consume& consume) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
  const uint32_t capacity = session.pack_capacity();
  DEVCOMM_ASSERT(capacity > 0, "the mailbox of an all-to-all needs a capacity of at least one pack");
  if (capacity == 0) return;
  session.begin_call(call_contract::of<collective_call::all_to_all_v>(0, 0, sizeof(T)));
  const trace_span traced = session.trace_call(collective_call::all_to_all_v, 0);
  detail::all_to_all_v_rounds<T, Session, Produce, Consume>{session, counts, received, produce, consume, capacity}
      .run();
}

}  // namespace devcomm::collective

namespace devcomm::detail {

/// All ranks' counts, from which a rank computes what it gets, and where its pieces go in outputs without gaps.
template <class Session>
struct counts_of_all {
  Session& session;
  const uint64_t* counts;
  uint64_t* table;  // received[members], then offsets[members]

  using cursor = decltype(declval<Session&>().cursor());

  /// Packs of a rank's counts.
  [[nodiscard]] DEVCOMM_DEVICE uint32_t packs() const {
    return (static_cast<uint32_t>(session.members().size) + 1) / 2;
  }

  DEVCOMM_DEVICE void send() const {
    const int members = session.members().size;
    const auto make = [&](const cursor& at) -> pack<float> {
      if (!at.is_below(packs())) return pack<float>{};
      const auto m = static_cast<int>(2 * at.index());
      return to_pack<float>(packed_counts::encode(counts[m], m + 1 < members ? counts[m + 1] : 0));
    };
    DEVCOMM_UNROLL_BY(1)
    for (cursor at = session.cursor(); at.first() < packs(); at.next()) session.send_pack_to_all(at, make(at));
  }

  /// Fills the table; the group's own sync is left to the caller.
  DEVCOMM_DEVICE void receive() const {
    const int members = session.members().size;
    const int self = session.members().rank;
    DEVCOMM_UNROLL_BY(1)
    for (cursor at = session.cursor(); at.first() < packs(); at.next()) {
      uint64_t offset[2] = {0, 0};
      const bool is_mine = at.is_below(packs());
      const auto first = is_mine ? static_cast<int>(2 * at.index()) : 0;
      receive_from<4, float>(session, 0, members, at, [&](int member, const pack<float>& value) {
        if (!is_mine) return;
        const arch::vec16 words = to_vec16(value);
        const uint64_t theirs[2] = {packed_counts::first(words), packed_counts::second(words)};
        for (int j = 0; j < 2; ++j) {
          if (member < self) offset[j] += theirs[j];
          if (first + j == self) table[member] = theirs[j];
        }
      });
      for (int j = 0; is_mine && j < 2; ++j)
        if (first + j < members) table[members + first + j] = offset[j];
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank writes a piece of a length of its own to the output of each, one behind the other in the order of the
/// ranks. Only outputs are in a window: `input` is private, and is not in the output. All bits are transferred
/// unchanged.
///
/// `counts[m]` is how many elements this rank sends to member `m` of the LSA team, and `offsets[m]` where they begin in
/// `input`, both in memory that all threads read. `table` is memory of this group's own, shared or global, of two words
/// for each member: `table[m]` becomes how many elements `m` sent. What is past `capacity` elements of an output, which
/// is the same on all ranks, is left out: then the rank of that output gets `status::truncated`. After a failure the
/// outcome is why; it is the same for all threads of the group.
///
/// Counts go through `session`, a packet session of any kind with room for half a pack for each member, while the rank
/// waits for the launches of the others; blocks share the packs of each piece.
///
/// *Ordering*, *Blocks* and failures are those of `exchange_zero_copy`.
///
/// *Collective* over the group of both sessions, which is the same, on every rank of the LSA team, once in each block
/// of the grid, with the same grid and `capacity`. *Requires* counts below 2^62.
template <class T, class Session, class Group>
[[nodiscard]] DEVCOMM_DEVICE status all_to_all_v_zero_copy(lsa::barrier_session<Group>& barrier, Session& session,
                                                           const from_pieces<T>& input, uint64_t* table,
                                                           sym_ptr<T> output, uint64_t capacity) {
  const team ranks = barrier.members();
  const detail::counts_of_all<Session> all{session, input.counts, table};
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(output, capacity);
  DEVCOMM_ASSERT(session.members().size == ranks.size && session.members().rank == ranks.rank,
                 "the barrier and the mailbox of an all-to-all must have the same members");
  DEVCOMM_ASSERT(session.pack_capacity() >= all.packs(),
                 "the mailbox of a zero-copy all-to-all-v needs room for half a pack for each member");
  if (session.pack_capacity() < all.packs()) return status::mismatch;
  const trace_span traced = barrier.trace_call(collective_call::all_to_all_v_zero_copy, capacity);
  barrier.arrive(lsa::at_launch);
  session.begin_call(call_contract::of<collective_call::all_to_all_v_zero_copy>(0, capacity, sizeof(T)));
  session.begin_round();
  all.send();
  all.receive();
  barrier.wait(lsa::at_launch);
  const status counted = session.agree();
  const status met = barrier.agree();
  if (met != status::success || counted != status::success) return met != status::success ? met : counted;
  const auto count_for = [&](int rank) {
    const uint64_t offset = table[ranks.size + rank];
    const uint64_t left = offset < capacity ? capacity - offset : 0;
    return input.counts[rank] < left ? input.counts[rank] : left;
  };
  uint64_t longest = 0;
  for (int rank = 0; rank < ranks.size; ++rank) {
    const uint64_t count = count_for(rank);
    if (count > longest) longest = count;
  }
  for_each_part_of_block<T>({0, longest}, [&](slice part) {
    DEVCOMM_UNROLL_BY(1)
    for (int step = 1; step <= ranks.size; ++step) {  // each rank starts with another
      const int rank = ranks.rank + step < ranks.size ? ranks.rank + step : ranks.rank + step - ranks.size;
      const uint64_t count = count_for(rank);
      if (part.begin >= count) continue;
      copy(barrier.group(), output.lsa(rank) + table[ranks.size + rank] + part.begin,
           input.data + input.offsets[rank] + part.begin, (part.end < count ? part.end : count) - part.begin);
    }
  });
  barrier.sync(memory_order::acq_rel);
  const status ended = barrier.agree();
  if (ended != status::success) return ended;
  return detail::outcome_of_pieces(table, ranks.size, capacity);
}

}  // namespace devcomm::collective
