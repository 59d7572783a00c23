/// \file fifo_end.cuh
/// The two ends of a FIFO as a thread sees them.
///
/// Protocol (that of NCCL's channels between GPUs). A FIFO is a ring of slots on its receiver. Step `n` goes through
/// slot `n % slots`. The sender counts the steps that it has sent, the receiver those that it has taken; the receiver
/// stores its count, the *head*, to the sender after each step. The sender writes step `n` once `n - head < slots`.
///
/// How the receiver learns of a step depends on the protocol. `simple`: the sender stores its count, the *tail*, to the
/// receiver with release, after all its threads have written; the receiver polls it and acquires. `ll`, `ll128`: flags
/// among the data, see lsa/ll_session.cuh and lsa/ll128_session.cuh; there is no tail.
///
/// *Why a slot can be written again*. `simple`: the head is stored with release after the group's `sync`, and acquired
/// before the sender's group goes on. `ll` and `ll128`: the head is relaxed. All loads of the step are complete when
/// it is stored, as their values decided that the step had arrived, and the group synchronized after them.
///
/// Counts outlive the kernel, so that launches and graph replays need nothing between. They have 32 bits and wrap
/// around: only differences of at most `slots` matter, and `slots` is a power of two, so that slots follow one another
/// across the wrap. Flags of packets are the count times two plus one, which is never 0, the value that memory starts
/// with; they come again after 2^31 steps, with the same limit as `lsa::ll_session`.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/channel/fifos.hpp>
#include <devcomm/detail/contract.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/detail/wait_for_word.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/memory_order.hpp>

namespace devcomm::detail {

/// How a wait for a count ended, and the count that ended it.
struct seen_count {
  status outcome;
  uint32_t count;
};

/// Waits until the count at `word` is `step` or past it, or `other()` is true. *Ordering*: acquires.
template <class Other>
DEVCOMM_DEVICE DEVCOMM_NOINLINE seen_count wait_for_count(resource_header* home, wait_site wait, const uint32_t* word,
                                                          uint32_t step, Other other) {
  uint32_t count = 0;
  const auto ready = [&](uint32_t seen) {
    count = seen;
    return static_cast<int32_t>(seen - step) >= 0 || other();
  };
  const status outcome =
      wait_for_word(home, wait.until(step), word, ready, memory_order::acquire, communicator_timeout());
  return {outcome, count};
}

/// The same for `limit` and a little more. After `status::timeout` nothing is recorded.
DEVCOMM_DEVICE inline status wait_for_count_within(resource_header* home, const wait_site& wait, const uint32_t* word,
                                                   uint32_t step, deadline limit) {
  return wait_for_word(
      home, wait.until(step), word, [=](uint32_t seen) { return static_cast<int32_t>(seen - step) >= 0; },
      memory_order::acquire, limit);
}

/// What both ends have in common.
struct fifo_end {
  char* slots;      ///< slot 0, on the receiver
  char* contracts;  ///< of slot 0, on the receiver
  uint32_t step;    ///< the next
  uint32_t index;   ///< on this rank
  uint32_t peer_index;
  int32_t peer;    ///< world rank; negative where the end is not connected
  uint32_t calls;  ///< in checked mode, made at this end so far, this one included

  DEVCOMM_DEVICE bool is_connected() const { return peer >= 0; }
  DEVCOMM_DEVICE char* slot(uint32_t slot_count, uint64_t slot_bytes) const {
    return slots + (step & (slot_count - 1)) * slot_bytes;
  }
  /// Of the packets of this step.
  DEVCOMM_DEVICE uint32_t flag() const { return step * 2 + 1; }
  DEVCOMM_DEVICE channel::step_contract* contract(uint32_t slot_count) const {
    return reinterpret_cast<channel::step_contract*>(contracts) + (step & (slot_count - 1));
  }
};

struct sending_end : fifo_end {
  const uint32_t* head;  ///< on this rank
  uint32_t* tail;        ///< on the receiver
  uint32_t credited;     ///< steps that are known to have been taken; the same for the whole group
  uint32_t acquired;     ///< the newest head that this thread has acquired: often past what the group knows

  DEVCOMM_DEVICE bool has_credit(uint32_t slot_count) const { return step - credited < slot_count; }
  /// Whether this thread need not wait until `count` steps have been taken.
  DEVCOMM_DEVICE bool has_acquired(uint32_t count) const { return static_cast<int32_t>(acquired - count) >= 0; }
  /// What the next session may count on. The head itself would be loaded here while the kernel waits to end.
  DEVCOMM_DEVICE uint32_t credit_to_keep() const {
    return static_cast<int32_t>(acquired - credited) > 0 ? acquired : credited;
  }
  /// For the next session.
  DEVCOMM_DEVICE void keep(channel::fifo_counts* counts) const {
    arch::store<memory_order::relaxed, scope::device>(&counts->sent, step);
    arch::store<memory_order::relaxed, scope::device>(&counts->credited, credit_to_keep());
    if constexpr (DEVCOMM_CHECKED != 0) arch::store<memory_order::relaxed, scope::device>(&counts->calls[1], calls);
  }
};

struct receiving_end : fifo_end {
  const uint32_t* tail;  ///< on this rank
  uint32_t* head;        ///< on the sender

  /// For the next session.
  DEVCOMM_DEVICE void keep(channel::fifo_counts* counts) const {
    arch::store<memory_order::relaxed, scope::device>(&counts->received, step);
    if constexpr (DEVCOMM_CHECKED != 0) arch::store<memory_order::relaxed, scope::device>(&counts->calls[0], calls);
  }
};

template <class End, int Count>
DEVCOMM_DEVICE bool is_any_connected(const End (&ends)[Count]) {
  for (const End& end : ends)
    if (end.is_connected()) return true;
  return false;
}

/// Index in the LSA team of a member whose memory a FIFO uses. Of one beyond the network it uses this rank's own.
template <channel::protocol Protocol>
DEVCOMM_DEVICE int lsa_member_with_slots(const device_comm& comm, const team& members, int member) {
  if constexpr (Protocol == channel::protocol::network) {
    const int reached = comm.lsa_member(comm.world_rank(members, member));
    return reached >= 0 ? reached : comm.lsa_rank();
  } else {
    return members.number(member) - comm.lsa_first;
  }
}

/// Makes the ends of one session.
template <channel::protocol Protocol>
class fifo_ends {
 public:
  /// `leads`: of its group, this thread keeps the counts for the next session.
  DEVCOMM_DEVICE fifo_ends(const device_comm& comm, const team& members, const channel::fifo_handle<Protocol>& fifos,
                           bool leads)
      : comm_(comm), members_(members), fifos_(fifos), layout_{fifos.count, fifos.slots, fifos.packs}, leads_(leads) {}

  DEVCOMM_DEVICE sending_end sending(const channel::endpoint& to) const {
    sending_end made{};
    made.peer = -1;
    if (to.peer < 0) return made;
    check(to, 0);
    char* theirs = on(to.peer);
    static_cast<fifo_end&>(made) = common(to, theirs, to.peer_index);
    made.head = reinterpret_cast<const uint32_t*>(own() + layout_.head(to.index));
    made.tail = reinterpret_cast<uint32_t*>(theirs + layout_.tail(to.peer_index));
    const channel::fifo_counts* counts = counts_of(to.index);
    made.step = arch::load<memory_order::relaxed, scope::device>(&counts->sent);
    if constexpr (DEVCOMM_CHECKED != 0)
      made.calls = arch::load<memory_order::relaxed, scope::device>(&counts->calls[1]);
    made.credited = arch::load<memory_order::relaxed, scope::device>(&counts->credited);
    // What is kept from it is credit of the next session, whose threads may write the slots without another wait.
    made.acquired = made.credited;
    if (leads_) made.acquired = arch::load<memory_order::acquire, scope::system>(made.head);
    return made;
  }

  DEVCOMM_DEVICE receiving_end receiving(const channel::endpoint& from) const {
    receiving_end made{};
    made.peer = -1;
    if (from.peer < 0) return made;
    check(from, 16);
    static_cast<fifo_end&>(made) = common(from, own(), from.index);
    made.tail = reinterpret_cast<const uint32_t*>(own() + layout_.tail(from.index));
    made.head = reinterpret_cast<uint32_t*>(on(from.peer) + layout_.head(from.peer_index));
    const channel::fifo_counts* counts = counts_of(from.index);
    made.step = arch::load<memory_order::relaxed, scope::device>(&counts->received);
    if constexpr (DEVCOMM_CHECKED != 0)
      made.calls = arch::load<memory_order::relaxed, scope::device>(&counts->calls[0]);
    return made;
  }

  DEVCOMM_DEVICE channel::fifo_counts* counts_of(uint32_t index) const {
    return reinterpret_cast<channel::fifo_counts*>(own() + layout_.counts(index));
  }

 private:
  /// `half`: bits before this direction's in `fifo_counts::peers`.
  DEVCOMM_DEVICE void check([[maybe_unused]] const channel::endpoint& end, [[maybe_unused]] uint32_t half) const {
    DEVCOMM_ASSERT_OF(end.peer < members_.size, "member", end.peer, members_.size,
                      "the peer of a FIFO is outside the team");
    DEVCOMM_ASSERT_OF(end.index < fifos_.count, "FIFO", end.index, fifos_.count,
                      "FIFO index is past the FIFOs that requirements asked for; ask for a larger count of FIFOs");
    DEVCOMM_ASSERT_OF(end.peer_index < fifos_.count, "FIFO", end.peer_index, fifos_.count,
                      "FIFO index on the peer is past the FIFOs that requirements asked for; ask for a larger count");
#if DEVCOMM_CHECKED
    if (!leads_) return;
    const uint32_t peer = channel::fifo_peer_mark(members_.number(end.peer));
    uint32_t* const peers = &counts_of(end.index)->peers;
    const uint32_t before = arch::load<memory_order::relaxed, scope::device>(peers) >> half & 0xffffu;
    DEVCOMM_ASSERT(before == 0 || before == peer,
                   "a FIFO index is used with two peers: each joins two ranks for as long as its device communicator "
                   "lives; ask for one more for each peer");
    if (before == 0) arch::fetch_or<memory_order::relaxed, scope::device>(peers, peer << half);
#endif
  }
  DEVCOMM_DEVICE char* own() const { return comm_.resources.local + fifos_.offset; }
  DEVCOMM_DEVICE char* on(int member) const {
    const auto slot = static_cast<uint64_t>(lsa_member_with_slots<Protocol>(comm_, members_, member));
    return comm_.resources.base + slot * comm_.resources.stride + fifos_.offset;
  }
  DEVCOMM_DEVICE fifo_end common(const channel::endpoint& end, char* receiver, uint32_t receiver_index) const {
    return {receiver + layout_.slot(receiver_index, 0),
            receiver + layout_.contract(receiver_index, 0),
            0,
            end.index,
            end.peer_index,
            members_.number(end.peer),
            0};
  }

  const device_comm& comm_;
  const team& members_;
  const channel::fifo_handle<Protocol>& fifos_;
  channel::fifo_layout<Protocol> layout_;
  bool leads_;
};

}  // namespace devcomm::detail
