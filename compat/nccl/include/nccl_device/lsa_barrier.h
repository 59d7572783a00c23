/// \file lsa_barrier.h
/// Barriers of ranks that load and store each other's memory: those of lsa/barrier_session.cuh.
#ifndef DEVCOMM_NCCL_DEVICE_LSA_BARRIER_H_
#define DEVCOMM_NCCL_DEVICE_LSA_BARRIER_H_

#include <devcomm/arch/multimem.cuh>
#include <devcomm/assert.hpp>
#include <devcomm/lsa/barrier_session.cuh>
#include <nccl_device/coop.h>
#include <nccl_device/core.h>

namespace devcomm::nccl {

/// Whether an order releases what the group wrote in this launch. Without that an arrival releases what came before the
/// launch, as NCCL's programs expect of the first barrier. Sequentially consistent orders are taken for `acq_rel`.
DEVCOMM_DEVICE constexpr bool releases(cuda::memory_order order) {
  return order != cuda::memory_order_relaxed && order != cuda::memory_order_consume && order != cuda::memory_order_acquire;
}

/// After a wait: what peers did by multicast addresses, or by others, is ordered with what comes by the other kind.
DEVCOMM_DEVICE inline void order_aliases(const ncclDevComm& comm) {
  if (comm.usesMultimem) arch::fence_alias();
}

}  // namespace devcomm::nccl

/// A group's use of barrier `index`. Beyond what NCCL promises: waits acquire whatever the order; those without a limit end by
/// the communicator's timeout or by `ncclCommAbort`, with a record of who was missing; limits have one outcome for the
/// whole group, and after `ncclTimeout` the call may be repeated.
template <class Coop>
struct ncclLsaBarrierSession {
  NCCL_DEVICE_INLINE ncclLsaBarrierSession(Coop coop, const ncclDevComm& comm, ncclTeam team,
                                           ncclLsaBarrierHandle handle, uint32_t index, bool multimem = false,
                                           ncclMultimemHandle mmHandle = {})
      : comm_(comm),
        session_(devcomm::nccl::group_of(coop), comm.base, devcomm::nccl::within_lsa(comm, team), checked(comm, team, handle, index), index) {
    // Unicast has the same promises.
    static_cast<void>(multimem);
    static_cast<void>(mmHandle);
  }
  NCCL_DEVICE_INLINE ncclLsaBarrierSession(Coop coop, const ncclDevComm& comm, ncclTeamTagLsa, uint32_t index,
                                           bool multimem = false)
      : ncclLsaBarrierSession(coop, comm, ncclTeamLsa(comm), comm.lsaBarrier, index, multimem, comm.lsaMultimem) {}
  ncclLsaBarrierSession(const ncclLsaBarrierSession&) = delete;

  NCCL_DEVICE_INLINE void arrive(Coop, cuda::memory_order order) { session_.arrive(order_of(order)); }
  NCCL_DEVICE_INLINE void wait(Coop, cuda::memory_order) {
    session_.wait(devcomm::memory_order::acquire);
    devcomm::nccl::order_aliases(comm_);
  }
  NCCL_DEVICE_INLINE void sync(Coop coop, cuda::memory_order order) {
    if (devcomm::nccl::releases(order)) {
      session_.sync(devcomm::memory_order::acq_rel);
      return devcomm::nccl::order_aliases(comm_);
    }
    arrive(coop, order);
    wait(coop, order);
  }
  NCCL_DEVICE_INLINE ncclResult_t wait(Coop, cuda::memory_order, uint64_t timeoutCycles) {
    const devcomm::status outcome = session_.wait_for(devcomm::nccl::nanoseconds_of(comm_, timeoutCycles),
                                                      devcomm::memory_order::acquire);
    devcomm::nccl::order_aliases(comm_);
    return devcomm::nccl::result_of(outcome);
  }
  NCCL_DEVICE_INLINE ncclResult_t sync(Coop coop, cuda::memory_order order, uint64_t timeoutCycles) {
    if (!has_arrived_) arrive(coop, order);
    const ncclResult_t result = wait(coop, order, timeoutCycles);
    has_arrived_ = result == ncclTimeout;
    return result;
  }

 private:
  NCCL_DEVICE_INLINE static devcomm::memory_order order_of(cuda::memory_order order) {
    return devcomm::nccl::releases(order) ? devcomm::memory_order::release : devcomm::lsa::at_launch;
  }
  NCCL_DEVICE_INLINE static devcomm::lsa::barrier_handle checked(const ncclDevComm& comm, ncclTeam team,
                                                                 ncclLsaBarrierHandle handle,
                                                                 [[maybe_unused]] uint32_t index) {
    DEVCOMM_ASSERT_OF(index < static_cast<uint32_t>(handle.nBarriers), "barrier", index, handle.nBarriers,
                      "the barrier's index is past those that were asked for: ask for more by lsaBarrierCount, by "
                      "barrierCount for ncclBarrierSession, or by ncclLsaBarrierCreateRequirement");
    return {{uint64_t{handle.bufHandle} * 128, static_cast<uint32_t>(handle.nBarriers),
             static_cast<uint16_t>(team.nRanks), comm.base.lsa_barriers.owner}};
  }

  const ncclDevComm& comm_;
  devcomm::lsa::barrier_session<devcomm::nccl::group_t<Coop>> session_;
  bool has_arrived_ = false;  // before a limit was reached
};

#endif
