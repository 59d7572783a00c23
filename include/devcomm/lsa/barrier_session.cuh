/// \file barrier_session.cuh
/// Barriers among the ranks of an LSA team, from inside a kernel. detail/barrier_calls.cuh has their calls,
/// lsa/detail/barrier_protocol.cuh the protocol.
#pragma once

#include <devcomm/detail/barrier_calls.cuh>
#include <devcomm/device_comm.hpp>
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
class barrier_session : public detail::barrier_calls<detail::lsa_barrier<Group>> {
  using calls = detail::barrier_calls<detail::lsa_barrier<Group>>;

 public:
  /// Barrier `index` of the communicator's own, see `requirements::lsa_barriers`.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, uint32_t index)
      : barrier_session(group, comm, comm.lsa(), barrier_handle{comm.lsa_barriers}, index) {}

  /// Barrier `index` of `barriers`, which were made for a team of this size. *Requires* that `members`
  /// is part of the LSA team and has this rank where it says.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, team members, barrier_handle barriers,
                                 uint32_t index)
      : calls(group, comm, members, barriers, index) {}

  /// Epoch of the last barrier that this session went through; wraps around.
  [[nodiscard]] DEVCOMM_DEVICE uint32_t epoch() const { return this->protocol_.epoch(); }
};

}  // namespace devcomm::lsa
