/// \file barrier_protocol.cuh
/// The protocol behind `lsa::barrier_session`.
///
/// Protocol. Each rank holds, for each barrier, its own epoch and one flag for each member of the team. To
/// arrive at epoch `e + 1` a rank stores `e + 1` into its flag on every peer; to wait, it polls its own flags
/// until each is at least `e + 1`. A peer can be ahead by one epoch at most, as it cannot pass `e + 2` before
/// this rank arrives there; so flags are compared by the sign of their 32-bit difference and may wrap around.
/// Nothing is ever reset: the epoch outlives the kernel, so launches and graph replays need nothing between.
///
/// The release store of a flag pairs with its acquire load; the group's own `sync` before the one and after
/// the other extends the order to all its threads. The load may find the flag of the next epoch already. If that
/// arrival released, it covers the one before. If it did not, it is an exchange, which continues the release sequence
/// of what it replaces; a store would end it. Where peers' memory has no atomic operations, arrivals always release.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/barrier_calls.cuh>
#include <devcomm/detail/contract.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barriers.hpp>
#include <devcomm/lsa/detail/members.cuh>
#include <devcomm/memory_order.hpp>

namespace devcomm::detail {

/// One barrier as one rank finds it.
struct barrier_memory {
  const device_comm& comm;
  team members;
  lsa::barrier_handle barriers;
  uint32_t index;

  /// The flag on member `owner` that member `writer` stores to.
  DEVCOMM_DEVICE uint32_t* flag(int owner, int writer) const {
    return reinterpret_cast<uint32_t*>(on(owner) + layout().flag(index, static_cast<uint32_t>(writer)));
  }
  /// The contract on member `owner` that member `writer` stores to. Even and odd epochs are apart: a
  /// peer one epoch ahead overwrites none that is still to be compared.
  DEVCOMM_DEVICE launch_contract* contract(int owner, int writer, uint32_t epoch) const {
    return reinterpret_cast<launch_contract*>(on(owner) +
                                              layout().contract(index, static_cast<uint32_t>(writer), epoch));
  }
  /// Bytes from a word on one member to the same on the next.
  DEVCOMM_DEVICE int64_t stride() const { return static_cast<int64_t>(comm.resources.stride) * members.stride; }
  DEVCOMM_DEVICE uint32_t* epoch() const { return own_word(layout().epoch(index)); }
  DEVCOMM_DEVICE uint32_t* outcome() const { return own_word(layout().outcome(index)); }

 private:
  DEVCOMM_DEVICE lsa::barrier_layout layout() const { return {barriers.count, barriers.members}; }
  /// This team's barriers on one of its members. The resource window is always strided.
  DEVCOMM_DEVICE char* on(int member) const {
    const auto slot = static_cast<uint64_t>(members.number(member) - comm.lsa_first);
    return comm.resources.base + slot * comm.resources.stride + barriers.offset;
  }
  DEVCOMM_DEVICE uint32_t* own_word(uint64_t offset) const {
    return reinterpret_cast<uint32_t*>(comm.resources.local + barriers.offset + offset);
  }
};

/// A peer as one thread of a group sees it.
struct peer_flags {
  int member;        ///< of the team
  uint32_t* theirs;  ///< stored to when this rank arrives
  uint32_t* ours;    ///< polled until the peer has arrived
};

/// The `i`-th peer, not counting this rank.
DEVCOMM_DEVICE inline peer_flags nth_peer_flags(const barrier_memory& memory, int i) {
  const int self = memory.members.rank;
  const int member = nth_peer(i, self);
  return {member, memory.flag(member, self), memory.flag(self, member)};
}

/// The same out of line, for rare paths.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline peer_flags find_peer_flags(const resource_header* home, team members,
                                                                  lsa::barrier_handle barriers, uint32_t index, int i) {
  return nth_peer_flags({home->comm, members, barriers, index}, i);
}

/// Signals an arrival to a peer. `has_atomics`: on the peer's memory.
DEVCOMM_DEVICE inline void store_flag(uint32_t* flag, uint32_t epoch, memory_order order, bool has_atomics = true) {
  if (releases(order) || !has_atomics) {
    arch::store<memory_order::release, scope::system>(flag, epoch);
  } else if (order == launch_order) {
    arch::tell_launch(flag, epoch);
  } else {
    arch::exchange<memory_order::relaxed, scope::system>(flag, epoch);
  }
}

/// Shows this launch to one thread's peers, which compare it once this rank arrives at `epoch`.
DEVCOMM_DEVICE inline void show_launch(const barrier_memory& memory, uint32_t epoch, int first, int step,
                                       launch_contract mine) {
  const team& members = memory.members;
  auto* slot = reinterpret_cast<char*>(memory.contract(0, members.rank, epoch));
  show_contract(slot, memory.stride(), members.rank, members.size, first, step, mine);
}

/// Compares this launch with those of one thread's peers, whose arrival at `epoch` has been seen, and leaves a
/// record of the first that differs.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline status compare_launches(resource_header* home, team members,
                                                               lsa::barrier_handle barriers, uint32_t index,
                                                               uint32_t epoch, int first, int step) {
  const barrier_memory memory{home->comm, members, barriers, index};
  const launch_contract* slots = memory.contract(members.rank, 0, epoch);
  const int member = first_difference(slots, members.rank, members.size, first, step);
  if (member < 0) return status::success;
  report(home, status::mismatch, {operation::lsa_barrier, index, members.number(member), epoch}, epoch,
         {slots + members.rank, slots + member});
  return status::mismatch;
}

/// One thread's part in one barrier. All threads of the group call each method, in the same order.
template <class Group>
class lsa_barrier : public barrier_group<Group>, public memory_ordered {
 public:
  static constexpr operation kind = operation::lsa_barrier;

  DEVCOMM_DEVICE lsa_barrier(Group group, const device_comm& comm, team members, lsa::barrier_handle barriers,
                             uint32_t index)
      : barrier_group<Group>(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(members),
        barriers_(barriers),
        index_(index),
        first_(static_cast<int>(group.thread_rank())),
        step_(static_cast<int>(group.size())) {
    DEVCOMM_ASSERT_OF(
        index < barriers.count, "barrier", index, barriers.count,
        "barrier index is past the barriers that requirements asked for; ask for more: needs.lsa_barriers(count)");
    DEVCOMM_ASSERT(static_cast<uint32_t>(members.size) == barriers.members,
                   "the barriers were made for a team of another size");
    check_team(members, comm);
    comm.check_owner(barriers);
    const barrier_memory memory{comm, members, barriers, index};
    epoch_ = arch::load<memory_order::relaxed, scope::device>(memory.epoch());
    if (first_ < members.size - 1) first_peer_ = nth_peer_flags(memory, first_);
    check_launch_ = (comm.flags & device_comm::check_launch) != 0;
    has_atomics_ = (comm.flags & device_comm::no_lsa_atomics) == 0;
    simple_ = can_be_simple() && !check_launch_;
    if (check_launch_)
      show_launch(memory, epoch_ + 1, first_, step_,
                  {arch::grid_blocks(), static_cast<uint32_t>(group.size()), comm.launch_key});
    if (is_aborted(home_)) mine_ = status::aborted;
  }

  /// Synchronizes the group and arrives.
  DEVCOMM_DEVICE void send(memory_order order) {
    group_.sync();
    if (simple_) {
      if (has_peer() && is_alive()) store_flag(first_peer_, order);
    } else {
      share_failure(outcome_word());
      store_all(order);
    }
  }

  /// Waits for the peers. The group's own sync is left to the caller.
  DEVCOMM_DEVICE void poll(memory_order order) {
    if (simple_) {
      if (has_peer() && mine_ == status::success) poll_flag(first_peer_, order, communicator_timeout());
    } else {
      poll_all(order, communicator_timeout());
      end_check();
    }
  }

  /// `send` and `poll`.
  DEVCOMM_DEVICE void send_and_poll(memory_order order) {
    group_.sync();
    if (simple_) {  // one branch for both halves: from the last arrival to the next, cycles count
      if (has_peer() && is_alive()) {
        store_flag(first_peer_, order);
        poll_flag(first_peer_, order, communicator_timeout());
      }
    } else {
      share_failure(outcome_word());
      store_all(order);
      poll_all(order, communicator_timeout());
      end_check();
    }
  }

  /// Waits for the peers for `limit`, and agrees on the outcome; synchronizes the group.
  DEVCOMM_DEVICE status poll_for(memory_order order, nanoseconds limit) {
    status mine = before_wait();
    if (mine == status::success) mine = poll_all(order, within(limit));
    const status outcome = settle(mine, outcome_word());
    if (outcome == status::success) end_check();
    return outcome;
  }

  /// Why the session is dead, agreed by the group.
  DEVCOMM_DEVICE status agree() { return agree_on_failure(outcome_word()); }

  /// The barrier has been passed.
  DEVCOMM_DEVICE void advance() { ++epoch_; }
  DEVCOMM_DEVICE uint32_t epoch() const { return epoch_; }
  /// Leaves the epoch to the next session.
  DEVCOMM_DEVICE void keep_epoch() const {
    if (first_ == 0) arch::store<memory_order::relaxed, scope::device>(memory().epoch(), epoch_);
  }

  /// Identifies this session to the simulator.
  DEVCOMM_DEVICE session_id id() const {
    const device_comm& comm = home_->comm;
    return {operation::lsa_barrier,
            index_,
            comm.rank,
            static_cast<uint32_t>(first_),
            static_cast<uint32_t>(step_),
            comm.resources.base,
            barriers_.offset,
            false};
  }

  DEVCOMM_DEVICE const team& members() const { return members_; }
  DEVCOMM_DEVICE resource_header* home() const { return home_; }
  /// The span of a wait for the next epoch.
  DEVCOMM_DEVICE trace_span trace(span_kind span) const {
    const auto handle = static_cast<uint32_t>(barriers_.offset / 128);
    const awaited_span name{static_cast<uint32_t>(operation::lsa_barrier), index_, handle, epoch_ + 1,
                            static_cast<uint32_t>(members_.first),         span};
    return {group_, home_, name.pack()};
  }

 private:
  using barrier_group<Group>::group_;
  using barrier_group<Group>::mine_;
  using barrier_group<Group>::before_wait;
  using barrier_group<Group>::settle;
  using barrier_group<Group>::share_failure;
  using barrier_group<Group>::agree_on_failure;

  /// For rare paths.
  DEVCOMM_DEVICE barrier_memory memory() const { return {home_->comm, members_, barriers_, index_}; }
  DEVCOMM_DEVICE uint32_t* outcome_word() const { return memory().outcome(); }
  DEVCOMM_DEVICE bool has_peer() const { return first_ < members_.size - 1; }
  /// Whether the peers fall to the lanes of one warp, one to each: a block's first warp, say.
  DEVCOMM_DEVICE bool can_be_simple() const {
    const int peers = members_.size - 1;
    return starts_with_warp<Group> && peers <= step_ && peers <= static_cast<int>(arch::warp_threads);
  }
  /// Calls `action` with each of this thread's peers while it returns true.
  template <class Action>
  DEVCOMM_DEVICE void for_each_peer(Action action) const {
    bool more = true;
    DEVCOMM_UNROLL_BY(1)
    for (int i = first_; more && i < members_.size - 1; i += step_)
      more = action(find_peer_flags(home_, members_, barriers_, index_, i));
  }

  /// Shares with the threads that have peers that one has found the session dead. For simple sessions, in which the
  /// others need not know.
  DEVCOMM_DEVICE bool is_alive() {
    const uint32_t lanes = arch::full_mask >> (33 - members_.size);
    const bool dead = arch::any(lanes, mine_ != status::success);
    if (dead && mine_ == status::success) mine_ = status::aborted;
    return !dead;
  }
  /// Launches are compared once a session.
  DEVCOMM_DEVICE void end_check() {
    check_launch_ = false;
    simple_ = can_be_simple();
  }

  DEVCOMM_DEVICE void store_flag(const peer_flags& peer, memory_order order) const {
    detail::store_flag(peer.theirs, epoch_ + 1, order, has_atomics_);
  }
  DEVCOMM_DEVICE void store_all(memory_order order) const {
    if (mine_ != status::success) return;
    for_each_peer([&](const peer_flags& peer) {
      store_flag(peer, order);
      return true;
    });
  }

  /// Waits for one peer. A failure ends the session, unless it is a deadline of the caller's own.
  DEVCOMM_DEVICE status poll_flag(const peer_flags& peer, memory_order order, deadline limit) {
    const uint32_t target = epoch_ + 1;
    uint32_t seen = epoch_;
    const auto wait = [&]() -> wait_site {
      return {operation::lsa_barrier, index_, members_.number(peer.member), target, wait_condition::epoch, 0, index_,
              barriers_.offset};
    };
    const auto label = [&] { return label_of(home_, wait(), limit, seen); };
    status outcome = status::success;
    const auto ready = [&] {
      seen = arch::load<memory_order::relaxed, scope::system>(peer.ours);
      return static_cast<int32_t>(seen - target) >= 0;
    };
    detail::poll(home_, limit, label, ready, [&](status failure) {
      outcome = failure;
      if (failure == status::timeout && limit.own) return;
      report(home_, failure, wait(), seen);
      mine_ = failure;
    });
    // Polls are relaxed, as an acquire load invalidates the L1 cache each time; the last one acquires.
    if (acquires(order)) static_cast<void>(arch::load<memory_order::acquire, scope::system>(peer.ours));
    if (order == launch_order) arch::see_launch(peer.ours);
    return outcome;
  }
  /// Waits for all of this thread's peers, and compares launches where that is due.
  DEVCOMM_DEVICE status poll_all(memory_order order, deadline limit) {
    status mine = mine_;
    if (mine != status::success) return mine;
    for_each_peer([&](const peer_flags& peer) {
      mine = poll_flag(peer, order, limit);
      return mine == status::success;
    });
    if (check_launch_ && mine == status::success)
      mine = mine_ = compare_launches(home_, members_, barriers_, index_, epoch_ + 1, first_, step_);
    return mine;
  }

  resource_header* home_;
  team members_;
  lsa::barrier_handle barriers_;
  uint32_t index_;
  int first_;  // first peer of this thread, and the distance to its next
  int step_;
  peer_flags first_peer_{};
  uint32_t epoch_ = 0;
  bool simple_ = false;  // the same for all threads of the group
  bool check_launch_ = false;
  bool has_atomics_ = true;
};

}  // namespace devcomm::detail
