/// \file ring.cuh
/// Collectives round a ring, through FIFOs: every link carries the data once, in steps that follow each other closely.
///
/// Each function is *collective* over the session's group on every rank of its team, with the same arguments. `ring` is
/// a session that receives from the previous member and sends to the next, see `channel::from_previous`, or a
/// `ring_position`, whose order need not be the team's: shards and roots are members, whatever the order, and
/// reductions add up in the order of the ring. Blocks share a vector out by `slice_of_block`, each with a session of
/// its own, and need nothing of each other. FIFOs have two slots at least: with one, all ranks would wait for the next
/// one to take a step. Inputs and outputs are private, unless a consumer is a `to_window`: then results go straight
/// into the next rank's output, and no rank may use its output for anything else from the launch to its end.
#pragma once

#include <devcomm/channel/session.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/data/slice.hpp>

namespace devcomm::detail {

/// An input as the operator wants it before the first operation, on its way to a rank that adds its own.
template <class T, class Produce, class Operator>
struct prepared_input {
  const Produce& produce;
  const Operator& op;

  DEVCOMM_DEVICE pack<T> operator()(uint64_t i) const {
    pack<T> value = produce(i);
    if constexpr (has_prepare<Operator, accumulator_t<T>>) {
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) value[e] = static_cast<T>(to_accumulator<T>(value[e], op));
    }
    return value;
  }
};

/// The positions of a ring, counted from this rank's.
struct ring_members {
  int rank;
  int size;

  DEVCOMM_DEVICE explicit ring_members(const ring_order& order) : rank(order.position), size(order.size) {}

  /// The position `steps` before this one. *Requires* `0 <= steps <= size`.
  DEVCOMM_DEVICE int before(int steps) const { return rank >= steps ? rank - steps : rank - steps + size; }
};

/// A part of `packs` that goes round at once, cut into a chunk for each position.
struct ring_round {
  slice packs;
  uint64_t chunk;  ///< packs

  DEVCOMM_DEVICE slice of(int member) const {
    const uint64_t before = static_cast<uint64_t>(member) * chunk;
    const uint64_t size = packs.size();
    const uint64_t begin = before < size ? before : size;
    const uint64_t length = size - begin < chunk ? size - begin : chunk;
    return {packs.begin + begin, packs.begin + begin + length};
  }
};

/// The parts of `packs` that go round one after the other: chunks of a slot, or shorter ones where there is less.
class ring_rounds {
 public:
  DEVCOMM_DEVICE ring_rounds(slice packs, uint32_t capacity, int members)
      : packs_(packs),
        members_(static_cast<uint32_t>(members)),
        max_(uint64_t{capacity} * members_),
        count_(capacity == 0 ? 0 : (packs.size() + max_ - 1) / max_) {}

  DEVCOMM_DEVICE uint64_t count() const { return count_; }
  DEVCOMM_DEVICE ring_round at(uint64_t r) const {
    const uint64_t begin = packs_.begin + r * max_;
    const uint64_t size = packs_.end - begin < max_ ? packs_.end - begin : max_;
    return {{begin, begin + size}, (size + members_ - 1) / members_};
  }

 private:
  slice packs_;
  uint64_t members_;
  uint64_t max_;
  uint64_t count_;
};

// A session goes round in the order of its team.
template <channel::protocol Protocol, class Group>
DEVCOMM_DEVICE channel::session<Protocol, Group>& session_of(channel::session<Protocol, Group>& ring) {
  return ring;
}
template <channel::protocol Protocol, class Group>
DEVCOMM_DEVICE ring_order order_of(const channel::session<Protocol, Group>& ring) {
  return in_team_order(ring.members());
}

/// With one slot, all ranks would send before they receive.
template <class Channel>
DEVCOMM_DEVICE void check_slots([[maybe_unused]] const Channel& ring) {
  DEVCOMM_ASSERT(ring.slots() > 1,
                 "in a ring, all ranks would wait for each other: ask for FIFOs of two slots or more");
}

/// What a rank alone does: its input is the result.
template <class T, class Group, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void reduce_alone(const Group& group, slice packs, const Produce& produce, const Consume& consume,
                                 const Operator& op) {
  for (uint64_t i = packs.begin + group.thread_rank(); i < packs.end; i += group.size()) {
    pack<T> value = produce(i);
    for (int e = 0; e < pack<T>::size; ++e) value[e] = from_accumulator<T>(to_accumulator<T>(value[e], op), 1, op);
    consume(i, value);
  }
}

/// The same where nothing is reduced.
template <class Group, class Produce, class Consume>
DEVCOMM_DEVICE void copy_alone(const Group& group, slice packs, const Produce& produce, const Consume& consume) {
  for (uint64_t i = packs.begin + group.thread_rank(); i < packs.end; i += group.size()) consume(i, produce(i));
}

/// The next rank's output; `next` is its index in the LSA team.
template <class T, class Window>
struct ring_output {
  const Window& output;
  int next;

  DEVCOMM_DEVICE void operator()(uint64_t i, const pack<T>& value) const { output.store(next, i, value); }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// A group's position in a ring that has an order of its own. The FIFOs of one index join members of one order only,
/// for as long as the device communicator lives.
///
///     collective::ring_position ring{block{}, comm, comm.lsa(), order, fifos, blockIdx.x};
///     collective::all_reduce_ring<float>(ring, packs, input, output, sum{});
template <channel::protocol Protocol, class Group>
class ring_position {
 public:
  static constexpr channel::protocol fifo_protocol = Protocol;

  DEVCOMM_DEVICE ring_position(Group group, const device_comm& comm, const team& members, const ring_order& order,
                               const channel::fifo_handle<Protocol>& fifos, uint32_t index)
      : order_(order),
        session_(group, comm, members, fifos, channel::from_previous(order, index), channel::to_next(order, index)) {
    DEVCOMM_ASSERT(order.size == members.size, "this order is of a ring over another team");
  }

  DEVCOMM_DEVICE const ring_order& order() const { return order_; }
  DEVCOMM_DEVICE channel::session<Protocol, Group>& session() { return session_; }

 private:
  ring_order order_;
  channel::session<Protocol, Group> session_;
};

}  // namespace devcomm::collective

namespace devcomm::detail {

template <channel::protocol Protocol, class Group>
DEVCOMM_DEVICE channel::session<Protocol, Group>& session_of(collective::ring_position<Protocol, Group>& ring) {
  return ring.session();
}
template <channel::protocol Protocol, class Group>
DEVCOMM_DEVICE ring_order order_of(const collective::ring_position<Protocol, Group>& ring) {
  return ring.order();
}

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank gets the reduction of all ranks' vectors. Each rank sends `2 * (ranks - 1) / ranks` times the vector, in
/// `2 * (ranks - 1)` trips; NCCL's ring has the same schedule. Chunk `c` is reduced on its way from position `c + 1` to
/// position `c`, in that order, so all ranks get the same bits in every run.
///
///     channel::session ring{block{}, comm, fifos, channel::from_previous(comm.lsa(), blockIdx.x),
///                           channel::to_next(comm.lsa(), blockIdx.x)};
///     const slice packs = collective::slice_of_block(packs_of<float>(count));
///     collective::all_reduce_ring<float>(ring, packs, collective::from_memory<float>{input, count},
///                                        collective::to_memory<float>{output, count}, sum{});
///
/// `produce(i)` returns pack `i` of this rank's vector, `consume(i, pack)` takes pack `i` of the result; a consumer
/// that is a `to_window` gets all chunks but one from the previous rank, in its memory. Output and input may be the
/// same memory.
template <class T, class Ring, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void all_reduce_ring(Ring& caller_ring, slice packs, const Produce& produce, const Consume& consume,
                                    const Operator& op) {
  auto& ring = detail::session_of(caller_ring);
  const ring_order order = detail::order_of(caller_ring);
  const detail::ring_members members(order);
  if (members.size == 1) return detail::reduce_alone<T>(ring.group(), packs, produce, consume, op);
  const trace_span traced = ring.trace(
      call_span{collective_call::all_reduce_ring, static_cast<uint32_t>(operation::fifo_receive), packs.size()}.pack());
  constexpr bool direct =
      detail::has_store<Consume, T> && detail::has_load<Consume> && Ring::fifo_protocol == channel::protocol::simple;
  const detail::prepared_input<T, Produce, Operator> input{produce, op};
  const detail::ring_rounds rounds(packs, ring.capacity(), members.size);
  detail::check_slots(ring);
  const auto send_first_of = [&](uint64_t r) { ring.template send<T>(rounds.at(r).of(members.before(1)), input); };
  if (rounds.count() > 0) send_first_of(0);
  for (uint64_t r = 0; r < rounds.count(); ++r) {
    const detail::ring_round round = rounds.at(r);
    for (int step = 2; step < members.size; ++step)
      ring.template recv_reduce_send<T>(round.of(members.before(step)), produce, op);
    const slice mine = round.of(members.rank);
    const slice last = round.of(members.before(members.size - 1));
    if constexpr (direct) {
      const detail::ring_output<T, Consume> to_next{consume, ring.lsa_member(order.next)};
      const auto arrived = [&](uint64_t i) { return consume.load(i); };
      ring.template recv_reduce_copy_direct_send<T>(mine, produce, consume, op, members.size, to_next);
      for (int step = 1; step < members.size - 1; ++step)
        ring.template direct_recv_send<T>(round.of(members.before(step)), arrived, to_next);
      if (r + 1 < rounds.count()) send_first_of(r + 1);  // before this rank waits for the last chunk
      ring.template direct_recv<T>(last);
    } else {
      ring.template recv_reduce_copy_send<T>(mine, produce, consume, op, members.size);
      for (int step = 1; step < members.size - 1; ++step)
        ring.template recv_copy_send<T>(round.of(members.before(step)), consume);
      if (r + 1 < rounds.count()) send_first_of(r + 1);
      ring.template recv<T>(last, consume);
    }
  }
}

/// Each rank gets one shard of the reduction of all ranks' vectors. `produce(member, i)` returns pack `i` of the shard
/// of `member` in this rank's vector, `consume(i, pack)` takes pack `i` of this rank's shard; `packs` is a slice of a
/// shard. Each rank sends `ranks - 1` shards, in `ranks - 1` trips.
template <class T, class Ring, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void reduce_scatter_ring(Ring& caller_ring, slice packs, const Produce& produce, const Consume& consume,
                                        const Operator& op) {
  auto& ring = detail::session_of(caller_ring);
  const ring_order order = detail::order_of(caller_ring);
  const detail::ring_members members(order);
  const auto own = [&](uint64_t i) { return produce(ring.members().rank, i); };
  if (members.size == 1) return detail::reduce_alone<T>(ring.group(), packs, own, consume, op);
  detail::check_slots(ring);
  const detail::ring_rounds rounds(packs, ring.capacity(), 1);
  for (uint64_t r = 0; r < rounds.count(); ++r) {
    const slice part = rounds.at(r).packs;
    const auto shard_at = [&](int position) {
      return [&produce, member = order.member(position)](uint64_t i) { return produce(member, i); };
    };
    const auto first = shard_at(members.before(1));
    ring.template send<T>(part, detail::prepared_input<T, decltype(first), Operator>{first, op});
    for (int step = 2; step < members.size; ++step)
      ring.template recv_reduce_send<T>(part, shard_at(members.before(step)), op);
    ring.template recv_reduce_copy<T>(part, own, consume, op, members.size);
  }
}

/// Every rank gets every rank's shard. `produce(i)` returns pack `i` of this rank's, `consume(member, i, pack)` takes
/// pack `i` of the shard of `member`, its own included; `packs` is a slice of a shard. Each rank sends `ranks - 1`
/// shards, in `ranks - 1` trips.
template <class T, class Ring, class Produce, class Consume>
DEVCOMM_DEVICE void all_gather_ring(Ring& caller_ring, slice packs, const Produce& produce, const Consume& consume) {
  auto& ring = detail::session_of(caller_ring);
  const ring_order order = detail::order_of(caller_ring);
  const detail::ring_members members(order);
  const auto shard_at = [&](int position) {
    return [&consume, member = order.member(position)](uint64_t i, const pack<T>& value) { consume(member, i, value); };
  };
  if (members.size == 1) return detail::copy_alone(ring.group(), packs, produce, shard_at(0));
  detail::check_slots(ring);
  const detail::ring_rounds rounds(packs, ring.capacity(), 1);
  for (uint64_t r = 0; r < rounds.count(); ++r) {
    const slice part = rounds.at(r).packs;
    ring.template copy_send<T>(part, produce, shard_at(members.rank));
    for (int step = 1; step < members.size - 1; ++step)
      ring.template recv_copy_send<T>(part, shard_at(members.before(step)));
    ring.template recv<T>(part, shard_at(members.before(members.size - 1)));
  }
}

/// Every rank gets the vector of `root`. `produce(i)` is called on the root only, `consume(i, pack)` on every rank. The
/// vector goes round in steps of a slot: the last rank has it `ranks - 2` steps after the first.
template <class T, class Ring, class Produce, class Consume>
DEVCOMM_DEVICE void broadcast_ring(Ring& caller_ring, int root, slice packs, const Produce& produce,
                                   const Consume& consume) {
  auto& ring = detail::session_of(caller_ring);
  const ring_order order = detail::order_of(caller_ring);
  const detail::ring_members members(order);
  DEVCOMM_ASSERT(root >= 0 && root < members.size, "the root of a broadcast is outside the team");
  if (members.size == 1) return detail::copy_alone(ring.group(), packs, produce, consume);
  if (ring.members().rank == root) {
    ring.template copy_send<T>(packs, produce, consume);
  } else if (order.next == root) {
    ring.template recv<T>(packs, consume);
  } else {
    ring.template recv_copy_send<T>(packs, consume);
  }
}

/// `root` gets the reduction of all ranks' vectors. `produce(i)` returns pack `i` of this rank's, `consume(i, pack)` is
/// called on the root only.
template <class T, class Ring, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void reduce_ring(Ring& caller_ring, int root, slice packs, const Produce& produce,
                                const Consume& consume, const Operator& op) {
  auto& ring = detail::session_of(caller_ring);
  const ring_order order = detail::order_of(caller_ring);
  const detail::ring_members members(order);
  DEVCOMM_ASSERT(root >= 0 && root < members.size, "the root of a reduction is outside the team");
  if (members.size == 1) return detail::reduce_alone<T>(ring.group(), packs, produce, consume, op);
  if (ring.members().rank == root) {
    ring.template recv_reduce_copy<T>(packs, produce, consume, op, members.size);
  } else if (order.previous == root) {
    ring.template send<T>(packs, detail::prepared_input<T, Produce, Operator>{produce, op});
  } else {
    ring.template recv_reduce_send<T>(packs, produce, op);
  }
}

}  // namespace devcomm::collective
