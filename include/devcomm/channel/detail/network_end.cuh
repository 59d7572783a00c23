/// \file network_end.cuh
/// The ends of FIFOs that may join ranks of two hosts.
///
/// Where both ranks are in one LSA team, an end is one of `protocol::simple`, see fifo_end.cuh. Where the network is
/// between them, the counts are signals, and the slots are on both sides, in network memory:
///
/// 1. The sender's group writes step `n` into slot `n % slots` of its own rank and synchronizes. One thread
///    puts the slot into the same slot of the receiver, with a *strong* signal that adds 1: the tail.
/// 2. One thread of the receiver's group waits until the tail is `n + 1`; the group synchronizes and reads its slot.
/// 3. The receiver's group synchronizes, and one thread posts a *weak* signal that adds 1 to the sender: the head.
///
/// *Why the data is there*. Steps of a FIFO go through one context. A strong signal takes effect after the data of all
/// earlier puts of the context to that rank, and after their strong signals: so a tail of `n + 1` says that steps 0 to
/// `n` have arrived. A weak signal would say so of its own step alone, and `n + 1` of them of any `n + 1` steps.
///
/// *When a slot is written again*. Both sides' slots of step `n` are free for step `n + slots` when
/// - the head is `n + 1`: the receiver's slot has been read. Weak signals will do: they may take effect in any order,
///   but of any `n + 1` of them one was posted after step `n`, or a later one, had been taken, and steps are taken in
///   order.
/// - the put of step `n` is done on this rank: the slot here has been read. That the receiver has answered says so on
///   the fabrics that are known; the contract of a put says it only of what was flushed. The sender keeps the number up
///   to which the context has to be done for each slot (its put number), and waits for that after the head.
///
/// *Short steps*. A step of up to two packs goes as values of 8 bytes, the last of them with the signal. Values travel
/// in the messages of signals, so that no write has to be complete before the signal goes.
///
/// *Order of memory*. A post releases at system scope what the group wrote before its sync; the waits acquire what the
/// proxy releases with a signal or with `done`. So what a group wrote to a slot is what the receiver reads, and what
/// the receiver's group read it has read before the slot is written.
///
/// *The end of a session*. One that has received waits until its heads have had their effect at the senders, a trip to
/// them and back that depends on proxies alone. So when kernels have ended that received all that was sent, nothing is
/// on its way, and device communicators may be destroyed behind a barrier on the host.
///
/// Signals and counts of steps have 64 bits here and outlive the kernel; `fifo_end::step` is the lower half of them.
///
/// *Failure*. A wait ends by the communicator's timeout or abort with the record of a FIFO, that names the peer; so
/// does a post that finds its queue full. An operation that the network cannot do ends the rank's waits, and
/// `device_communicator::check` says why. From then on nothing is posted. A rank that fails takes no more steps, so
/// that its peers run out of credit, or of steps, and end by their own timeout.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/channel/detail/fifo_end.cuh>
#include <devcomm/channel/detail/fifo_transport.cuh>
#include <devcomm/channel/detail/slot_packets.cuh>
#include <devcomm/channel/network_fifos.hpp>
#include <devcomm/config.hpp>
#include <devcomm/detail/poll.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/gin/buffer.cuh>
#include <devcomm/gin/detail/queue_end.cuh>
#include <devcomm/gin/queue.hpp>
#include <devcomm/memory_order.hpp>
#include <devcomm/operation.hpp>
#include <devcomm/status.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

template <>
struct slot_packets<channel::protocol::network> : slot_packets<channel::protocol::simple> {};

/// The network between the two ends of a FIFO, as one end uses it.
struct network_link {
  queue_end queue;    ///< whose signal this end waits for
  uint32_t signal;    ///< that signal's word
  uint32_t posts_in;  ///< the context whose signal the other end waits for
  uint32_t tells;     ///< that signal
  int32_t rank;       ///< world rank at the other end; -1 where it is in the LSA team

  DEVCOMM_DEVICE bool is_there() const { return rank >= 0; }
  DEVCOMM_DEVICE queue_end posts() const { return queue.sibling(posts_in); }

  /// Posts an operation that adds 1 to the other end's signal.
  DEVCOMM_DEVICE status post(gin::operation_kind kind, gin::strength covers, gin::descriptor made) const {
    made.actions = tells;
    made.signal_value = 1;
    return post(made, kind, gin::signal_change::add, covers);
  }
  /// Posts one without a signal.
  DEVCOMM_DEVICE status post(gin::operation_kind kind, const gin::descriptor& made) const {
    return post(made, kind, gin::signal_change::none, gin::strength::weak);
  }
  /// Waits until all that was posted has had its effect there.
  DEVCOMM_DEVICE status fence() const {
    const status outcome = post(gin::operation_kind::fence, {});
    if (outcome != status::success) return outcome;
    const queue_end to = posts();
    const auto peer = static_cast<uint32_t>(rank);
    return wait_for_proxy(to, to.layout.done_with(peer),
                          {operation::gin_fence, to.index, rank, to.latest(peer), wait_condition::done_by_proxy},
                          communicator_timeout());
  }

 private:
  DEVCOMM_DEVICE status post(const gin::descriptor& made, gin::operation_kind kind, gin::signal_change change,
                             gin::strength covers) const {
    const uint32_t value_bytes = kind == gin::operation_kind::put_value ? static_cast<uint32_t>(made.bytes) : 0;
    return detail::post(posts(), made, {kind, change, covers, false, value_bytes, static_cast<uint32_t>(rank)},
                        communicator_timeout());
  }
};

/// A wait at one end of a FIFO. Where the network is there, for `least` of the link's signal.
struct network_wait : wait_site {
  network_link link;
  uint64_t least;
  const uint64_t* put_number;  ///< of the slot that is to be written; null where the end receives
};

/// From where a put goes and where to, in bytes from the start of the network memory.
struct put_offsets {
  uint64_t local;
  uint64_t remote;
};

struct network_sending_end : sending_end {
  network_link link;
  uint64_t total;                   ///< steps sent; `step` is its lower half
  channel::network_counts* counts;  ///< on this rank
  uint64_t* put_numbers;            ///< of slot 0
  put_offsets data;                 ///< of slot 0
  put_offsets contract_of_step;     ///< of slot 0

  DEVCOMM_DEVICE uint64_t awaited(uint32_t slot_count) const { return total - slot_count + 1; }
  DEVCOMM_DEVICE const uint64_t* put_number(uint32_t slot_count) const {
    return put_numbers == nullptr ? nullptr : put_numbers + (step & (slot_count - 1));  // null: an end in the LSA team
  }
};

struct network_receiving_end : receiving_end {
  network_link link;
  uint64_t total;                   ///< steps taken; `step` is its lower half
  channel::network_counts* counts;  ///< on this rank

  DEVCOMM_DEVICE uint64_t awaited(uint32_t) const { return total + 1; }
  DEVCOMM_DEVICE const uint64_t* put_number(uint32_t) const { return nullptr; }
};

/// Makes the ends of one session.
class network_ends {
  using handle = channel::fifo_handle<channel::protocol::network>;

 public:
  DEVCOMM_DEVICE network_ends(const device_comm& comm, const team& members, const handle& fifos, bool leads)
      : comm_(comm),
        members_(members),
        fifos_(fifos),
        stored_(comm, members, fifos, leads),
        layout_{fifos.count, fifos.slots},
        steps_{fifos.count, fifos.slots, fifos.packs} {}

  DEVCOMM_DEVICE network_sending_end sending(const channel::endpoint& to) const {
    network_sending_end made{};
    static_cast<sending_end&>(made) = stored_.sending(to);
    made.link.rank = -1;
    if (!made.is_connected()) return made;
    made.link = link(to, head_signal, tail_signal);
    if (!made.link.is_there()) return made;
    using steps = channel::network_steps_layout;
    const auto between = [&](uint64_t here, uint64_t there) {
      return put_offsets{fifos_.steps + here, fifos_.steps + there};
    };
    made.data = between(steps_.slot(steps::outgoing, to.index, 0), steps_.slot(steps::incoming, to.peer_index, 0));
    made.contract_of_step =
        between(steps_.contract(steps::outgoing, to.index, 0), steps_.contract(steps::incoming, to.peer_index, 0));
    char* const own = gin::network_memory(comm_).local;
    made.slots = own + made.data.local;
    made.contracts = own + made.contract_of_step.local;
    made.put_numbers =
        reinterpret_cast<uint64_t*>(comm_.resources.local + fifos_.kept + layout_.put_number(to.index, 0));
    made.counts = counts_of(to.index);
    made.total = arch::load<memory_order::relaxed, scope::device>(&made.counts->sent);
    made.acquired = made.credited;  // the head is a signal
    return made;
  }

  DEVCOMM_DEVICE network_receiving_end receiving(const channel::endpoint& from) const {
    network_receiving_end made{};
    static_cast<receiving_end&>(made) = stored_.receiving(from);
    made.link.rank = -1;
    if (!made.is_connected()) return made;
    made.link = link(from, tail_signal, head_signal);
    if (!made.link.is_there()) return made;
    using steps = channel::network_steps_layout;
    char* const own = gin::network_memory(comm_).local + fifos_.steps;
    made.slots = own + steps_.slot(steps::incoming, from.index, 0);
    made.contracts = own + steps_.contract(steps::incoming, from.index, 0);
    made.counts = counts_of(from.index);
    made.total = arch::load<memory_order::relaxed, scope::device>(&made.counts->received);
    return made;
  }

 private:
  // Of each FIFO.
  static constexpr uint32_t tail_signal = 0;
  static constexpr uint32_t head_signal = 1;

  DEVCOMM_DEVICE uint32_t signal(uint32_t index, uint32_t which) const {
    return fifos_.first_signal + 2 * (index / fifos_.contexts.count) + which;
  }
  DEVCOMM_DEVICE network_link link(const channel::endpoint& end, uint32_t awaits, uint32_t tells) const {
    const int rank = comm_.world_rank(members_, end.peer);
    const gin::context_handle& contexts = fifos_.contexts;
    const queue_end queue = queue_end::of(comm_, contexts, end.index % contexts.count);
    return {queue, queue.layout.signal(signal(end.index, awaits)), end.peer_index % contexts.count,
            signal(end.peer_index, tells), comm_.lsa_member(rank) >= 0 ? -1 : rank};
  }
  DEVCOMM_DEVICE channel::network_counts* counts_of(uint32_t index) const {
    return reinterpret_cast<channel::network_counts*>(comm_.resources.local + fifos_.kept + layout_.counts(index));
  }

  const device_comm& comm_;
  const team& members_;
  const handle& fifos_;
  fifo_ends<channel::protocol::network> stored_;
  channel::network_layout layout_;
  channel::network_steps_layout steps_;
};

/// Waits for the link's signal, and where a slot is to be written for the put that sent it last.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline status wait_at_network(const network_wait& wait, deadline limit) {
  const network_link& link = wait.link;
  const bool sends = wait.put_number != nullptr;
  const uint64_t start = limit.own ? arch::global_time() : 0;
  const status outcome = wait_for_proxy(link.queue, link.signal, wait.until(wait.least), limit);
  if (outcome != status::success || !sends) return outcome;
  if (limit.own) {
    const uint64_t passed = arch::global_time() - start;
    limit.budget = passed < limit.budget ? limit.budget - passed : 0;
  }
  const queue_end posts = link.posts();
  const uint64_t number = arch::load<memory_order::relaxed, scope::device>(wait.put_number);
  return wait_for_proxy(posts, posts.layout.done_with(static_cast<uint32_t>(link.rank)),
                        {operation::gin_flush, posts.index, link.rank, number, wait_condition::done_by_proxy}, limit);
}

/// Sends a step of `bytes` bytes that lies in `slot`, and keeps what the slot waits for before it is written again.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline status send_step(uint32_t window, const network_sending_end& to, uint32_t slot,
                                                        uint64_t slot_bytes, uint64_t bytes) {
  constexpr uint64_t max_in_values = 32;
  const auto between = [window](const put_offsets& first, uint64_t after, uint64_t size) {
    gin::descriptor made{};
    made.local = first.local + after;
    made.remote = first.remote + after;
    made.windows = uint64_t{window} << 32 | window;
    made.bytes = size;
    return made;
  };
  status outcome = status::success;
  if constexpr (DEVCOMM_CHECKED != 0) {  // covered by the signal of the data
    constexpr uint64_t size = sizeof(channel::step_contract);
    outcome = to.link.post(gin::operation_kind::put, between(to.contract_of_step, slot * size, size));
  }
  const uint64_t first = slot * slot_bytes;
  gin::operation_kind kind = gin::operation_kind::put;
  gin::descriptor last = between(to.data, first, bytes);
  if (bytes <= max_in_values) {
    kind = gin::operation_kind::put_value;
    for (uint64_t i = 0; i < bytes && outcome == status::success; i += sizeof last.value) {
      last = between(to.data, first + i, sizeof last.value);
      copy_bytes(&last.value, to.slots + first + i, sizeof last.value);
      if (i + sizeof last.value < bytes) outcome = to.link.post(kind, last);
    }
  }
  if (outcome == status::success) outcome = to.link.post(kind, gin::strength::strong, last);
  if (outcome == status::success)
    arch::store<memory_order::relaxed, scope::device>(&to.put_numbers[slot],
                                                      to.link.posts().latest(static_cast<uint32_t>(to.link.rank)));
  return outcome;
}

/// By puts and signals, and inside an LSA team by load and store.
template <>
struct fifo_transport<channel::protocol::network> {
  using ends = network_ends;
  using sending = network_sending_end;
  using receiving = network_receiving_end;
  using wait_type = network_wait;
  static constexpr bool has_tail = true;

  DEVCOMM_DEVICE static team everyone(const device_comm& comm) { return comm.world(); }
  DEVCOMM_DEVICE static void check_members([[maybe_unused]] const team& members,
                                           [[maybe_unused]] const device_comm& comm) {
    DEVCOMM_ASSERT(!members.has_world_ranks() || is_subset(members, comm.world()),
                   "the team of a channel over the network must lie within the world");
    DEVCOMM_ASSERT(comm.world_rank(members, members.rank) == comm.rank,
                   "the caller is not the member that its team says");
  }

  template <class End>
  DEVCOMM_DEVICE static network_wait wait_of(const wait_site& wait, const End& end, uint32_t slots) {
    return {wait, end.link, end.awaited(slots), end.put_number(slots)};
  }
  template <class Other>
  DEVCOMM_DEVICE static seen_count wait_for_count(resource_header* home, const network_wait& wait, const uint32_t* word,
                                                  uint32_t step, const Other& other) {
    if (wait.link.is_there()) return {wait_at_network(wait, communicator_timeout()), step};
    return detail::wait_for_count(home, wait, word, step, other);
  }
  DEVCOMM_DEVICE static status wait_within(resource_header* home, const network_wait& wait, const uint32_t* word,
                                           uint32_t step, deadline limit) {
    if (wait.link.is_there()) return wait_at_network(wait, limit);
    return wait_for_count_within(home, wait, word, step, limit);
  }

  /// As that of other FIFOs, with a step of `packs` packs.
  template <int Receives, int Sends, class Session>
  DEVCOMM_DEVICE static void tell(Session& session, uint32_t packs) {
    session.group_.sync();
    const auto threads = static_cast<int>(session.group_.size());
    for (auto i = static_cast<int>(session.group_.thread_rank()); i < Receives + Sends; i += threads) {
      if constexpr (Receives > 0) {
        DEVCOMM_UNROLL
        for (int r = 0; r < Receives; ++r)
          if (r == i && session.receives_from(r) && session.failure_ == status::success)
            session.failure_ = tell_taken(session.from_[r]);
      }
      if constexpr (Sends > 0) {
        DEVCOMM_UNROLL
        for (int s = 0; s < Sends; ++s)
          if (Receives + s == i && session.sends_to(s) && session.failure_ == status::success)
            session.failure_ = tell_sent(session, session.to_[s], packs);
      }
    }
    if constexpr (Receives > 0) {
      DEVCOMM_UNROLL
      for (int r = 0; r < Receives; ++r) ++session.from_[r].total;
    }
    if constexpr (Sends > 0) {
      DEVCOMM_UNROLL
      for (int s = 0; s < Sends; ++s) ++session.to_[s].total;
    }
  }

  /// Keeps the counts of steps, and waits until the credits that it returned have reached the senders.
  template <class Session>
  DEVCOMM_DEVICE static void end(Session& session) {
    for (const network_sending_end& end : session.to_)
      if (end.is_connected() && end.link.is_there())
        arch::store<memory_order::relaxed, scope::device>(&end.counts->sent, end.total);
    for (const network_receiving_end& end : session.from_) {
      if (!end.is_connected() || !end.link.is_there()) continue;
      const uint64_t before = arch::load<memory_order::relaxed, scope::device>(&end.counts->received);
      arch::store<memory_order::relaxed, scope::device>(&end.counts->received, end.total);
      if (before != end.total && session.failure_ == status::success) session.failure_ = end.link.fence();
    }
  }

 private:
  DEVCOMM_DEVICE static status tell_taken(const network_receiving_end& from) {
    if (from.link.is_there()) return from.link.post(gin::operation_kind::signal, gin::strength::weak, {});
    arch::store<memory_order::release, scope::system>(from.head, from.step + 1);
    return status::success;
  }
  template <class Session>
  DEVCOMM_DEVICE static status tell_sent(const Session& session, const network_sending_end& to, uint32_t packs) {
    if (to.link.is_there())
      return send_step(session.home_->network.id, to, to.step & (session.slots_ - 1),
                       channel::slot_bytes<channel::protocol::network>(session.slot_packs_), uint64_t{packs} * 16);
    arch::store<memory_order::release, scope::system>(to.tail, to.step + 1);
    return status::success;
  }
};

}  // namespace devcomm::detail
