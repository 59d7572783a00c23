/// \file barrier_session.cuh
/// Barriers of the LSA team with one multicast instruction for all peers and one word to wait for.
/// detail/barrier_calls.cuh has their calls, multimem/detail/barrier_protocol.cuh the protocol.
#pragma once

#include <devcomm/detail/barrier_calls.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/multimem/barriers.hpp>
#include <devcomm/multimem/detail/barrier_protocol.cuh>

namespace devcomm::multimem {

/// A group's use of one barrier, as `lsa::barrier_session`; the calls are the same, and so is what they order.
///
///     multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
///     barrier.sync();
///
/// For many ranks, or many blocks: arrivals cost one store each, however many peers there are. A counter does not say
/// who is missing: failure records have no peer, and how many arrivals were seen.
///
/// *Ordering*: what threads of the group did to memory by its multicast address is ordered before what others do by
/// other addresses after the barrier, and the other way round: thread 0 fences between the two, where there is a
/// multicast address. See `fences_aliases`.
///
/// *Collective*, *Failure*: as `lsa::barrier_session`.
template <class Group>
class barrier_session : public detail::barrier_calls<detail::multimem_barrier<Group>> {
 public:
  DEVCOMM_DEVICE barrier_session(Group group, const device_comm& comm, barrier_handle barriers, uint32_t index)
      : detail::barrier_calls<detail::multimem_barrier<Group>>(group, comm, barriers, index) {}

  /// Epoch of the last barrier that this session went through.
  [[nodiscard]] DEVCOMM_DEVICE uint64_t epoch() const { return this->protocol_.epoch(); }
  /// Whether the barrier replaces a `fence_alias` of every thread; otherwise threads that use a multicast address of
  /// another window fence on both sides of it. The same on all ranks.
  [[nodiscard]] DEVCOMM_DEVICE bool fences_aliases() const { return this->protocol_.is_hardware(); }
};

}  // namespace devcomm::multimem
