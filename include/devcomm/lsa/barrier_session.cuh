/// \file barrier_session.cuh
/// Barriers among the ranks of an LSA team, from inside a kernel. lsa/detail/barrier_protocol.cuh has the protocol.
#pragma once

#include <devcomm/any_order.hpp>
#include <devcomm/assert.hpp>
#include <devcomm/device_comm.hpp>
#include <devcomm/group.cuh>
#include <devcomm/lsa/barriers.hpp>
#include <devcomm/lsa/detail/barrier_protocol.cuh>

namespace devcomm::lsa {

/// The order of a barrier that says only that all launches have begun, so that ranks may overwrite what peers used
/// before: `barrier.sync(lsa::at_launch)`. Half a microsecond shorter than `acq_rel`. *Ordering*: what came before each
/// rank's launch in its stream, before what the group stores to memory of that rank; not what it loads, and nothing
/// that a rank did in its launch, unless the grid was synchronized after that.
inline constexpr memory_order at_launch = detail::launch_order;

/// A group's use of one barrier; usually a block's, with the block's index.
///
///     lsa::barrier_session barrier{block{}, comm, blockIdx.x};
///     write_my_part(window);
///     barrier.sync();  // what all ranks' threads of this block wrote is visible
///     read_the_parts_of_peers(window);
///
/// *Collective*: constructor, destructor and every method but `epoch` are called by all threads of the
/// group, on every rank of the team, in the same order. At most one session uses a barrier at a time on a
/// rank.
///
/// *Failure*: a wait without a deadline of its own ends after the communicator's timeout. The thread that
/// waited records who was missing and ends the device communicator's other waits on this rank; data read after that
/// is undefined. From then on the session, and every later one of the device communicator, is
/// dead: it does not arrive, and its calls return as soon as the group has synchronized. The other threads of the group
/// do not know, as sharing the outcome would slow down every barrier: a kernel that acts on what it read, or loops for
/// long, calls `agree` first. The host's `device_communicator::check` throws in any case.
template <class Group>
class barrier_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  /// Barrier `index` of the communicator's own, see `requirements::lsa_barriers`.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, uint32_t index)
      : barrier_session(group, comm, comm.lsa(), barrier_handle{comm.lsa_barriers}, index) {}

  /// Barrier `index` of `barriers`, which were made for a team of this size. *Requires* that `members`
  /// is part of the LSA team and has this rank where it says.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, team members, barrier_handle barriers,
                                 uint32_t index)
      : protocol_(group, comm, members, barriers, index) {
    detail::arch::begin_session(id());
  }

  barrier_session(const barrier_session&) = delete;
  barrier_session& operator=(const barrier_session&) = delete;

  /// Keeps the epoch for the next session. *Requires* that every arrival has had its wait, except after a
  /// `status::timeout`; in that case the peers have this arrival, but no guarantee about what is written after it.
  DEVCOMM_DEVICE ~barrier_session() noexcept(false) {
    if (detail::arch::unwinding()) return;
    called(detail::session_call::end);
    DEVCOMM_ASSERT(!arrived_ || timed_out_ || protocol_.is_dead(), "a session ended between arrive and wait");
    protocol_.keep_epoch();
    detail::sync_at_end(protocol_.group());
    detail::arch::leave_session(id());
  }

  /// Signals every peer that this group has arrived. *Ordering*: with an order that releases, what any
  /// thread of the group wrote before is visible to threads that acquire by waiting for this arrival.
  DEVCOMM_DEVICE void arrive(any_order order = memory_order::release) {
    detail::check_store_order(order);
    arrive_with(order);
  }

  /// Waits for every peer's arrival. *Ordering*: with an order that acquires, every thread of the
  /// group sees what those peers wrote before they arrived with release.
  DEVCOMM_DEVICE void wait(any_order order = memory_order::acquire) {
    detail::check_load_order(order);
    called(detail::session_call::wait);
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    const trace_span traced = protocol_.trace(span_kind::wait);
    protocol_.poll(order);
    end();
  }

  /// `wait`, for `limit` and a little more: the clock is read once in some 500 polls, or 0.1 ms. The
  /// outcome is the same for all threads of the group. After `status::timeout` the epoch has not advanced,
  /// nothing is recorded, and the wait may be repeated.
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(nanoseconds limit, any_order order = memory_order::acquire) {
    detail::check_load_order(order);
    return wait_with(limit, order);
  }

  /// `arrive` and `wait`.
  DEVCOMM_DEVICE void sync(any_order order = memory_order::acq_rel) {
    called(detail::session_call::sync);
    begin();
    const trace_span traced = protocol_.trace(span_kind::sync);
    protocol_.send_and_poll(order);
    end();
  }

  /// `arrive`, unless an earlier call timed out after it, and `wait_for`.
  [[nodiscard]] DEVCOMM_DEVICE status sync_for(nanoseconds limit, any_order order = memory_order::acq_rel) {
    if (!arrived_) arrive_with(order);
    return wait_with(limit, order);
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*:
  /// synchronizes the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    called(detail::session_call::agree);
    return protocol_.agree();
  }

  DEVCOMM_DEVICE const Group& group() const { return protocol_.group(); }
  DEVCOMM_DEVICE const team& members() const { return protocol_.members(); }
  /// Epoch of the last barrier that this session went through; wraps around.
  [[nodiscard]] DEVCOMM_DEVICE uint32_t epoch() const { return protocol_.epoch(); }

  /// A span of this group, in a trace.
  DEVCOMM_DEVICE trace_span trace(span_name name) const { return protocol_.trace(name); }
  /// The span of a call of a collective on `elements` elements.
  DEVCOMM_DEVICE trace_span trace_call(collective_call which, uint64_t elements) const {
    return protocol_.trace_call(which, elements);
  }

 private:
  DEVCOMM_DEVICE auto id() const {
    return [this] { return protocol_.id(); };
  }
  DEVCOMM_DEVICE void called(detail::session_call call) const { detail::arch::call_session(id(), call); }
  DEVCOMM_DEVICE void arrive_with(memory_order order) {
    called(detail::session_call::arrive);
    begin();
    protocol_.send(order);
  }
  DEVCOMM_DEVICE status wait_with(nanoseconds limit, memory_order order) {
    called(detail::session_call::wait_for);
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    const trace_span traced = protocol_.trace(span_kind::wait);
    const status outcome = protocol_.poll_for(order, limit);
    timed_out_ = outcome == status::timeout;
    if (outcome == status::success) protocol_.advance();
    if (outcome != status::timeout) arrived_ = false;
    return outcome;
  }
  DEVCOMM_DEVICE void begin() {
    DEVCOMM_ASSERT(!arrived_, "arrive called twice without a wait between");
    arrived_ = true;
  }
  DEVCOMM_DEVICE void end() {
    protocol_.group().sync();
    protocol_.advance();
    arrived_ = false;
  }

  detail::barrier_protocol<Group> protocol_;
  bool arrived_ = false;
  bool timed_out_ = false;
};

}  // namespace devcomm::lsa
