/// \file barrier_session.cuh
/// Barriers among ranks that reach each other by the network. gin/detail/barrier_protocol.cuh has the protocol.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/arch/arch.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/gin/barriers.hpp>
#include <devcomm/gin/detail/barrier_protocol.cuh>
#include <devcomm/group.cuh>

namespace devcomm::gin {

/// A group's use of one barrier of the network.
///
///     const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = blocks, .barriers = 1});
///
///     gin::context net{block{}, comm, contexts, blockIdx.x};
///     gin::barrier_session barrier{block{}, comm, comm.world(), contexts, gin::one_context(blockIdx.x), 0};
///     net.put(peer, out, in, count);
///     barrier.sync(gin::fence_level::put);  // what all blocks with this index have put has arrived
///
/// Each context has barriers of its own, known by index. The members are any team of the world: rails, all ranks; one
/// barrier may serve different teams, one after the other. Puts are fenced in the contexts of `range`, with one signal
/// for each context and member; without a fence of puts only the first context is used.
///
/// *Ordering*: see `fence_level`. A member's puts are fenced toward the members only: after a barrier of a rail, puts
/// to ranks of other rails may still be on their way.
///
/// *Collective*: constructor, destructor and every method are called by all threads of the group, on every rank of
/// the team, in the same order, and with the same range and level. At most one session uses a barrier at a time on a
/// rank. Launches are not compared, as barriers of an LSA team compare them.
///
/// *Failure*: as `lsa::barrier_session`: a wait without a deadline of its own ends after the communicator's timeout
/// with a record that names who was missing, and ends the other waits of the rank; from then on the session, and every
/// later one, is dead and does not arrive. The same holds for an operation that the network cannot execute. Only the
/// waiting thread knows: call `agree` to share the outcome with the group.
template <class Group>
class barrier_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  /// Barrier `index` of the first context of `range`.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, team members, const context_handle& contexts,
                                 context_range range, uint32_t index)
      : protocol_(group, comm, contexts, range, index), peers_{members} {
    protocol_.check_team(members, comm);
    devcomm::detail::arch::begin_session(id());
  }
  barrier_session(const barrier_session&) = delete;
  barrier_session& operator=(const barrier_session&) = delete;

  /// *Requires* that every arrival has had its wait, except after a `status::timeout`. In that case the peers have this
  /// arrival but no guarantee about later writes, and it counts as the arrival of the next use of this barrier, which
  /// must fence puts if and only if this one does.
  DEVCOMM_DEVICE ~barrier_session() noexcept(false) {
    if (devcomm::detail::arch::unwinding()) return;
    called(devcomm::detail::session_call::end);
    DEVCOMM_ASSERT(!arrived_ || timed_out_ || protocol_.is_dead(), "a session ended between arrive and wait");
    devcomm::detail::sync_at_end(protocol_.group());
    devcomm::detail::arch::leave_session(id());
  }

  /// Signals every member that this group has arrived. A level that fences gets first waits until all that was posted
  /// to the contexts is complete on this rank.
  DEVCOMM_DEVICE void arrive(fence_level level = fence_level::put_and_get) {
    called(devcomm::detail::session_call::arrive);
    begin(level);
    static_cast<void>(protocol_.flush(level, devcomm::detail::communicator_timeout()));
    protocol_.signal(peers_, level);
  }

  /// Waits for every member's arrival.
  DEVCOMM_DEVICE void wait() {
    called(devcomm::detail::session_call::wait);
    end();
  }

  /// `wait`, for `limit` and a little more. The outcome is the same for all threads of the group. After
  /// `status::timeout` the barrier has not been passed, nothing is recorded, and the wait may be repeated.
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(nanoseconds limit) {
    called(devcomm::detail::session_call::wait_for);
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    return end_for(limit);
  }

  /// `arrive` and `wait`.
  DEVCOMM_DEVICE void sync(fence_level level = fence_level::put_and_get) {
    called(devcomm::detail::session_call::sync);
    begin(level);
    static_cast<void>(protocol_.flush(level, devcomm::detail::communicator_timeout()));
    protocol_.signal(peers_, level);
    end();
  }

  /// `arrive`, unless an earlier call timed out after it, and `wait_for`. The flush of a level that fences gets may
  /// take `limit` too; if it takes longer, no member is signaled.
  [[nodiscard]] DEVCOMM_DEVICE status sync_for(nanoseconds limit, fence_level level = fence_level::put_and_get) {
    called(devcomm::detail::session_call::wait_for);
    DEVCOMM_ASSERT(!arrived_ || fences_puts(level) == fences_puts(level_),
                   "sync_for repeats a barrier that timed out: give it the level of the first call");
    if (!arrived_) {
      const status flushed = protocol_.settle(protocol_.flush(level, {true, limit.count}));
      if (flushed != status::success) return flushed;
      begin(level);
      protocol_.signal(peers_, level);
    }
    return end_for(limit);
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*: synchronizes
  /// the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    called(devcomm::detail::session_call::agree);
    return protocol_.agree();
  }

  DEVCOMM_DEVICE const Group& group() const { return protocol_.group(); }
  DEVCOMM_DEVICE const team& members() const { return peers_.members; }
  /// A span of this group, in a trace.
  DEVCOMM_DEVICE trace_span trace(span_name name) const { return {group(), protocol_.home(), name}; }

 private:
  DEVCOMM_DEVICE auto id() const {
    return [this] { return protocol_.id(); };
  }
  DEVCOMM_DEVICE void called(devcomm::detail::session_call call) const {
    devcomm::detail::arch::call_session(id(), call);
  }
  DEVCOMM_DEVICE void begin(fence_level level) {
    DEVCOMM_ASSERT(!arrived_, "arrive called twice without a wait between");
    arrived_ = true;
    level_ = level;
  }
  DEVCOMM_DEVICE void end() {
    DEVCOMM_ASSERT(arrived_, "wait called without an arrive before it");
    static_cast<void>(protocol_.poll(peers_, level_, devcomm::detail::communicator_timeout()));
    protocol_.group().sync();
    protocol_.advance(peers_, level_);
    arrived_ = false;
  }
  DEVCOMM_DEVICE status end_for(nanoseconds limit) {
    const status outcome = protocol_.settle(protocol_.poll(peers_, level_, {true, limit.count}));
    timed_out_ = outcome == status::timeout;
    if (outcome == status::success) protocol_.advance(peers_, level_);
    if (outcome != status::timeout) arrived_ = false;
    return outcome;
  }

  devcomm::detail::network_barrier<Group> protocol_;
  devcomm::detail::barrier_peers peers_;
  fence_level level_ = fence_level::none;
  bool arrived_ = false;
  bool timed_out_ = false;
};

}  // namespace devcomm::gin
