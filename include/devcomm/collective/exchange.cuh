/// \file exchange.cuh
/// Exchange: every rank sends a vector to one rank and receives one from one. Through packets, one trip over the links;
/// or straight into the receiver's output, between two flags.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/team.hpp>

namespace devcomm::collective {

/// Instead of the index of a member: there is none.
inline constexpr int no_member = -1;

/// Whom a rank exchanges with: members of a team, the rank itself, which is both then, or `no_member`. `from` of the
/// rank `to` is this one.
struct partners {
  int to;
  int from;

  /// The member `distance` after this one, and the one as far before it.
  DEVCOMM_HOST_DEVICE static constexpr partners in_ring(int rank, int members, int distance = 1) {
    return {(rank + distance) % members, (rank + members - distance) % members};
  }

  /// Whether they can be those of member `self` of `members`.
  DEVCOMM_HOST_DEVICE constexpr bool can_be_of(int self, int members) const {
    return to >= no_member && to < members && from >= no_member && from < members && (to == self) == (from == self);
  }
};

}  // namespace devcomm::collective

namespace devcomm::detail {

/// Calls `action(m)` with each member that is neither `self` nor `partner`.
template <class Action>
DEVCOMM_DEVICE void for_each_other(int members, int self, int partner, const Action& action) {
  if (members == 2 && partner >= 0 && partner != self) return;
  DEVCOMM_UNROLL_BY(1)
  for (int m = 0; m < members; ++m)
    if (m != self && m != partner) action(m);
}

/// A round of an exchange over packets. Mailboxes can be used again two rounds later only because all ranks heard from
/// all (lsa/detail/packet_session.cuh); so a rank sends one empty pack, as its first, to each that it sends nothing
/// else.
template <class T, class Session>
struct exchange_round {
  Session& session;
  collective::partners with;

  [[nodiscard]] DEVCOMM_DEVICE int self() const { return session.members().rank; }
  [[nodiscard]] DEVCOMM_DEVICE bool sends() const { return with.to >= 0 && with.to != self(); }
  [[nodiscard]] DEVCOMM_DEVICE bool receives() const { return with.from >= 0 && with.from != self(); }

  /// Sends the packs that `produce(at)` returns for cursors `at`, but that at `start`, which is `value`.
  template <class Cursor, class Produce>
  DEVCOMM_DEVICE void send(const Cursor& start, uint32_t count, const pack<T>& value, const Produce& produce) const {
    if (sends() && start.first() < count) {
      session.send_pack(with.to, start, value);
      Cursor next = start;
      next.next();
      send_packs<1, T>(session, with.to, next, count, produce);
    }
    if (start.first() != 0) return;
    for_each_other(session.members().size, self(), with.to, [&](int m) { session.send_pack(m, start, pack<T>{}); });
  }

  template <class Cursor, class Consume>
  DEVCOMM_DEVICE void receive(const Cursor& start, uint32_t count, const Consume& consume) const {
    if (receives()) {
      DEVCOMM_UNROLL_BY(1)
      for (auto at = start; at.first() < count; at.next()) {
        pack<T> value[1];
        session.receive_packs(with.from, with.from + 1, at, value);
        if (session.is_alive() && at.is_below(count)) consume(at.index(), value[0]);
      }
    }
    if (start.first() != 0) return;
    for_each_other(session.members().size, self(), with.from, [&](int m) {
      pack<T> empty[1];
      session.receive_packs(m, m + 1, start, empty);
    });
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank sends a vector to `with.to` and receives one from `with.from`, members of the session's team: one trip
/// over the links, without a barrier.
///
/// `produce(i)` returns pack `i` of this rank's vector; `consume(i, pack)` takes pack `i` of the other's. Each is
/// called once for each `i` in the slice `packs`, both by the same thread of the session's group, `produce` first; not
/// where there is no member to send to, or to receive from. Inputs and outputs are private: peers do not access them,
/// and the output may be the input.
///
/// In each round a rank sends one empty packet to each member that it sends nothing else, and receives these. So an
/// exchange ends on a rank after all ranks have begun it.
///
/// `session` is an `lsa::ll_session` or an `lsa::ll128_session`, which transfer all bits, or, for floating-point types,
/// an `lsa::lamport_session`, which may change the bits of a NaN. Vectors longer than its capacity take several rounds.
///
///     lsa::ll128_session session{block{}, comm, mailboxes, blockIdx.x};
///     const auto neighbors = collective::partners::in_ring(comm.lsa().rank, comm.lsa().size);
///     collective::exchange<T>(session, neighbors, collective::slice_of_block(collective::packs_of<T>(count)),
///                             collective::from_memory<T>{input, count}, collective::to_memory<T>{output, count});
///
/// *Collective* over the session's group, with the same `packs` on every rank and partners that match. Checked launches
/// compare both; otherwise ranks that differ time out or get wrong results. *Requires* `with.can_be_of` this rank;
/// otherwise does nothing. After a failure, see `ll_session`, `consume` is called only for
/// packs that arrived.
template <class T, class Session, class Produce, class Consume>
DEVCOMM_DEVICE void exchange(Session& session, partners with, slice packs, const Produce& produce,
                             const Consume& consume) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
  static_assert(detail::takes_packs_only<Consume, T>,
                "only all_reduce_two_shot_chunked calls map and complete of a consumer");
  const uint32_t capacity = session.pack_capacity();
  const int self = session.members().rank;
  const bool can_be = with.can_be_of(self, session.members().size);
  DEVCOMM_ASSERT(capacity > 0, "the mailbox of an exchange needs a capacity of at least one pack");
  DEVCOMM_ASSERT(can_be,
                 "an exchange is with members of the session's team or no_member, and with oneself both ways or none");
  if (capacity == 0 || !can_be) return;
  session.begin_call(call_contract::of<collective_call::exchange>(packs.begin, packs.end, sizeof(T)),
                     {with.to, with.from});
  const trace_span traced = session.trace_call(collective_call::exchange, packs.size());
  const auto start = session.cursor();
  const detail::exchange_round<T, Session> round{session, with};
  DEVCOMM_UNROLL_BY(1)
  for (uint64_t begin = packs.begin; begin < packs.end; begin += capacity) {
    const auto count = static_cast<uint32_t>(packs.end - begin < capacity ? packs.end - begin : capacity);
    const auto make = [&](const decltype(session.cursor())& at) {
      return at.is_below(count) ? static_cast<pack<T>>(produce(begin + at.index())) : pack<T>{};
    };
    arch::vec16 first{};  // loaded while the session's epoch is, which the round begins with
    if (round.sends() && start.first() < count) first = detail::to_vec16(make(start));
    session.begin_round();
    {
      const trace_span phase = session.trace({"send", span_kind::copy});
      round.send(start, count, detail::to_pack<T>(first), make);
    }
    const trace_span phase = session.trace({"receive", span_kind::copy});
    round.receive(start, count, [&](uint32_t i, const pack<T>& value) { consume(begin + i, value); });
    if (with.to != self) continue;  // last, as code that is jumped over costs time as well
    DEVCOMM_UNROLL_BY(1)
    for (auto at = start; at.first() < count; at.next())
      if (at.is_below(count)) consume(begin + at.index(), make(at));
  }
}

/// Every rank writes `count` elements to the output of `with.to` and gets those of `with.from`, members of the LSA
/// team. Only outputs are in a window: `input` is private, and is not in the output. All bits are transferred
/// unchanged.
///
/// *Ordering*: a rank writes once the launches of all have begun, see `lsa::at_launch`; with
/// `copy_buffers::alternating` at once, a barrier less. When the call returns the group sees what it received.
///
/// *Blocks*: block `b` synchronizes only with block `b` of the other ranks. Outputs may be written from the launch on
/// and are complete after it, or the grid is synchronized before and after the call.
///
/// *Collective* over the barrier's group, on every rank of the LSA team, once in each block of the grid, with the same
/// grid and `count` and partners that match. *Requires* `with.can_be_of` this rank; otherwise does nothing. After a
/// failure, see `barrier_session`, the output is undefined; a failure at the first barrier leaves outputs unchanged.
template <class T, class Group>
DEVCOMM_DEVICE void exchange_zero_copy(lsa::barrier_session<Group>& barrier, partners with, const T* input,
                                       sym_ptr<T> output, uint64_t count, copy_buffers outputs = copy_buffers::reused) {
  const team ranks = barrier.members();
  const bool can_be = with.can_be_of(ranks.rank, ranks.size);
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(output, with.to < 0 && with.from < 0 ? 0 : count);
  DEVCOMM_ASSERT(can_be,
                 "an exchange is with members of the LSA team or no_member, and with oneself both ways or none");
  if (!can_be) return;
  const trace_span traced = barrier.trace_call(collective_call::exchange_zero_copy, count);
  if (outputs == copy_buffers::reused) barrier.sync(lsa::at_launch);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  if (with.to >= 0) {
    for_each_part_of_block<T>({0, count}, [&](slice part) {
      copy(barrier.group(), output.lsa(with.to) + part.begin, input + part.begin, part.size());
    });
  }
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective

namespace devcomm::detail {

/// The threads of a group but those of its first warp.
template <class Group>
struct later_warps {
  const Group& group;

  [[nodiscard]] DEVCOMM_DEVICE uint32_t thread_rank() const { return group.thread_rank() - arch::warp_threads; }
  [[nodiscard]] DEVCOMM_DEVICE uint32_t size() const { return group.size() - arch::warp_threads; }
  DEVCOMM_DEVICE void sync() const {}
  /// Whether there are any, and the caller is one of them.
  [[nodiscard]] DEVCOMM_DEVICE bool contain_caller() const { return group.thread_rank() >= arch::warp_threads; }
};

/// A block's packs of a vector that go as packets, at its beginning and at its end; the others lie between.
struct vector_ends {
  collective::slice first;
  collective::slice last;

  [[nodiscard]] DEVCOMM_DEVICE uint32_t head() const { return static_cast<uint32_t>(first.size()); }
  [[nodiscard]] DEVCOMM_DEVICE uint32_t tail() const { return static_cast<uint32_t>(last.size()); }
  /// Which pack goes as packet `i`.
  [[nodiscard]] DEVCOMM_DEVICE uint64_t packet(uint32_t i) const {
    return i < head() ? first.begin + i : last.begin + (i - head());
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// A packet session for the ends of a zero-copy transfer: each block sends up to `head` packs of the vector's beginning
/// and `tail` packs of its end as packets.
template <class Session>
struct packet_ends {
  Session& session;
  uint32_t head;
  uint32_t tail;
};

/// `exchange_zero_copy` that never waits with idle links: the first packs of the vector go as packets while the rank
/// waits for the launches of the others, and the last while the release of what was written between them is under way.
/// So it takes hardly longer than its bytes and one trip. On H200s 0.25 and 0.5 MiB are enough, over all blocks.
///
/// What goes as packets is as in `exchange`, with its session's restrictions on types; the rest, and what is required,
/// as in `exchange_zero_copy`. Where the session's mailbox has less room, less goes as packets.
///
/// *Collective* over the group of both sessions, which is the same, with the same `head` and `tail` on every rank.
template <class T, class Session, class Group>
DEVCOMM_DEVICE void exchange_zero_copy(lsa::barrier_session<Group>& barrier, const packet_ends<Session>& ends,
                                       partners with, const T* input, sym_ptr<T> output, uint64_t count) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll128_session");
  Session& session = ends.session;
  using cursor = decltype(session.cursor());
  const team ranks = barrier.members();
  const bool can_be = with.can_be_of(ranks.rank, ranks.size);
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(output, with.to < 0 && with.from < 0 ? 0 : count);
  DEVCOMM_ASSERT(session.members().size == ranks.size && session.members().rank == ranks.rank,
                 "the barrier and the mailbox of an exchange must have the same members");
  DEVCOMM_ASSERT(can_be,
                 "an exchange is with members of the LSA team or no_member, and with oneself both ways or none");
  if (!can_be) return;

  const trace_span traced = barrier.trace_call(collective_call::exchange_zero_copy, count);
  barrier.arrive(lsa::at_launch);
  const uint32_t capacity = session.pack_capacity();
  const uint32_t head = cursor::whole(ends.head < capacity ? ends.head : capacity);
  const uint32_t tail = ends.tail < capacity - head ? ends.tail : capacity - head;
  const uint64_t total = packs_of<T>(count);
  const uint64_t blocks = arch::grid_blocks();
  const uint64_t heads = head * blocks < total ? head * blocks : total;
  const uint64_t tails = tail * blocks < total - heads ? tail * blocks : total - heads;
  const slice last = slice_of_block(tails, tail);
  const detail::vector_ends share{slice_of_block(heads, head), {total - tails + last.begin, total - tails + last.end}};
  const uint32_t packets = share.head() + share.tail();
  const detail::exchange_round<T, Session> round{session, with};
  const from_memory<T> source{input, count};
  const auto make_tail = [&](const cursor& at) {
    return at.is_below(share.tail()) ? source(share.packet(share.head() + at.index())) : pack<T>{};
  };
  const auto make_head = [&](const cursor& at) {
    return at.is_below(share.head()) ? source(share.packet(at.index())) : pack<T>{};
  };

  const cursor start = session.cursor();
  arch::vec16 first{};
  if (round.sends() && start.first() < share.head()) first = detail::to_vec16(make_head(start));
  if (packets != 0) {
    session.begin_call(call_contract::of<collective_call::exchange_zero_copy>(0, total, sizeof(T)),
                       {with.to, with.from});
    session.begin_round();
    round.send(start, share.head(), detail::to_pack<T>(first), make_head);
  }
  barrier.wait(lsa::at_launch);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  if (with.to >= 0) {
    const bool is_self = with.to == ranks.rank;  // which takes no packets
    const auto element = [&](uint64_t p) { return p * pack<T>::size < count ? p * pack<T>::size : count; };
    const slice between{is_self ? 0 : element(heads), is_self ? count : element(total - tails)};
    for_each_part_of_block<T>(between, [&](slice part) {
      copy(barrier.group(), output.lsa(with.to) + part.begin, input + part.begin, part.size());
    });
  }
  // The first warp has to wait for its release.
  const detail::later_warps<Group> later{barrier.group()};
  const bool has_later = later.size() < barrier.group().size() && later.size() != 0;
  const auto send_tail = [&](cursor at) {
    for (; at.first() < share.tail(); at.next()) session.send_pack(with.to, at + share.head(), make_tail(at));
  };
  if (!has_later && round.sends()) send_tail(start);
  barrier.arrive(memory_order::release);
  if (has_later && round.sends() && later.contain_caller()) send_tail(cursor(later));
  if (packets != 0) {
    const to_memory<T> result{output.local(), count};
    round.receive(start, packets, [&](uint32_t i, const pack<T>& value) { result(share.packet(i), value); });
  }
  barrier.wait(memory_order::acquire);
}

}  // namespace devcomm::collective
