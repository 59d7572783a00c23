/// \file barrier_session.cuh
/// Barriers among ranks that reach each other by the network. detail/barrier_calls.cuh has their calls,
/// gin/detail/barrier_protocol.cuh the protocol.
#pragma once

#include <devcomm/detail/barrier_calls.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/gin/barriers.hpp>
#include <devcomm/gin/detail/barrier_protocol.cuh>

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
/// A session that ends after a `status::timeout` leaves its arrival to the next use of this barrier, which must fence
/// puts if and only if this one does.
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
class barrier_session : public detail::barrier_calls<detail::network_barrier<Group>> {
 public:
  /// Barrier `index` of the first context of `range`.
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, team members, const context_handle& contexts,
                                 context_range range, uint32_t index)
      : detail::barrier_calls<detail::network_barrier<Group>>(group, comm, members, contexts, range, index) {}
};

}  // namespace devcomm::gin
