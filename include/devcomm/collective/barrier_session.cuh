/// \file barrier_session.cuh
/// Barriers of the world where it is larger than the LSA team: by load and store inside, by the network across.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/arch/arch.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/gin/barriers.hpp>
#include <devcomm/gin/context.cuh>
#include <devcomm/gin/detail/barrier_protocol.cuh>
#include <devcomm/group.cuh>
#include <devcomm/lsa/barrier_session.cuh>

namespace devcomm::collective {

/// A group's use of one barrier of the LSA team and one of the network, with the same index.
///
///     const auto contexts = needs.lsa_barriers(blocks).add(gin::contexts{.world = comm.world(), .count = 1,
///                                                                        .barriers = blocks});
///
///     collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
///     barrier.sync(gin::fence_level::none);
///
/// *Protocol*: that of NCCL's hybrid barrier. Without a fence of puts, an LSA barrier and then a barrier of the rail.
/// After the rail barrier, every host's LSA barrier is known to be complete. A rank signals `lsa_size + hosts - 2`
/// peers, `hosts - 1` of them over the network. A fence of puts takes one network barrier among all ranks, because puts
/// to another rail are fenced only by this rank's own signals to it. That holds on a single host too, where ranks may
/// put to each other.
///
/// *Ordering*: all stores of every rank's group before the barrier are visible to all ranks' groups after it. For
/// network operations see `gin::fence_level`, with the world as members.
///
/// *Collective* over the group, on every rank of the world, in the same order, with the same range and levels. Without
/// rails (LSA teams of different sizes, or placed unevenly) each rank of the other LSA teams is signaled. The LSA
/// barrier compares launches if `check_launch` is on.
///
/// *Failure*: as `lsa::barrier_session`; the record names the part that failed, and the rank that was missing there.
template <class Group>
class barrier_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  /// Barrier `index` of the communicator's own, see `requirements::lsa_barriers`, and of the first context of `range`.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, const gin::context_handle& contexts,
                                 gin::context_range range, uint32_t index)
      : world_(comm.world()),
        has_rails_((comm.flags & device_comm::no_rails) == 0),
        rail_(has_rails_ ? comm.rail() : comm.world()),
        lsa_(group, comm, index),
        network_(group, comm, contexts, range, index) {
    devcomm::detail::arch::begin_session(id());
  }
  barrier_session(const barrier_session&) = delete;
  barrier_session& operator=(const barrier_session&) = delete;

  DEVCOMM_DEVICE ~barrier_session() noexcept(false) {
    if (devcomm::detail::arch::unwinding()) return;
    called(devcomm::detail::session_call::end);
    DEVCOMM_ASSERT(phase_ == phase::outside || timed_out_ || network_.is_dead(),
                   "a session ended in the middle of a barrier");
    devcomm::detail::sync_at_end(group());
    devcomm::detail::arch::leave_session(id());
  }

  /// Waits until all ranks have arrived. A level that fences gets first waits until all that was posted to the contexts
  /// is complete on this rank.
  DEVCOMM_DEVICE void sync(gin::fence_level level = gin::fence_level::put_and_get) {
    called(devcomm::detail::session_call::sync);
    static_cast<void>(network_.flush(level, devcomm::detail::communicator_timeout()));
    if (!gin::fences_puts(level)) lsa_.sync();
    const devcomm::detail::barrier_peers peers = peers_of(level);
    network_.signal(peers, level);
    end(peers, level);
  }

  /// The same where puts, if they are fenced, have gone to ranks of other LSA teams only: all ranks of the own team
  /// meet by load and store, while signals to all others are under way.
  DEVCOMM_DEVICE void sync_across(gin::fence_level level) {
    if (!gin::fences_puts(level)) return sync(level);
    called(devcomm::detail::session_call::sync);
    static_cast<void>(network_.flush(level, devcomm::detail::communicator_timeout()));
    const devcomm::detail::barrier_peers peers{world_, devcomm::detail::left_out::lsa_team};
    network_.signal(peers, level);
    lsa_.sync();
    end(peers, level);
  }

  /// The barrier of the rail alone: of the ranks with this one's index in their LSA teams. Fences what they have put to
  /// each other, not what a rank has put to itself.
  DEVCOMM_DEVICE void sync_rail(gin::fence_level level) {
    DEVCOMM_ASSERT(has_rails_, "there are no rails: LSA teams differ in size or are placed unevenly");
    called(devcomm::detail::session_call::sync);
    static_cast<void>(network_.flush(level, devcomm::detail::communicator_timeout()));
    const devcomm::detail::barrier_peers peers{rail_, devcomm::detail::left_out::self};
    network_.signal(peers, level);
    end(peers, level);
  }

  /// `sync`, for `limit` for each of its parts and a little more: the flush, the LSA barrier, that of the network. The
  /// outcome is the same for all threads of the group. After `status::timeout` nothing is recorded, and the call may be
  /// repeated, with the same level: it goes on where it was.
  [[nodiscard]] DEVCOMM_DEVICE status sync_for(nanoseconds limit,
                                               gin::fence_level level = gin::fence_level::put_and_get) {
    called(devcomm::detail::session_call::wait_for);
    const status outcome = go_on(limit, level);
    timed_out_ = outcome == status::timeout;
    if (outcome != status::timeout) phase_ = phase::outside;
    return outcome;
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*: synchronizes
  /// the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    called(devcomm::detail::session_call::agree);
    const status inside = lsa_.agree();
    const status across = network_.agree();
    return inside != status::success ? inside : across;
  }

  DEVCOMM_DEVICE const Group& group() const { return network_.group(); }
  DEVCOMM_DEVICE const team& members() const { return world_; }
  /// The ranks with this one's index in their LSA teams. *Requires* rails.
  DEVCOMM_DEVICE const team& rail() const {
    DEVCOMM_ASSERT(has_rails_, "there are no rails: LSA teams differ in size or are placed unevenly");
    return rail_;
  }
  DEVCOMM_DEVICE const device_comm& comm() const { return network_.home()->comm; }
  DEVCOMM_DEVICE const gin::context_handle& contexts() const { return network_.contexts(); }
  /// Index of the first context of the range.
  DEVCOMM_DEVICE uint32_t first_context() const { return network_.first_context(); }
  /// The barrier of the LSA team alone.
  DEVCOMM_DEVICE lsa::barrier_session<Group>& inside() { return lsa_; }
  /// The first context of the range, for a group of the caller's choice: operations that the barrier fences.
  template <class Posting>
  DEVCOMM_DEVICE gin::context<Posting> context(Posting posting) const {
    return {posting, network_.home()->comm, network_.contexts(), network_.first_context()};
  }
  /// A span of this group, in a trace.
  DEVCOMM_DEVICE trace_span trace(span_name name) const { return lsa_.trace(name); }
  /// The span of a call of a collective on `elements` elements.
  DEVCOMM_DEVICE trace_span trace_call(collective_call which, uint64_t elements) const {
    return lsa_.trace_call(which, elements);
  }

 private:
  /// How far a call has come.
  enum class phase : uint8_t {
    outside,
    flushed,
    met_inside,
    signaled,  ///< the peers of the network
  };

  DEVCOMM_DEVICE auto id() const {
    return [this] { return network_.id(); };
  }
  DEVCOMM_DEVICE void called(devcomm::detail::session_call call) const {
    devcomm::detail::arch::call_session(id(), call);
  }
  DEVCOMM_DEVICE devcomm::detail::barrier_peers peers_of(gin::fence_level level) const {
    if (gin::fences_puts(level)) return {world_};
    if (has_rails_) return {rail_};
    return {world_, devcomm::detail::left_out::lsa_team};
  }
  DEVCOMM_DEVICE void end(const devcomm::detail::barrier_peers& peers, gin::fence_level level) {
    static_cast<void>(network_.poll(peers, level, devcomm::detail::communicator_timeout()));
    group().sync();
    network_.advance(peers, level);
  }
  DEVCOMM_DEVICE status go_on(nanoseconds limit, gin::fence_level level) {
    if (phase_ == phase::outside) {
      const status flushed = network_.settle(network_.flush(level, {true, limit.count}));
      if (flushed != status::success) return flushed;
      phase_ = phase::flushed;
    }
    if (phase_ == phase::flushed) {
      const status met = gin::fences_puts(level) ? status::success : lsa_.sync_for(limit);
      if (met != status::success) return met;
      phase_ = phase::met_inside;
    }
    const devcomm::detail::barrier_peers peers = peers_of(level);
    if (phase_ == phase::met_inside) {
      network_.signal(peers, level);
      phase_ = phase::signaled;
    }
    const status outcome = network_.settle(network_.poll(peers, level, {true, limit.count}));
    if (outcome == status::success) network_.advance(peers, level);
    return outcome;
  }

  team world_;
  bool has_rails_;
  team rail_;  // where there are rails
  lsa::barrier_session<Group> lsa_;
  devcomm::detail::network_barrier<Group> network_;
  phase phase_ = phase::outside;
  bool timed_out_ = false;
};

}  // namespace devcomm::collective
