/// \file barrier_protocol.cuh
/// The protocol behind `gin::barrier_session`, and the part of `collective::barrier_session` that crosses the network.
///
/// Protocol. For each barrier of a context, every rank has two signals from each rank of the world: one for barriers
/// that fence puts, one for those that do not. To arrive, a rank adds 1 to its signal on each peer; to pass, it waits
/// until each peer's signal is one more than the number of barriers of that kind the two have completed. That number is
/// kept in device memory for each barrier, context and peer, so different teams may use a barrier one after the other,
/// and nothing is reset between launches. A peer cannot arrive at the barrier after next before this rank has arrived
/// at the next one, so a signal is at most one ahead.
///
/// *Why two signals*. An arrival that fences puts is a strong signal; any other is a weak one, which may overtake it:
/// once its peers have come, a rank passes a fenced barrier and arrives at the next one while its own puts, and the
/// strong signal behind them, are still under way. With a shared signal, that weak arrival could be counted as the
/// strong one, and the peer would pass the fenced barrier without the puts. With separate signals, strong ones take
/// effect in the order of the fenced barriers, each after the puts before it; and of any `n` weak ones, one was posted
/// at the `n`-th barrier without a fence, or at a later one.
///
/// Weak additions may take effect in any order, unlike sets, but they cannot be repeated. So the lowest bit beside the
/// count says whether this rank has arrived at the next barrier, and an arrival after a timeout is not sent twice.
///
/// Posting a signal releases at system scope, and pairs with the acquire of the wait for its word; the group's own
/// `sync` before the one and after the other extends the order to all its threads.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/barrier_calls.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/gin/barriers.hpp>
#include <devcomm/gin/detail/queue_end.cuh>
#include <devcomm/group.cuh>
#include <devcomm/memory_order.hpp>
#include <devcomm/status.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// Members with whom a rank does not synchronize over the network.
enum class left_out : uint32_t { nobody, self, lsa_team };

/// With whom a rank synchronizes.
struct barrier_peers {
  team members;
  left_out without = left_out::nobody;
};

/// For protocols whose calls take fence levels. A wait takes none: that of its arrival applies.
struct fence_ordered {
  struct level_of_arrival {};

  using order_type = gin::fence_level;
  using wait_order_type = level_of_arrival;
  static constexpr gin::fence_level arrive_default = gin::fence_level::put_and_get;
  static constexpr level_of_arrival wait_default{};
  static constexpr gin::fence_level sync_default = gin::fence_level::put_and_get;

  DEVCOMM_DEVICE static void check_arrival(gin::fence_level) {}
  DEVCOMM_DEVICE static void check_wait(level_of_arrival) {}
};

/// One thread's part in one barrier. All threads of the group call each method, in the same order.
template <class Group>
class network_barrier : public barrier_group<Group>, public fence_ordered {
 public:
  static constexpr operation kind = operation::gin_barrier;

  DEVCOMM_DEVICE network_barrier(Group group, const device_comm& comm, team members,
                                 const gin::context_handle& contexts, gin::context_range range, uint32_t index)
      : barrier_group<Group>(group),
        peers_{members},
        contexts_(contexts),
        first_(queue_end::of(comm, contexts, range.first)),
        range_{range.first, range.count < contexts.count ? range.count : contexts.count},
        index_(index) {
    DEVCOMM_ASSERT(is_range_of(contexts, range),
                   "the contexts of a barrier are none, or past those that requirements asked for; give it "
                   "one_context(index) or all_contexts()");
    DEVCOMM_ASSERT_OF(index < contexts.barriers, "GIN barrier", index, contexts.barriers,
                      "barrier index is past the barriers that gin::contexts asked for; ask for more: "
                      "gin::contexts{.barriers = count}");
    if (is_aborted(home())) mine_ = status::aborted;
    DEVCOMM_ASSERT(is_subset(members, comm.world()), "the team of a GIN barrier must lie within the world");
    DEVCOMM_ASSERT(members.contains(comm.rank) && members.world_rank(members.rank) == comm.rank,
                   "the caller is not the member that its team says");
  }

  /// With whom the next barrier synchronizes. Not between an arrival and its `advance`.
  DEVCOMM_DEVICE void set_peers(const barrier_peers& peers) { peers_ = peers; }

  DEVCOMM_DEVICE void check_repeat([[maybe_unused]] gin::fence_level level) const {
    DEVCOMM_ASSERT(gin::fences_puts(level) == gin::fences_puts(level_),
                   "sync_for repeats a barrier that timed out: give it the level of the first call");
  }
  /// Synchronizes the group, and waits until what it has got can be read, where the level says so.
  DEVCOMM_DEVICE void prepare(gin::fence_level level) { static_cast<void>(flush(level, communicator_timeout())); }
  DEVCOMM_DEVICE status prepare_for(gin::fence_level level, nanoseconds limit) {
    return settle(flush(level, within(limit)), outcome_word());
  }
  DEVCOMM_DEVICE status flush(gin::fence_level level, deadline limit) {
    group_.sync();
    see_abort();
    if (!gin::fences_gets(level)) return mine_;
    status outcome = mine_;
    for (uint32_t i = thread(); i < range_.count && outcome == status::success; i += threads()) {
      const queue_end queue = first_.sibling(range_.first + i);
      const uint64_t posted = arch::load<memory_order::relaxed, scope::device>(&queue.record->posted);
      const wait_site wait{operation::gin_flush, queue.index, -1, posted, wait_condition::done_by_proxy};
      outcome = wait_for_proxy(queue, queue.layout.done(), wait, limit);
    }
    return keep(outcome, limit);
  }
  /// Synchronizes the group and signals the peers. *Ordering*: releases what any thread of the group did before.
  DEVCOMM_DEVICE void send(gin::fence_level level) {
    level_ = level;
    group_.sync();
    see_abort();
    for_each([&](const queue_end& queue, uint32_t peer) {
      uint64_t* const count = completed(queue, level_, peer);
      const uint64_t now = arch::load<memory_order::relaxed, scope::device>(count);
      if (now % 2 != 0) return status::success;  // signaled by a session that timed out
      DEVCOMM_ASSERT(
          (arch::load<memory_order::relaxed, scope::device>(
               completed(queue, gin::fences_puts(level_) ? gin::fence_level::none : gin::fence_level::put, peer)) %
           2) == 0,
          "an earlier use of this barrier timed out, and its arrival counts for the next one that fences puts as it "
          "did; repeat it with the same level before one of another kind");
      gin::descriptor arrival{};
      arrival.actions = contexts_.arrivals(index_, gin::fences_puts(level), peer_of_peers());
      arrival.signal_value = 1;
      const gin::descriptor_head head{gin::operation_kind::signal,
                                      gin::signal_change::add,
                                      gin::fences_puts(level) ? gin::strength::strong : gin::strength::weak,
                                      false,
                                      0,
                                      peer};
      const status outcome = post(queue, arrival, head, communicator_timeout());
      if (outcome == status::success) arch::store<memory_order::relaxed, scope::device>(count, now + 1);
      return keep(outcome, communicator_timeout());
    });
  }
  /// Waits for the peers. The group's own sync is left to the caller.
  template <class Level>
  DEVCOMM_DEVICE void poll(Level) {
    static_cast<void>(poll_until(communicator_timeout()));
  }
  /// Waits for the peers for `limit`, and agrees on the outcome; synchronizes the group.
  template <class Level>
  DEVCOMM_DEVICE status poll_for(Level, nanoseconds limit) {
    return settle(poll_until(within(limit)), outcome_word());
  }
  DEVCOMM_DEVICE void send_and_poll(gin::fence_level level) {
    send(level);
    poll(level);
  }
  DEVCOMM_DEVICE status poll_until(deadline limit) {
    status outcome = before_wait();
    if (outcome != status::success) return outcome;
    for_each([&](const queue_end& queue, uint32_t peer) {
      const uint64_t now = arch::load<memory_order::relaxed, scope::device>(completed(queue, level_, peer));
      const auto signal = static_cast<uint32_t>(contexts_.arrivals(index_, gin::fences_puts(level_), peer));
      const wait_site wait{operation::gin_barrier,
                           index_,
                           static_cast<int32_t>(peer),
                           now / 2 + 1,
                           wait_condition::epoch,
                           0,
                           queue.index};
      outcome = keep(wait_for_proxy(queue, queue.layout.signal(signal), wait, limit), limit);
      return outcome;
    });
    return outcome;
  }
  /// The barrier has been passed.
  DEVCOMM_DEVICE void advance() {
    for_each([&](const queue_end& queue, uint32_t peer) {
      uint64_t* const count = completed(queue, level_, peer);
      arch::store<memory_order::relaxed, scope::device>(
          count, arch::load<memory_order::relaxed, scope::device>(count) / 2 * 2 + 2);
      return status::success;
    });
  }
  DEVCOMM_DEVICE void keep_epoch() const {}  // `advance` has kept it
  /// Why the session is dead, agreed by the group.
  DEVCOMM_DEVICE status agree() {
    see_abort();
    return agree_on_failure(outcome_word());
  }

  DEVCOMM_DEVICE const team& members() const { return peers_.members; }
  DEVCOMM_DEVICE untraced trace(span_kind) const { return {}; }
  DEVCOMM_DEVICE resource_header* home() const { return first_.home; }
  DEVCOMM_DEVICE const gin::context_handle& contexts() const { return contexts_; }
  DEVCOMM_DEVICE uint32_t first_context() const { return range_.first; }
  DEVCOMM_DEVICE session_id id() const {
    const device_comm& comm = home()->comm;
    return {operation::gin_barrier,
            range_.first * contexts_.barriers + index_,
            comm.rank,
            thread(),
            threads(),
            comm.resources.base,
            contexts_.offset,
            false};
  }

 private:
  using barrier_group<Group>::group_;
  using barrier_group<Group>::mine_;
  using barrier_group<Group>::keep;
  using barrier_group<Group>::before_wait;
  using barrier_group<Group>::settle;
  using barrier_group<Group>::agree_on_failure;

  /// Another wait of this rank may have failed.
  DEVCOMM_DEVICE void see_abort() {
    if (mine_ == status::success && is_aborted(home())) mine_ = status::aborted;
  }
  DEVCOMM_DEVICE static bool is_range_of(const gin::context_handle& contexts, gin::context_range range) {
    if (range.count == gin::all_contexts().count) return range.first == 0 && contexts.count != 0;
    return range.count != 0 && range.first < contexts.count && range.count <= contexts.count - range.first;
  }
  DEVCOMM_DEVICE uint32_t thread() const { return group_.thread_rank(); }
  DEVCOMM_DEVICE uint32_t threads() const { return group_.size(); }
  /// This rank, as its peers know it.
  DEVCOMM_DEVICE uint32_t peer_of_peers() const { return static_cast<uint32_t>(home()->comm.rank); }
  DEVCOMM_DEVICE char* memory() const {
    return home()->comm.resources.local + contexts_.offset + uint64_t{contexts_.count} * first_.layout.bytes();
  }
  DEVCOMM_DEVICE gin::barrier_layout layout() const { return {contexts_.count, contexts_.barriers, contexts_.members}; }
  DEVCOMM_DEVICE uint64_t* completed(const queue_end& queue, gin::fence_level level, uint32_t peer) const {
    return reinterpret_cast<uint64_t*>(memory() +
                                       layout().completed(queue.index, index_, gin::fences_puts(level), peer));
  }
  DEVCOMM_DEVICE uint32_t* outcome_word() const {
    return reinterpret_cast<uint32_t*>(memory() + layout().outcome(range_.first, index_));
  }
  /// Calls `action` with each of this thread's pairs of a context and a peer while it returns success. Where puts are
  /// fenced, they are fenced in each context, and for the rank itself too; else one context will do.
  template <class Action>
  DEVCOMM_DEVICE void for_each(Action action) {
    const team& members = peers_.members;
    const auto size = static_cast<uint32_t>(members.size);
    const uint32_t pairs = gin::fences_puts(level_) ? range_.count * size : size;
    status outcome = mine_;
    DEVCOMM_UNROLL_BY(1)
    for (uint32_t i = thread(); i < pairs && outcome == status::success; i += threads()) {
      // Starts with the next rank, so that not all signal the same one at once.
      const uint32_t member = (static_cast<uint32_t>(members.rank) + 1 + i % size) % size;
      const int peer = members.world_rank(static_cast<int>(member));
      const bool is_self = static_cast<int32_t>(member) == members.rank;
      if (is_self && (!gin::fences_puts(level_) || peers_.without == left_out::self)) continue;
      if (peers_.without == left_out::lsa_team && home()->comm.lsa_member(peer) >= 0) continue;
      outcome = action(first_.sibling(range_.first + i / size), static_cast<uint32_t>(peer));
    }
  }

  barrier_peers peers_;
  gin::fence_level level_ = gin::fence_level::none;  // of the latest arrival
  gin::context_handle contexts_;
  queue_end first_;
  gin::context_range range_;
  uint32_t index_;
};

}  // namespace devcomm::detail
