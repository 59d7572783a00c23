/// \file barrier_session.cuh
/// Barriers among the ranks of an LSA team, from inside a kernel.
///
/// Protocol. Each rank holds, for each barrier, its own epoch and one flag for each member of the team. To
/// arrive at epoch `e + 1` a rank stores `e + 1` into its flag on every peer; to wait, it polls its own flags
/// until each is at least `e + 1`. A peer can be ahead by one epoch at most, as it cannot pass `e + 2` before
/// this rank arrives there, so flags are compared by the sign of their 32-bit difference and may wrap around.
/// Nothing is ever reset: the epoch outlives the kernel, so launches and graph replays need nothing between.
///
/// The release store of a flag pairs with its acquire load; the group's own `sync` before the one and after
/// the other extends the order to all its threads.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/barrier_memory.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/group.cuh>
#include <devcomm/memory_order.hpp>

namespace devcomm::lsa {

/// One group's hold on one barrier; usually a block's, with the block's index.
///
/// *Collective*: constructor, destructor and every method but `epoch` are called by all threads of the
/// group, on every rank of the team, in the same order. At most one session uses a barrier at a time on a
/// rank.
///
/// *Failure*: a wait without a deadline of its own ends after the communicator's timeout. The thread that
/// waited records who was missing and ends the device communicator's other waits on this rank; what has been
/// read is not to be trusted. From then on the session, and every later one of the device communicator, is
/// dead: it arrives nowhere, and its calls return as soon as the group has synchronised. The group is not told
/// of it, as that would cost every barrier: a kernel that would act on what it read, or loop for long, asks
/// `agree` first. The host's `device_communicator::check` throws in any case.
template <class Group>
class barrier_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  /// Barrier `index` of the communicator's own, see `requirements::lsa_barriers`.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, uint32_t index)
      : barrier_session(group, comm, comm.lsa(), comm.lsa_barriers, index) {}

  /// Barrier `index` of `barriers`, which were made for a team of this size. *Requires* that `members`
  /// is part of the LSA team.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, team members, barrier_handle barriers,
                                 uint32_t index)
      : group_(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(members),
        barriers_(barriers),
        index_(index),
        first_(static_cast<int>(group.thread_rank())),
        step_(static_cast<int>(group.size())) {
    DEVCOMM_ASSERT(index < barriers.count, "barrier index is past the barriers that requirements asked for");
    DEVCOMM_ASSERT(static_cast<uint32_t>(members.size) == barriers.members,
                   "the barriers were made for a team of another size");
    DEVCOMM_ASSERT(is_subset(members, comm.lsa()), "the team of an LSA barrier must lie within the LSA team");
    DEVCOMM_ASSERT(members.contains(comm.rank) && members.world_rank(members.rank) == comm.rank,
                   "the caller is not the member that its team says");
    const detail::barrier_memory memory{comm, members, barriers, index};
    epoch_ = detail::arch::load<memory_order::relaxed, scope::device>(memory.epoch());
    if (first_ < members.size - 1) first_peer_ = detail::nth_peer_flags(memory, first_);
    check_launch_ = (comm.flags & device_comm::check_launch) != 0;
    if (check_launch_)
      detail::show_launch(memory, epoch_ + 1, first_, step_,
                          {detail::arch::grid_blocks(), group.size(), comm.launch_key});
    usual_ = has_one_peer() && !check_launch_;
    if (detail::arch::load<memory_order::relaxed, scope::device>(&home_->failures) != 0) die(status::aborted);
  }

  barrier_session(const barrier_session&) = delete;
  barrier_session& operator=(const barrier_session&) = delete;

  /// Keeps the epoch for the next session. *Requires* that no arrival is left without its wait, but after a
  /// `status::timeout`: then the peers may be told of this arrival and not of what is written after it.
  DEVCOMM_DEVICE ~barrier_session() noexcept(false) {
    if (detail::arch::unwinding()) return;
    DEVCOMM_ASSERT(!arrived_ || timed_out_ || mine_ != status::success, "a session ended between arrive and wait");
    if (first_ == 0) detail::arch::store<memory_order::relaxed, scope::device>(memory().epoch(), epoch_);
    group_.sync();
  }

  /// Tells every peer that this group is here. *Ordering*: with an order that releases, what any
  /// thread of the group wrote before is visible to threads that acquire by waiting for this arrival.
  DEVCOMM_DEVICE void arrive(memory_order order = memory_order::release) {
    begin();
    usual_ ? store_flag(first_peer_, order) : store_all(order);
  }

  /// Waits for every peer's arrival. *Ordering*: with an order that acquires, every thread of the
  /// group sees what those peers wrote before they arrived with release.
  DEVCOMM_DEVICE void wait(memory_order order = memory_order::acquire) {
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    usual_ ? poll_flag(first_peer_, order, timeout()) : poll_all(order, timeout());
    group_.sync();
    advance();
  }

  /// `wait`, for `limit` and a little more: the clock is looked at once in some 500 looks, or 0.1 ms. The
  /// outcome is the same for all threads of the group. After `status::timeout` the epoch has not advanced,
  /// nothing is recorded, and the wait may be repeated.
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(nanoseconds limit, memory_order order = memory_order::acquire) {
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    status mine = mine_ == status::timeout ? status::aborted : mine_;  // repeating would not help
    if (mine == status::success) mine = poll_all(order, {true, limit.count});
    const status outcome = detail::agree(group_, mine, status::aborted, outcome_word());
    timed_out_ = outcome == status::timeout;
    if (outcome == status::success) advance();
    if (outcome == status::aborted || outcome == status::mismatch) {
      die(outcome);
      arrived_ = false;
    }
    return outcome;
  }

  /// `arrive` and `wait`.
  DEVCOMM_DEVICE void sync(memory_order order = memory_order::acq_rel) {
    begin();
    if (usual_) {  // one branch for both halves: from the last arrival to the next, cycles count
      store_flag(first_peer_, order);
      poll_flag(first_peer_, order, timeout());
    } else {
      store_all(order);
      poll_all(order, timeout());
    }
    group_.sync();
    advance();
  }

  /// `arrive`, unless an earlier call timed out after it, and `wait_for`.
  [[nodiscard]] DEVCOMM_DEVICE status sync_for(nanoseconds limit, memory_order order = memory_order::acq_rel) {
    if (!arrived_) arrive(order);
    return wait_for(limit, order);
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*:
  /// synchronises the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    const status outcome = detail::agree(group_, mine_, status::timeout, outcome_word());
    if (outcome != status::success) die(outcome);
    return outcome;
  }

  /// Epoch of the last barrier that this session went through; wraps around.
  [[nodiscard]] DEVCOMM_DEVICE uint32_t epoch() const { return epoch_; }

 private:
  /// For the paths that are not the usual one.
  DEVCOMM_DEVICE detail::barrier_memory memory() const { return {home_->comm, members_, barriers_, index_}; }
  DEVCOMM_DEVICE uint32_t* outcome_word() const { return memory().outcome(); }
  DEVCOMM_DEVICE bool has_one_peer() const { return first_ < members_.size - 1 && first_ + step_ >= members_.size - 1; }
  /// Calls `action` with each of this thread's peers while it returns true.
  template <class Action>
  DEVCOMM_DEVICE void for_each_peer(Action action) const {
    bool more = true;
    DEVCOMM_UNROLL_BY(1)
    for (int i = first_; more && i < members_.size - 1; i += step_)
      more = action(detail::find_peer_flags(home_, members_, barriers_, index_, i));
  }

  /// The communicator's timeout.
  DEVCOMM_DEVICE static constexpr detail::deadline timeout() { return {false, 0}; }

  DEVCOMM_DEVICE void begin() {
    DEVCOMM_ASSERT(!arrived_, "arrive called twice without a wait between");
    arrived_ = true;
    const bool dead = detail::any_of_first(group_, members_.size - 1, mine_ != status::success, outcome_word());
    if (dead && mine_ == status::success) die(status::aborted);
  }
  DEVCOMM_DEVICE void advance() {
    arrived_ = false;
    ++epoch_;
  }
  DEVCOMM_DEVICE void die(status outcome) {
    mine_ = outcome;
    usual_ = false;
  }

  DEVCOMM_DEVICE void store_flag(const detail::peer_flags& peer, memory_order order) const {
    detail::store_flag(peer.theirs, epoch_ + 1, order);
  }
  DEVCOMM_DEVICE void store_all(memory_order order) const {
    if (mine_ != status::success) return;
    for_each_peer([&](const detail::peer_flags& peer) {
      store_flag(peer, order);
      return true;
    });
  }

  /// Waits for one peer. A failure ends the session, unless it is a deadline of the caller's own.
  DEVCOMM_DEVICE status poll_flag(const detail::peer_flags& peer, memory_order order, detail::deadline limit) {
    const uint32_t target = epoch_ + 1;
    uint32_t seen = epoch_;
    const int rank = members_.world_rank(peer.member);
    const auto label = [&]() -> detail::wait_label {
      const uint64_t budget = limit.nanoseconds(*home_);
      return {operation::lsa_barrier, index_, home_->comm.rank, rank, target, budget, limit.own};
    };
    status outcome = status::success;
    const auto look = [&] {
      seen = detail::arch::load<memory_order::relaxed, scope::system>(peer.ours);
      return static_cast<int32_t>(seen - target) >= 0;
    };
    detail::poll(home_, limit, label, look, [&](status failure) {
      outcome = failure;
      if (failure == status::timeout && limit.own) return;
      detail::report(home_, failure, {operation::lsa_barrier, index_, rank, target, seen});
      die(failure);
    });
    // Looks are relaxed, as an acquire load invalidates the L1 cache each time; the last one acquires.
    if (acquires(order)) static_cast<void>(detail::arch::load<memory_order::acquire, scope::system>(peer.ours));
    return outcome;
  }
  /// Waits for all of this thread's peers, and compares launches where that is due.
  DEVCOMM_DEVICE status poll_all(memory_order order, detail::deadline limit) {
    status mine = mine_;
    if (mine != status::success) return mine;
    for_each_peer([&](const detail::peer_flags& peer) {
      mine = poll_flag(peer, order, limit);
      return mine == status::success;
    });
    if (check_launch_ && mine == status::success) {
      mine = detail::compare_launches(home_, members_, barriers_, index_, epoch_ + 1, first_, step_);
      check_launch_ = false;
      usual_ = has_one_peer();
      if (mine != status::success) die(mine);
    }
    return mine;
  }

  Group group_;
  resource_header* home_;
  team members_;
  barrier_handle barriers_;
  uint32_t index_;
  int first_;  // first peer of this thread, and the distance to its next
  int step_;
  detail::peer_flags first_peer_{};
  uint32_t epoch_ = 0;
  status mine_ = status::success;  // why this thread knows the session to be dead
  bool usual_ = false;             // this thread has one peer and nothing else to do
  bool arrived_ = false;
  bool timed_out_ = false;
  bool check_launch_ = false;
};

}  // namespace devcomm::lsa
