/// \file barrier_session.cuh
/// Barriers of the world where it is larger than the LSA team: by load and store inside, by the network across.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/barrier_calls.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/gin/barriers.hpp>
#include <devcomm/gin/context.cuh>
#include <devcomm/gin/detail/barrier_protocol.cuh>
#include <devcomm/lsa/barrier_session.cuh>

namespace devcomm::detail {

/// One thread's part in a barrier of the LSA team and one of the network. The arrival is that at the network's; ranks
/// of the LSA team have synchronized before it, except in `cross`.
template <class Group>
class hybrid_barrier : public fence_ordered {
 public:
  static constexpr operation kind = operation::lsa_barrier;

  DEVCOMM_DEVICE hybrid_barrier(Group group, const device_comm& comm, const gin::context_handle& contexts,
                                gin::context_range range, uint32_t index)
      : world_(comm.world()),
        has_rails_((comm.flags & device_comm::no_rails) == 0),
        rail_(has_rails_ ? comm.rail() : comm.world()),
        lsa_(group, comm, index),
        network_(group, comm, comm.world(), contexts, range, index) {}

  DEVCOMM_DEVICE void check_repeat(gin::fence_level level) const { network_.check_repeat(level); }

  DEVCOMM_DEVICE void prepare(gin::fence_level level) {
    network_.prepare(level);
    if (!gin::fences_puts(level)) lsa_.sync();
  }
  /// A call after a timeout goes on where that one was.
  DEVCOMM_DEVICE status prepare_for(gin::fence_level level, nanoseconds limit) {
    status outcome = is_flushed_ ? status::success : network_.prepare_for(level, limit);
    is_flushed_ = outcome == status::success;
    if (outcome == status::success && !gin::fences_puts(level)) outcome = lsa_.sync_for(limit);
    if (outcome != status::timeout) is_flushed_ = false;
    return outcome;
  }
  DEVCOMM_DEVICE void send(gin::fence_level level) {
    network_.set_peers(peers_of(level));
    network_.send(level);
  }
  template <class Level>
  DEVCOMM_DEVICE void poll(Level level) {
    network_.poll(level);
  }
  template <class Level>
  DEVCOMM_DEVICE status poll_for(Level level, nanoseconds limit) {
    return network_.poll_for(level, limit);
  }
  DEVCOMM_DEVICE void send_and_poll(gin::fence_level level) {
    send(level);
    poll(level);
  }
  /// Signals all ranks outside the LSA team, whose own ranks synchronize meanwhile, and waits.
  DEVCOMM_DEVICE void cross(gin::fence_level level) {
    network_.prepare(level);
    network_.set_peers({world_, left_out::lsa_team});
    network_.send(level);
    lsa_.sync();
    network_.poll(level);
  }
  /// Signals the ranks of the rail, and waits for them.
  DEVCOMM_DEVICE void cross_rail(gin::fence_level level) {
    network_.prepare(level);
    network_.set_peers({rail_, left_out::self});
    network_.send_and_poll(level);
  }
  DEVCOMM_DEVICE void join() { network_.join(); }
  DEVCOMM_DEVICE void advance() { network_.advance(); }
  DEVCOMM_DEVICE void keep_epoch() const {}  // each part keeps its own

  DEVCOMM_DEVICE status agree() {
    const status inside = lsa_.agree();
    const status across = network_.agree();
    return inside != status::success ? inside : across;
  }
  DEVCOMM_DEVICE bool is_dead() const { return network_.is_dead(); }

  DEVCOMM_DEVICE const Group& group() const { return network_.group(); }
  DEVCOMM_DEVICE const team& members() const { return world_; }
  DEVCOMM_DEVICE bool has_rails() const { return has_rails_; }
  DEVCOMM_DEVICE const team& rail() const { return rail_; }
  DEVCOMM_DEVICE resource_header* home() const { return network_.home(); }
  DEVCOMM_DEVICE const network_barrier<Group>& network() const { return network_; }
  DEVCOMM_DEVICE lsa::barrier_session<Group>& lsa() { return lsa_; }
  DEVCOMM_DEVICE untraced trace(span_kind) const { return {}; }
  DEVCOMM_DEVICE session_id id() const { return network_.id(); }

 private:
  DEVCOMM_DEVICE barrier_peers peers_of(gin::fence_level level) const {
    if (gin::fences_puts(level)) return {world_};
    if (has_rails_) return {rail_};
    return {world_, left_out::lsa_team};
  }

  team world_;
  bool has_rails_;
  team rail_;  // where there are rails
  lsa::barrier_session<Group> lsa_;
  network_barrier<Group> network_;
  bool is_flushed_ = false;  // by a call that timed out in the LSA barrier
};

}  // namespace devcomm::detail

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
class barrier_session : private detail::barrier_calls<detail::hybrid_barrier<Group>> {
  using calls = detail::barrier_calls<detail::hybrid_barrier<Group>>;

 public:
  /// Barrier `index` of the communicator's own, see `requirements::lsa_barriers`, and of the first context of `range`.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, const gin::context_handle& contexts,
                                 gin::context_range range, uint32_t index)
      : calls(group, comm, contexts, range, index) {}

  /// Waits until all ranks have arrived. A level that fences gets first waits until all that was posted to the contexts
  /// is complete on this rank.
  using calls::sync;
  /// `sync`, for `limit` for each of its parts and a little more: the flush, the LSA barrier, that of the network. The
  /// outcome is the same for all threads of the group. After `status::timeout` nothing is recorded, and the call may be
  /// repeated, with the same level: it goes on where it was.
  using calls::agree;
  using calls::members;
  using calls::sync_for;
  using calls::trace;
  using calls::trace_call;

  /// The same where puts, if they are fenced, have gone to ranks of other LSA teams only: all ranks of the own team
  /// synchronize by load and store, while signals to all others are under way.
  DEVCOMM_DEVICE void sync_across(gin::fence_level level) {
    if (!gin::fences_puts(level)) return sync(level);
    calls::called(detail::session_call::sync);
    calls::begin();
    protocol_.cross(level);
    calls::end();
  }

  /// The barrier of the rail alone: of the ranks with this one's index in their LSA teams. Fences what they have put to
  /// each other, not what a rank has put to itself.
  DEVCOMM_DEVICE void sync_rail(gin::fence_level level) {
    check_rails();
    calls::called(detail::session_call::sync);
    calls::begin();
    protocol_.cross_rail(level);
    calls::end();
  }

  DEVCOMM_DEVICE const Group& group() const { return protocol_.group(); }
  /// The ranks with this one's index in their LSA teams. *Requires* rails.
  DEVCOMM_DEVICE const team& rail() const {
    check_rails();
    return protocol_.rail();
  }
  DEVCOMM_DEVICE const device_comm& comm() const { return protocol_.home()->comm; }
  DEVCOMM_DEVICE const gin::context_handle& contexts() const { return protocol_.network().contexts(); }
  /// Index of the first context of the range.
  DEVCOMM_DEVICE uint32_t first_context() const { return protocol_.network().first_context(); }
  /// The barrier of the LSA team alone.
  DEVCOMM_DEVICE lsa::barrier_session<Group>& inside() { return protocol_.lsa(); }
  /// The first context of the range, for a group of the caller's choice: operations that the barrier fences.
  template <class Posting>
  DEVCOMM_DEVICE gin::context<Posting> context(Posting posting) const {
    return {posting, comm(), contexts(), first_context()};
  }

 private:
  using calls::protocol_;

  DEVCOMM_DEVICE void check_rails() const {
    DEVCOMM_ASSERT(protocol_.has_rails(), "there are no rails: LSA teams differ in size or are placed unevenly");
  }
};

}  // namespace devcomm::collective
