/// \file barrier_protocol.cuh
/// The protocol behind `multimem::barrier_session`.
///
/// *Protocol*: a rank arrives at epoch `e` by adding 1 to the counter `e % 2` of every member, with release, by one
/// `multimem.red`; it waits until its own counter has `members` arrivals for each epoch of that parity. A peer is at
/// most one epoch ahead, and counts that arrival in the other counter: so a rank passes when all have arrived at its
/// own counter, although the switch reaches members one by one, and what a counter lacks is how many ranks are missing.
/// The addition pairs with the acquire load of the wait. Counters wrap around; nothing is reset. An addition cannot be
/// repeated as a store of a flag can: each rank keeps beside its epoch whether it has arrived at the next one, so that
/// a session that follows a timeout does not count twice.
///
/// In software, where the resource window has no multicast address, a rank stores its epoch into its flag on every
/// peer, as `lsa::barrier_session` does: this takes no atomics, and records name the peer.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/barrier_calls.cuh>
#include <devcomm/detail/contract.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/detail/wait_for_word.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/multimem/barriers.hpp>
#include <devcomm/multimem/ptr.cuh>

namespace devcomm::detail {

/// One thread's part in one barrier. All threads of the group call each method, in the same order.
template <class Group>
class multimem_barrier : public barrier_group<Group>, public memory_ordered {
 public:
  static constexpr operation kind = operation::multimem_barrier;

  DEVCOMM_DEVICE multimem_barrier(Group group, const device_comm& comm, multimem::barrier_handle barriers,
                                  uint32_t index)
      : barrier_group<Group>(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(comm.lsa()),
        barriers_(barriers),
        index_(index),
        counters_(comm.resources, barriers.offset + layout().arrivals(index, 0)) {
    comm.check_owner(barriers);
    DEVCOMM_ASSERT_OF(index < barriers.count, "multimem barrier", index, barriers.count,
                      "barrier index is past the barriers that requirements asked for; ask for more");
    DEVCOMM_ASSERT(static_cast<uint32_t>(comm.lsa_size) == barriers.members,
                   "the barriers were made for an LSA team of another size");
    const uint64_t kept = arch::load<memory_order::relaxed, scope::device>(own<uint64_t>(layout().epoch(index)));
    epoch_ = kept >> 1;
    counted_ = (kept & 1) != 0;
    check_launch_ = (comm.flags & device_comm::check_launch) != 0;
    if (check_launch_) {
      show_contract(barriers_on(0) + layout().contract(index, static_cast<uint32_t>(members_.rank), next()),
                    static_cast<int64_t>(comm.resources.stride), members_.rank, members_.size, first(), step(),
                    {arch::grid_blocks(), group.size(), comm.launch_key});
    }
    if (is_aborted(home_)) mine_ = status::aborted;
  }

  /// Synchronizes the group and arrives. A group of which one thread has failed does not. With launch contracts the
  /// arrival releases: threads other than the one that arrives have stored them.
  DEVCOMM_DEVICE void send(memory_order order) {
    if (share_failure(outcome_word())) return;
    if (check_launch_) order = memory_order::release;
    if (!counters_.is_hardware()) {
      for (int i = first(); i < members_.size - 1; i += step()) store_flag(nth_peer(i, members_.rank), order);
    } else if (first() == 0 && !counted_) {
      multimem::fence_alias();
      (counters_ + static_cast<int64_t>(next() % 2))
          .template reduce<sum>(1u, releases(order) ? memory_order::release : memory_order::relaxed);
    }
    counted_ = true;
  }
  /// Waits for the peers. The group's own sync is left to `join`.
  DEVCOMM_DEVICE void poll(memory_order order) { static_cast<void>(poll_until(order, communicator_timeout())); }
  DEVCOMM_DEVICE void send_and_poll(memory_order order) {
    send(order);
    poll(order);
  }
  /// Synchronizes the group after its wait, and compares launches where that is due.
  DEVCOMM_DEVICE void join() {
    if (!check_launch_) {
      group_.sync();
    } else if (!share_failure(outcome_word())) {  // who has not arrived has shown no launch
      compare_launches();
    }
  }
  /// Waits for the peers for `limit`, and agrees on the outcome; synchronizes the group.
  DEVCOMM_DEVICE status poll_for(memory_order order, nanoseconds limit) {
    status mine = poll_until(order, within(limit));
    if (mine_ == status::timeout) mine = before_wait();
    const status outcome = settle(mine, outcome_word());
    if (outcome != status::success || !check_launch_) return outcome;
    compare_launches();
    return settle(mine_, outcome_word());
  }
  /// Why the session is dead, agreed by the group.
  DEVCOMM_DEVICE status agree() { return agree_on_failure(outcome_word()); }

  /// The barrier has been passed.
  DEVCOMM_DEVICE void advance() {
    ++epoch_;
    counted_ = false;
  }
  DEVCOMM_DEVICE uint64_t epoch() const { return epoch_; }
  /// Leaves the epoch to the next session, and whether peers have counted this rank at the next one.
  DEVCOMM_DEVICE void keep_epoch() const {
    if (first() == 0) {
      arch::store<memory_order::relaxed, scope::device>(own<uint64_t>(layout().epoch(index_)),
                                                        epoch_ << 1 | (counted_ ? 1u : 0u));
    }
  }

  DEVCOMM_DEVICE const team& members() const { return members_; }
  DEVCOMM_DEVICE resource_header* home() const { return home_; }
  /// Whether arrivals are multicast.
  DEVCOMM_DEVICE bool is_hardware() const { return counters_.is_hardware(); }
  DEVCOMM_DEVICE untraced trace(span_kind) const { return {}; }
  /// Identifies this session to the simulator.
  DEVCOMM_DEVICE session_id id() const {
    const device_comm& comm = home_->comm;
    return {operation::multimem_barrier,
            index_,
            comm.rank,
            static_cast<uint32_t>(first()),
            static_cast<uint32_t>(step()),
            comm.resources.base,
            barriers_.offset,
            false};
  }

 private:
  using barrier_group<Group>::group_;
  using barrier_group<Group>::mine_;
  using barrier_group<Group>::keep;
  using barrier_group<Group>::before_wait;
  using barrier_group<Group>::settle;
  using barrier_group<Group>::share_failure;
  using barrier_group<Group>::agree_on_failure;

  DEVCOMM_DEVICE multimem::barrier_layout layout() const { return {barriers_.count, barriers_.members}; }
  DEVCOMM_DEVICE char* barriers_on(int member) const {
    const window& memory = home_->comm.resources;
    return memory.base + static_cast<uint64_t>(member) * memory.stride + barriers_.offset;
  }
  template <class T>
  DEVCOMM_DEVICE T* own(uint64_t offset) const {
    return reinterpret_cast<T*>(home_->comm.resources.local + barriers_.offset + offset);
  }
  DEVCOMM_DEVICE uint32_t* outcome_word() const { return own<uint32_t>(layout().outcome(index_)); }
  DEVCOMM_DEVICE int first() const { return static_cast<int>(group_.thread_rank()); }
  DEVCOMM_DEVICE int step() const { return static_cast<int>(group_.size()); }
  DEVCOMM_DEVICE uint64_t next() const { return epoch_ + 1; }
  /// Arrivals at the epochs of this parity up to the next one; wraps around.
  DEVCOMM_DEVICE uint32_t target() const {
    return static_cast<uint32_t>((next() + next() % 2) / 2 * static_cast<uint64_t>(members_.size));
  }

  DEVCOMM_DEVICE void store_flag(int member, memory_order order) const {
    auto* const flag =
        reinterpret_cast<uint32_t*>(barriers_on(member) + layout().flag(index_, static_cast<uint32_t>(members_.rank)));
    if (releases(order)) {
      arch::store<memory_order::release, scope::system>(flag, static_cast<uint32_t>(next()));
    } else {
      arch::store<memory_order::relaxed, scope::system>(flag, static_cast<uint32_t>(next()));
    }
  }

  /// Waits for one word of this rank.
  DEVCOMM_DEVICE status poll_word(uint64_t offset, int peer, uint32_t goal, memory_order order, deadline limit) {
    const wait_site wait{operation::multimem_barrier, index_, peer,   goal,
                         wait_condition::at_least,    0,      index_, barriers_.offset};
    return keep(wait_for_word(
                    home_, wait, own<uint32_t>(offset),
                    [goal](uint32_t seen) { return static_cast<int32_t>(seen - goal) >= 0; }, order, limit),
                limit);
  }
  /// Thread 0 waits for the counter, or in software each thread for the flags of its peers: a thread that did not wait
  /// learns of a failure from `agree`, or from the next arrival.
  DEVCOMM_DEVICE status poll_until(memory_order order, deadline limit) {
    if (mine_ != status::success) return mine_;
    if (check_launch_) order = memory_order::acquire;  // other threads compare
    status outcome = status::success;
    if (!counters_.is_hardware()) {
      for (int i = first(); outcome == status::success && i < members_.size - 1; i += step()) {
        const int member = nth_peer(i, members_.rank);
        outcome = poll_word(layout().flag(index_, static_cast<uint32_t>(member)),
                            static_cast<int>(members_.number(member)), static_cast<uint32_t>(next()), order, limit);
      }
    } else if (first() == 0) {
      outcome = poll_word(layout().arrivals(index_, next()), -1, target(), order, limit);
      multimem::fence_alias();
    }
    return outcome;
  }
  /// Once a session. *Requires* that all have arrived, as the group knows.
  DEVCOMM_DEVICE void compare_launches() {
    check_launch_ = false;
    const launch_contract* const slots = own<launch_contract>(layout().contract(index_, 0, next()));
    const int member = first_difference(slots, members_.rank, members_.size, first(), step());
    if (member < 0) return;
    mine_ = status::mismatch;
    const auto epoch = static_cast<uint32_t>(next());
    report(home_, status::mismatch,
           {operation::multimem_barrier, index_, static_cast<int32_t>(members_.number(member)), epoch}, epoch,
           {slots + members_.rank, slots + member});
  }

  resource_header* home_;
  team members_;
  multimem::barrier_handle barriers_;
  uint32_t index_;
  multimem::ptr<uint32_t> counters_;  // of even epochs; those of odd ones are next
  uint64_t epoch_ = 0;
  bool check_launch_ = false;
  bool counted_ = false;  // this rank has arrived at the next epoch
};

}  // namespace devcomm::detail
