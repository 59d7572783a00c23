/// \file barrier_calls.cuh
/// The calls of barrier sessions: what they share, whatever the protocol by which ranks signal and wait.
#pragma once

#include <devcomm/any_order.hpp>
#include <devcomm/arch/arch.cuh>
#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/group.cuh>
#include <devcomm/status.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// Takes the place of a `trace_span` in waits that are not traced.
struct untraced {};

/// For protocols whose calls take memory orders.
struct memory_ordered {
  using order_type = any_order;
  using wait_order_type = any_order;
  static constexpr memory_order arrive_default = memory_order::release;
  static constexpr memory_order wait_default = memory_order::acquire;
  static constexpr memory_order sync_default = memory_order::acq_rel;

  DEVCOMM_DEVICE static void check_arrival(memory_order order) { check_store_order(order); }
  DEVCOMM_DEVICE static void check_wait(memory_order order) { check_load_order(order); }
  DEVCOMM_DEVICE static void check_repeat(memory_order) {}
  DEVCOMM_DEVICE static void prepare(memory_order) {}
  DEVCOMM_DEVICE static status prepare_for(memory_order, nanoseconds) { return status::success; }
};

/// Base of barrier protocols: the group, and the failure that each of its threads has seen. `word` is the barrier's own
/// scratch word, for the vote of groups that lack a member `any`.
template <class Group>
class barrier_group {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  DEVCOMM_DEVICE explicit barrier_group(Group group) : group_(group) {}

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  /// Whether this thread has seen the session fail.
  DEVCOMM_DEVICE bool is_dead() const { return mine_ != status::success; }
  /// Synchronizes the group after its wait.
  DEVCOMM_DEVICE void join() { group_.sync(); }

 protected:
  /// A failure ends the session, unless it is a deadline of the caller's own.
  DEVCOMM_DEVICE status keep(status outcome, deadline limit) {
    if (outcome != status::success && !(outcome == status::timeout && limit.own)) mine_ = outcome;
    return outcome;
  }
  /// The outcome that a wait with a deadline starts from. After the communicator's timeout the wait cannot be repeated.
  DEVCOMM_DEVICE status before_wait() const { return mine_ == status::timeout ? status::aborted : mine_; }
  /// Shares with the whole group that a thread has found the session dead; synchronizes the group.
  DEVCOMM_DEVICE bool share_failure(uint32_t* word) {
    const bool dead = any(group_, mine_ != status::success, word);
    if (dead && mine_ == status::success) mine_ = status::aborted;
    return dead;
  }
  /// One outcome of a wait with a deadline for the whole group; synchronizes the group.
  DEVCOMM_DEVICE status settle(status outcome, uint32_t* word) {
    const status agreed = detail::agree(group_, outcome, status::aborted, word);
    if ((agreed == status::aborted || agreed == status::mismatch) && mine_ == status::success) mine_ = agreed;
    return agreed;
  }
  /// Why the session is dead, for the whole group; synchronizes the group.
  DEVCOMM_DEVICE status agree_on_failure(uint32_t* word) {
    const status outcome = detail::agree(group_, mine_, status::timeout, word);
    if (outcome != status::success) mine_ = outcome;
    return outcome;
  }

  Group group_;
  status mine_ = status::success;  // the failure that this thread has seen
};

/// The calls of a barrier session over a `Protocol`, which is one thread's part in one barrier. Sessions inherit them
/// and add their constructors.
///
/// All threads of the group call each method of a protocol, in the same order:
/// - `prepare(order)`, `prepare_for(order, limit)`: what goes before the arrival and may take time;
/// - `send(order)`: synchronizes the group and arrives;
/// - `poll(order)`: waits, no longer than the communicator's timeout; `send_and_poll(order)` does both;
/// - `join()`: synchronizes the group after its wait;
/// - `poll_for(order, limit)`: waits, agrees on the outcome, and synchronizes the group;
/// - `advance()`: the barrier has been passed; `keep_epoch()`: the session ends;
/// - `agree`, `is_dead`, `group`, `members`, `home`, `id`, `trace`; `check_arrival`, `check_wait` and `check_repeat`
///   refuse orders in checked mode;
/// - `order_type` and `wait_order_type`, the types of arguments, with the defaults `arrive_default`, `wait_default` and
///   `sync_default`; `kind`, the operation that a trace names.
template <class Protocol>
class barrier_calls {
 public:
  using order_type = typename Protocol::order_type;
  using wait_order_type = typename Protocol::wait_order_type;

  barrier_calls(const barrier_calls&) = delete;
  barrier_calls& operator=(const barrier_calls&) = delete;

  /// Keeps the epoch for the next session. *Requires* that every arrival has had its wait, except after a
  /// `status::timeout`; in that case the peers have this arrival, but no guarantee about what is written after it.
  DEVCOMM_DEVICE ~barrier_calls() noexcept(false) {
    if (arch::unwinding()) return;
    called(session_call::end);
    DEVCOMM_ASSERT(!arrived_ || timed_out_ || protocol_.is_dead(), "a session ended between arrive and wait");
    protocol_.keep_epoch();
    sync_at_end(group());
    arch::leave_session(id());
  }

  /// Signals every peer that this group has arrived. *Ordering*: with an order that releases, what any
  /// thread of the group wrote before is visible to threads that acquire by waiting for this arrival.
  DEVCOMM_DEVICE void arrive(order_type order = Protocol::arrive_default) {
    protocol_.check_arrival(order);
    called(session_call::arrive);
    begin();
    protocol_.prepare(order);
    protocol_.send(order);
  }

  /// Waits for every peer's arrival. *Ordering*: with an order that acquires, every thread of the
  /// group sees what those peers wrote before they arrived with release.
  DEVCOMM_DEVICE void wait(wait_order_type order = Protocol::wait_default) {
    protocol_.check_wait(order);
    called(session_call::wait);
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    [[maybe_unused]] const auto traced = protocol_.trace(span_kind::wait);
    protocol_.poll(order);
    end();
  }

  /// `wait`, for `limit` and a little more: the clock is read once in some 500 polls, or 0.1 ms. The
  /// outcome is the same for all threads of the group. After `status::timeout` the epoch has not advanced,
  /// nothing is recorded, and the wait may be repeated.
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(nanoseconds limit, wait_order_type order = Protocol::wait_default) {
    protocol_.check_wait(order);
    return wait_with(limit, order);
  }

  /// `arrive` and `wait`.
  DEVCOMM_DEVICE void sync(order_type order = Protocol::sync_default) {
    called(session_call::sync);
    begin();
    protocol_.prepare(order);
    [[maybe_unused]] const auto traced = protocol_.trace(span_kind::sync);
    protocol_.send_and_poll(order);
    end();
  }

  /// `arrive`, unless an earlier call timed out after it, and `wait_for`. What goes before the arrival, such as the
  /// flush of a `gin::fence_level` that fences gets, may take `limit` too; if it takes longer, no peer is signaled.
  [[nodiscard]] DEVCOMM_DEVICE status sync_for(nanoseconds limit, order_type order = Protocol::sync_default) {
    if (!arrived_) {
      called(session_call::arrive);
      const status prepared = protocol_.prepare_for(order, limit);
      timed_out_ = prepared == status::timeout;
      if (prepared != status::success) return prepared;
      begin();
      protocol_.send(order);
    } else {
      protocol_.check_repeat(order);
    }
    return wait_with(limit, order);
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*:
  /// synchronizes the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    called(session_call::agree);
    return protocol_.agree();
  }

  DEVCOMM_DEVICE decltype(auto) group() const { return protocol_.group(); }
  DEVCOMM_DEVICE const team& members() const { return protocol_.members(); }

  /// A span of this group, in a trace.
  DEVCOMM_DEVICE trace_span trace(span_name name) const { return {group(), protocol_.home(), name}; }
  /// The span of a call of a collective on `elements` elements.
  DEVCOMM_DEVICE trace_span trace_call(collective_call which, uint64_t elements) const {
    return {group(), protocol_.home(), call_span{which, static_cast<uint32_t>(Protocol::kind), elements}.pack()};
  }

 protected:
  template <class... Arguments>
  DEVCOMM_DEVICE explicit barrier_calls(const Arguments&... arguments) : protocol_(arguments...) {
    arch::begin_session(id());
  }

  DEVCOMM_DEVICE void called(session_call call) const { arch::call_session(id(), call); }
  DEVCOMM_DEVICE void begin() {
    DEVCOMM_ASSERT(!arrived_, "arrive called twice without a wait between");
    arrived_ = true;
  }
  DEVCOMM_DEVICE void end() {
    protocol_.join();
    protocol_.advance();
    arrived_ = false;
  }

  Protocol protocol_;

 private:
  DEVCOMM_DEVICE auto id() const {
    return [this] { return protocol_.id(); };
  }
  template <class Order>
  DEVCOMM_DEVICE status wait_with(nanoseconds limit, Order order) {
    called(session_call::wait_for);
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    [[maybe_unused]] const auto traced = protocol_.trace(span_kind::wait);
    const status outcome = protocol_.poll_for(order, limit);
    timed_out_ = outcome == status::timeout;
    if (outcome == status::success) protocol_.advance();
    if (outcome != status::timeout) arrived_ = false;
    return outcome;
  }

  bool arrived_ = false;
  bool timed_out_ = false;
};

}  // namespace devcomm::detail
