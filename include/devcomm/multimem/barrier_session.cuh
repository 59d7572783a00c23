/// \file barrier_session.cuh
/// Barriers of the LSA team with one multicast instruction for all peers and one word to wait for.
#pragma once

#include <devcomm/any_order.hpp>
#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/contract.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/detail/wait_for_word.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/group.cuh>
#include <devcomm/multimem/barriers.hpp>
#include <devcomm/multimem/ptr.cuh>

namespace devcomm::multimem {

/// A group's use of one barrier, as `lsa::barrier_session`; the calls are the same, and so is what they order.
///
///     multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
///     barrier.sync();
///
/// *Protocol*: a rank arrives at epoch `e` by adding 1 to the counter `e % 2` of every member, with release, by one
/// `multimem.red`; it waits until its own counter has `members` arrivals for each epoch of that parity. A peer is at
/// most one epoch ahead, and counts that arrival in the other counter: so a rank passes when all have arrived at its
/// own counter, although the switch reaches members one by one, and what a counter lacks is how many ranks are missing.
/// The addition pairs with the acquire load of the wait. Counters wrap around; nothing is reset. An addition cannot be
/// repeated as a store of a flag can: each rank keeps beside its epoch whether it has arrived at the next one, so that
/// a session that follows a timeout does not count twice.
///
/// For many ranks, or many blocks: arrivals cost one store each, however many peers there are. A counter does not say
/// who is missing: failure records have no peer, and how many arrivals were seen.
///
/// In software, where the resource window has no multicast address, a rank stores its epoch into its flag on every
/// peer, as `lsa::barrier_session` does: this takes no atomics, and records name the peer.
///
/// *Ordering*: what threads of the group did to memory by its multicast address is ordered before what others do by
/// other addresses after the barrier, and the other way round: thread 0 fences between the two, where there is a
/// multicast address. See `fences_aliases`.
///
/// *Collective*, *Failure*: as `lsa::barrier_session`.
template <class Group>
class barrier_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, barrier_handle barriers, uint32_t index)
      : group_(group),
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
    const uint64_t kept =
        devcomm::detail::arch::load<memory_order::relaxed, scope::device>(own<uint64_t>(layout().epoch(index)));
    epoch_ = kept >> 1;
    counted_ = (kept & 1) != 0;
    check_launch_ = (comm.flags & device_comm::check_launch) != 0;
    if (check_launch_) {
      devcomm::detail::show_contract(place(0) + layout().contract(index, static_cast<uint32_t>(members_.rank), next()),
                                     static_cast<int64_t>(comm.resources.stride), members_.rank, members_.size, first(),
                                     step(), {devcomm::detail::arch::grid_blocks(), group.size(), comm.launch_key});
    }
    if (devcomm::detail::is_aborted(home_)) mine_ = status::aborted;
    devcomm::detail::arch::begin_session(id());
  }
  barrier_session(const barrier_session&) = delete;
  barrier_session& operator=(const barrier_session&) = delete;

  /// Keeps the epoch for the next session, and whether peers have counted this rank at the next one. *Requires* that no
  /// arrival is left without its wait, but after a `status::timeout`: in that case the peers may have this arrival and
  /// not of what is written after it.
  DEVCOMM_DEVICE ~barrier_session() noexcept(false) {
    if (devcomm::detail::arch::unwinding()) return;
    called(devcomm::detail::session_call::end);
    DEVCOMM_ASSERT(!arrived_ || timed_out_ || mine_ != status::success, "a session ended between arrive and wait");
    if (first() == 0)
      devcomm::detail::arch::store<memory_order::relaxed, scope::device>(own<uint64_t>(layout().epoch(index_)),
                                                                         epoch_ << 1 | (counted_ ? 1u : 0u));
    devcomm::detail::sync_at_end(group_);
    devcomm::detail::arch::leave_session(id());
  }

  DEVCOMM_DEVICE void arrive(any_order order = memory_order::release) {
    devcomm::detail::check_store_order(order);
    called(devcomm::detail::session_call::arrive);
    send(order);
  }
  DEVCOMM_DEVICE void wait(any_order order = memory_order::acquire) {
    devcomm::detail::check_load_order(order);
    called(devcomm::detail::session_call::wait);
    end(order);
  }
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(nanoseconds limit, any_order order = memory_order::acquire) {
    devcomm::detail::check_load_order(order);
    return end_for(limit, order);
  }
  DEVCOMM_DEVICE void sync(any_order order = memory_order::acq_rel) {
    called(devcomm::detail::session_call::sync);
    send(order);
    end(order);
  }
  [[nodiscard]] DEVCOMM_DEVICE status sync_for(nanoseconds limit, any_order order = memory_order::acq_rel) {
    if (!arrived_) {
      called(devcomm::detail::session_call::arrive);
      send(order);
    }
    return end_for(limit, order);
  }
  /// `status::success`, or why the session is dead; the same for all threads of the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    called(devcomm::detail::session_call::agree);
    const status outcome = devcomm::detail::agree(group_, mine_, status::timeout, outcome_word());
    if (outcome != status::success) mine_ = outcome;
    return outcome;
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  DEVCOMM_DEVICE const team& members() const { return members_; }
  [[nodiscard]] DEVCOMM_DEVICE uint64_t epoch() const { return epoch_; }
  /// Whether the barrier stands for a `fence_alias` of every thread; otherwise threads that use a multicast address of
  /// another window fence on both sides of it. The same on all ranks.
  [[nodiscard]] DEVCOMM_DEVICE bool fences_aliases() const { return counters_.is_hardware(); }
  DEVCOMM_DEVICE trace_span trace(span_name name) const { return {group_, home_, name}; }
  DEVCOMM_DEVICE trace_span trace_call(collective_call which, uint64_t elements) const {
    return {group_, home_, call_span{which, static_cast<uint32_t>(operation::multimem_barrier), elements}.pack()};
  }

 private:
  DEVCOMM_DEVICE barrier_layout layout() const { return {barriers_.count, barriers_.members}; }
  DEVCOMM_DEVICE char* place(int member) const {
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

  DEVCOMM_DEVICE auto id() const {
    return [this]() -> devcomm::detail::session_id {
      const device_comm& comm = home_->comm;
      return {operation::multimem_barrier,
              index_,
              comm.rank,
              static_cast<uint32_t>(first()),
              static_cast<uint32_t>(step()),
              comm.resources.base,
              barriers_.offset,
              false};
    };
  }
  DEVCOMM_DEVICE void called(devcomm::detail::session_call call) const {
    devcomm::detail::arch::call_session(id(), call);
  }

  /// Shares with the whole group that a thread has found the session dead; synchronizes the group.
  DEVCOMM_DEVICE bool share_failure() {
    const bool dead = devcomm::detail::any(group_, mine_ != status::success, outcome_word());
    if (dead && mine_ == status::success) mine_ = status::aborted;
    return dead;
  }

  /// Synchronizes the group and arrives. A group of which one thread has failed does not. With launch contracts the
  /// arrival releases: threads other than the one that arrives have stored them.
  DEVCOMM_DEVICE void send(memory_order order) {
    DEVCOMM_ASSERT(!arrived_, "arrive called twice without a wait between");
    arrived_ = true;
    if (share_failure()) return;
    if (check_launch_) order = memory_order::release;
    if (!counters_.is_hardware()) {
      for (int i = first(); i < members_.size - 1; i += step())
        store_flag(devcomm::detail::nth_peer(i, members_.rank), order);
    } else if (first() == 0 && !counted_) {
      fence_alias();
      (counters_ + static_cast<int64_t>(next() % 2))
          .template reduce<sum>(1u, releases(order) ? memory_order::release : memory_order::relaxed);
    }
    counted_ = true;
  }
  DEVCOMM_DEVICE void store_flag(int member, memory_order order) const {
    auto* const flag =
        reinterpret_cast<uint32_t*>(place(member) + layout().flag(index_, static_cast<uint32_t>(members_.rank)));
    if (releases(order)) {
      devcomm::detail::arch::store<memory_order::release, scope::system>(flag, static_cast<uint32_t>(next()));
    } else {
      devcomm::detail::arch::store<memory_order::relaxed, scope::system>(flag, static_cast<uint32_t>(next()));
    }
  }

  /// Waits for one word of this rank. A failure ends the session, unless it is a deadline of the caller's own.
  DEVCOMM_DEVICE status poll_word(uint64_t offset, int peer, uint32_t goal, memory_order order,
                                  devcomm::detail::deadline limit) {
    const devcomm::detail::awaited_word wait{
        operation::multimem_barrier, index_, peer, wait_condition::at_least, 0, goal, index_, barriers_.offset};
    const status outcome = devcomm::detail::wait_for_word(
        home_, wait, own<uint32_t>(offset), [goal](uint32_t seen) { return static_cast<int32_t>(seen - goal) >= 0; },
        order, limit);
    if (outcome != status::success && !(outcome == status::timeout && limit.own)) mine_ = outcome;
    return outcome;
  }
  /// Thread 0 waits for the counter, or in software each thread for the flags of its peers: a thread that did not wait
  /// learns of a failure from `agree`, or from the next arrival.
  DEVCOMM_DEVICE status poll(memory_order order, devcomm::detail::deadline limit) {
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    if (mine_ != status::success) return mine_;
    if (check_launch_) order = memory_order::acquire;  // other threads compare
    status outcome = status::success;
    if (!counters_.is_hardware()) {
      for (int i = first(); outcome == status::success && i < members_.size - 1; i += step()) {
        const int member = devcomm::detail::nth_peer(i, members_.rank);
        outcome = poll_word(layout().flag(index_, static_cast<uint32_t>(member)),
                            static_cast<int>(members_.number(member)), static_cast<uint32_t>(next()), order, limit);
      }
    } else if (first() == 0) {
      outcome = poll_word(layout().arrivals(index_, next()), -1, target(), order, limit);
      fence_alias();
    }
    return outcome;
  }
  /// Once a session. *Requires* that all have arrived, as the group knows.
  DEVCOMM_DEVICE void compare_launches() {
    check_launch_ = false;
    const launch_contract* const slots = own<launch_contract>(layout().contract(index_, 0, next()));
    const int member = devcomm::detail::first_difference(slots, members_.rank, members_.size, first(), step());
    if (member < 0) return;
    mine_ = status::mismatch;
    const auto epoch = static_cast<uint32_t>(next());
    devcomm::detail::report(home_, status::mismatch,
                            devcomm::detail::awaited{operation::multimem_barrier, index_,
                                                     static_cast<int32_t>(members_.number(member)), epoch, epoch},
                            {slots + members_.rank, slots + member});
  }
  DEVCOMM_DEVICE void advance() {
    ++epoch_;
    counted_ = false;
  }
  DEVCOMM_DEVICE void end(memory_order order) {
    static_cast<void>(poll(order, devcomm::detail::communicator_timeout()));
    if (!check_launch_) {
      group_.sync();
    } else if (!share_failure()) {  // who has not arrived has shown no launch
      compare_launches();
    }
    advance();
    arrived_ = false;
  }
  DEVCOMM_DEVICE status end_for(nanoseconds limit, memory_order order) {
    called(devcomm::detail::session_call::wait_for);
    status mine = poll(order, {true, limit.count});
    if (mine_ == status::timeout) mine = status::aborted;  // repeating would not help
    status outcome = devcomm::detail::agree(group_, mine, status::aborted, outcome_word());
    if (outcome == status::success && check_launch_) {
      compare_launches();
      outcome = devcomm::detail::agree(group_, mine_, status::aborted, outcome_word());
    }
    timed_out_ = outcome == status::timeout;
    if (outcome == status::success) advance();
    if (outcome == status::aborted || outcome == status::mismatch) mine_ = outcome;
    if (outcome != status::timeout) arrived_ = false;
    return outcome;
  }

  Group group_;
  resource_header* home_;
  team members_;
  barrier_handle barriers_;
  uint32_t index_;
  ptr<uint32_t> counters_;  // of even epochs; those of odd ones are next
  uint64_t epoch_ = 0;
  status mine_ = status::success;  // why this thread knows the session to be dead
  bool check_launch_ = false;
  bool counted_ = false;  // this rank has arrived at the next epoch
  bool arrived_ = false;
  bool timed_out_ = false;
};

}  // namespace devcomm::multimem
