/// \file barrier_session.cuh
/// Barriers among the ranks of an LSA team, from inside a kernel.
///
/// Protocol. Each rank holds, for each barrier, its own epoch and one flag for each member of the
/// team. To arrive at epoch `e + 1` a rank stores `e + 1` into its flag on every peer; to wait, it
/// polls its own flags until each is at least `e + 1`. A peer can be ahead by one epoch at most, as
/// it cannot pass `e + 2` before this rank arrives there, so flags are compared by the sign of their
/// 32-bit difference and may wrap around. Nothing is ever reset: the epoch outlives the kernel, so
/// launches and replays of a CUDA graph follow one another as they are.
///
/// The release store of a flag in `arrive` pairs with the acquire load of it in `wait`; the group's
/// own `sync` before the one and after the other extends the order to all its threads.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/group.cuh>
#include <devcomm/memory_order.hpp>

namespace devcomm::lsa {

/// One group's hold on one barrier; usually a block's, with the block's index.
///
/// *Collective*: constructor, destructor and every method are called by all threads of the group, on
/// every rank of the team, in the same order. At most one session uses a barrier at a time on a rank.
///
/// *Failure*: a wait without a deadline of its own ends after the communicator's timeout. Its rank
/// then records who was missing, ends all its other waits, and the session is dead: `state()` tells,
/// and further calls return at once. The kernel should leave; what it has read is not to be trusted.
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
      : group_(group), comm_(comm), members_(members), barriers_(barriers), index_(index) {
    DEVCOMM_ASSERT(index < barriers.count, "barrier index is past the barriers that requirements asked for");
    DEVCOMM_ASSERT(static_cast<uint32_t>(members.size) == barriers.members,
                   "the barriers were made for a team of another size");
    DEVCOMM_ASSERT(is_subset(members, comm.lsa()), "the team of an LSA barrier must lie within the LSA team");
    epoch_ = detail::arch::load<memory_order::relaxed, scope::device>(epoch_word());
    check_launch_ = (comm.flags & device_comm::check_launch) != 0;
    first_peer_ = peer(static_cast<int>(group.thread_rank()));
  }

  barrier_session(const barrier_session&) = delete;
  barrier_session& operator=(const barrier_session&) = delete;

  /// Keeps the epoch for the next session.
  DEVCOMM_DEVICE ~barrier_session() {
    if (group_.thread_rank() == 0) detail::arch::store<memory_order::relaxed, scope::device>(epoch_word(), epoch_);
    group_.sync();
  }

  /// Tells every peer that this group is here. *Ordering*: with an order that releases, what any
  /// thread of the group wrote before is visible to threads that acquire by waiting for this arrival.
  DEVCOMM_DEVICE void arrive(memory_order order = memory_order::release) {
    if (state_ != status::success) return;
    DEVCOMM_ASSERT(!arrived_, "arrive called twice without a wait between");
    arrived_ = true;
    group_.sync();
    for_each_peer([&](const peer_flags& peer) {
      if (check_launch_) store_contract(contract_slot(peer.member, members_.rank));
      if (check_launch_ || releases(order)) {
        detail::arch::store<memory_order::release, scope::system>(peer.theirs, epoch_ + 1);
      } else {
        detail::arch::store<memory_order::relaxed, scope::system>(peer.theirs, epoch_ + 1);
      }
    });
  }

  /// Waits for every peer's arrival. *Ordering*: with an order that acquires, every thread of the
  /// group sees what those peers wrote before they arrived with release.
  DEVCOMM_DEVICE void wait(memory_order order = memory_order::acquire) {
    if (state_ == status::success) finish(look_for_peers(order, comm_.timeout, false));
  }

  /// `wait`, for at most `limit`. The outcome is the same for all threads of the group. After
  /// `status::timeout` the epoch has not advanced, nothing is recorded, and the wait may be repeated.
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(nanoseconds limit, memory_order order = memory_order::acquire) {
    if (state_ != status::success) return state_;
    const status outcome = look_for_peers(order, limit.count, true);
    if (outcome != status::timeout) finish(outcome);
    return outcome;
  }

  /// `arrive` and `wait`.
  DEVCOMM_DEVICE void sync(memory_order order = memory_order::acq_rel) {
    arrive(order);
    wait(order);
  }

  /// `arrive`, unless an earlier call timed out after it, and `wait_for`.
  [[nodiscard]] DEVCOMM_DEVICE status sync_for(nanoseconds limit, memory_order order = memory_order::acq_rel) {
    if (!arrived_) arrive(order);
    return wait_for(limit, order);
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group.
  [[nodiscard]] DEVCOMM_DEVICE status state() const { return state_; }

  /// Epoch of the last completed barrier; wraps around.
  [[nodiscard]] DEVCOMM_DEVICE uint32_t epoch() const { return epoch_; }

 private:
  /// A peer as one thread of the group sees it.
  struct peer_flags {
    int member;        // of the team; `members_.size` when the thread has no peer
    uint32_t* theirs;  // stored to when this rank arrives
    uint32_t* ours;    // polled until the peer has arrived
  };

  /// The `i`-th peer, not counting this rank.
  DEVCOMM_DEVICE peer_flags peer(int i) const {
    const int member = i < members_.rank ? i : i + 1;
    if (member >= members_.size) return {members_.size, nullptr, nullptr};
    return {member, flag(member, members_.rank), flag(members_.rank, member)};
  }

  /// Calls `action` with each of this thread's peers. Nearly always that is one or none, worked out once
  /// by the constructor, so that the path from the last arrival to the next is short.
  template <class Action>
  DEVCOMM_DEVICE void for_each_peer(Action action) const {
    if (first_peer_.member >= members_.size) return;
    action(first_peer_);
    const auto threads = static_cast<int>(group_.size());
    for (int i = static_cast<int>(group_.thread_rank()) + threads; i < members_.size - 1; i += threads) action(peer(i));
  }

  DEVCOMM_DEVICE barrier_layout layout() const { return {barriers_.count, barriers_.members}; }
  /// This team's barriers on one of its members. The resource window is always strided.
  DEVCOMM_DEVICE char* barriers_on(int member) const {
    const auto place = static_cast<uint64_t>(members_.world_rank(member) - comm_.lsa_first);
    return comm_.resources.base + place * comm_.resources.stride + barriers_.offset;
  }
  DEVCOMM_DEVICE uint32_t* own_word(uint64_t place) const {
    return reinterpret_cast<uint32_t*>(comm_.resources.local + barriers_.offset + place);
  }
  DEVCOMM_DEVICE uint32_t* epoch_word() const { return own_word(layout().epoch(index_)); }
  DEVCOMM_DEVICE uint32_t* outcome_word() const { return own_word(layout().outcome(index_)); }
  /// The flag on member `owner` that member `writer` stores to.
  DEVCOMM_DEVICE uint32_t* flag(int owner, int writer) const {
    return reinterpret_cast<uint32_t*>(barriers_on(owner) + layout().flag(index_, static_cast<uint32_t>(writer)));
  }
  /// The contract on member `owner` that member `writer` stores to. Even and odd epochs are apart: a
  /// peer one epoch ahead overwrites none that is still to be compared.
  DEVCOMM_DEVICE launch_contract* contract_slot(int owner, int writer) const {
    const uint64_t place = layout().contract(index_, static_cast<uint32_t>(writer), epoch_ + 1);
    return reinterpret_cast<launch_contract*>(barriers_on(owner) + place);
  }
  // Contracts are strong and relaxed: a launch that follows a timeout arrives at the same epoch again, and
  // stores the same contract while the late peer may be reading it.
  DEVCOMM_DEVICE void store_contract(launch_contract* slot) const {
    uint64_t words[2];
    const launch_contract mine = contract();
    __builtin_memcpy(words, &mine, sizeof words);
    auto* to = reinterpret_cast<uint64_t*>(slot);
    for (int i = 0; i < 2; ++i) detail::arch::store<memory_order::relaxed, scope::system>(to + i, words[i]);
  }
  DEVCOMM_DEVICE static launch_contract load_contract(const launch_contract* slot) {
    uint64_t words[2];
    const auto* from = reinterpret_cast<const uint64_t*>(slot);
    for (int i = 0; i < 2; ++i) words[i] = detail::arch::load<memory_order::relaxed, scope::system>(from + i);
    launch_contract theirs;
    __builtin_memcpy(&theirs, words, sizeof words);
    return theirs;
  }
  DEVCOMM_DEVICE launch_contract contract() const {
    return {detail::arch::grid_blocks(), group_.size(), comm_.launch_key};
  }

  /// Polls this thread's share of the flags and agrees on the outcome.
  DEVCOMM_DEVICE status look_for_peers(memory_order order, uint64_t budget, bool own_deadline) {
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    const bool acquire = acquires(order) || check_launch_;
    const uint32_t target = epoch_ + 1;
    status mine = status::success;
    for_each_peer([&](const peer_flags& peer) {
      if (mine != status::success) return;
      uint32_t seen = epoch_;
      const detail::wait_label label{
          operation::lsa_barrier, index_, comm_.rank, members_.world_rank(peer.member), target, budget, own_deadline};
      mine = detail::poll(comm_, label, [&] {
        seen = detail::arch::load<memory_order::relaxed, scope::system>(peer.ours);
        return static_cast<int32_t>(seen - target) >= 0;
      });
      // Polls are relaxed, as an acquire load invalidates the L1 cache each time; the last one acquires.
      if (acquire) static_cast<void>(detail::arch::load<memory_order::acquire, scope::system>(peer.ours));
      launch_contract theirs{};
      if (mine == status::success && check_launch_) {
        theirs = load_contract(contract_slot(members_.rank, peer.member));
        if (!same(theirs, contract())) mine = status::mismatch;
      }
      if (mine == status::success || (own_deadline && mine == status::timeout)) return;
      report(mine, peer.member, seen, theirs);
    });
    return detail::agree(group_, mine, outcome_word());
  }

  DEVCOMM_DEVICE void finish(status outcome) {
    if (outcome == status::success) {
      arrived_ = false;
      check_launch_ = false;
      ++epoch_;
      return;
    }
    state_ = outcome;
    if (group_.thread_rank() == 0 && outcome != status::aborted) detail::abort_waits(comm_);
  }

  DEVCOMM_DEVICE static bool same(const launch_contract& a, const launch_contract& b) {
    return a.grid_blocks == b.grid_blocks && a.group_threads == b.group_threads && a.key == b.key;
  }

  DEVCOMM_DEVICE void report(status outcome, int member, uint32_t seen, launch_contract theirs) const {
    failure_record record{};
    record.outcome = outcome;
    record.what = operation::lsa_barrier;
    record.index = index_;
    record.peer = members_.world_rank(member);
    record.expected = epoch_ + 1;
    record.seen = seen;
    record.mine = contract();
    record.theirs = theirs;
    detail::report(comm_, record);
  }

  Group group_;
  device_comm comm_;
  team members_;
  barrier_handle barriers_;
  peer_flags first_peer_{};
  uint32_t index_;
  uint32_t epoch_ = 0;
  status state_ = status::success;
  bool arrived_ = false;
  bool check_launch_ = false;
};

}  // namespace devcomm::lsa
