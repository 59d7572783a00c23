/// \file ll_a2a.h
/// Small values to slots of any rank of the LSA team, one trip over the links: lsa/ll_all_to_all_session.cuh.
#ifndef DEVCOMM_NCCL_DEVICE_LL_A2A_H_
#define DEVCOMM_NCCL_DEVICE_LL_A2A_H_

#include <devcomm/lsa/ll_all_to_all_session.cuh>
#include <nccl_device/coop.h>
#include <nccl_device/core.h>

/// A group's use of the slots of block `block`, which take `maxElts` elements, each of `nSlots / maxElts` lines of 8 bytes
/// of data at most. In an epoch every rank sends to every rank and receives that, directly or through others.
template <class Coop>
struct ncclLLA2ASession {
  NCCL_DEVICE_INLINE ncclLLA2ASession(Coop coop, const ncclDevComm& comm, ncclTeam team, ncclLLA2AHandle handle,
                                      uint32_t block, int maxElts, bool multimem = false,
                                      ncclMultimemHandle mmHandle = {})
      : session_(devcomm::nccl::group_of(coop), comm.base, devcomm::nccl::within_lsa(comm, team),
                 slots_of(comm, team, handle, block, maxElts), 0) {
    static_cast<void>(multimem);
    static_cast<void>(mmHandle);
  }
  ncclLLA2ASession(const ncclLLA2ASession&) = delete;

  template <class T>
  NCCL_DEVICE_INLINE void send(int peer, int slot, T value) {
    session_.send(peer, static_cast<uint32_t>(slot), value);
  }
  /// To all ranks.
  template <class T>
  NCCL_DEVICE_INLINE void bcast(int slot, T value) {
    session_.broadcast(static_cast<uint32_t>(slot), value);
  }
  template <class T>
  NCCL_DEVICE_INLINE T recv(int slot) {
    return session_.template receive<T>(static_cast<uint32_t>(slot));
  }
  /// Elements `eltStart`, `eltStart + eltStride` and so on, `eltCount` of them.
  template <int MinEltCount, int MaxEltCount, class T>
  NCCL_DEVICE_INLINE void recvUnrolled(int eltStart, int eltCount, int eltStride, T (&vals)[MaxEltCount]) {
    if (eltCount == MaxEltCount)
      return session_.receive(static_cast<uint32_t>(eltStart), static_cast<uint32_t>(eltStride), vals);
    for (int i = 0; i < eltCount; ++i) vals[i] = recv<T>(eltStart + i * eltStride);
  }
  /// `eltToAcc` of them, reduced in their order.
  template <int Unroll, class Elt, class EltToAcc, class Reduce>
  NCCL_DEVICE_INLINE auto recvReduce(int eltStart, int eltCount, int eltStride, EltToAcc eltToAcc, Reduce reduce) {
    auto total = eltToAcc(recv<Elt>(eltStart));
    for (int i = 1; i < eltCount; ++i) total = reduce(total, eltToAcc(recv<Elt>(eltStart + i * eltStride)));
    return total;
  }
  NCCL_DEVICE_INLINE void endEpoch(Coop) { session_.end_epoch(); }

 private:
  /// A set of slots for each block.
  NCCL_DEVICE_INLINE static devcomm::lsa::ll_slots_handle slots_of(const ncclDevComm& comm, ncclTeam team,
                                                                   ncclLLA2AHandle handle, uint32_t block, int maxElts) {
    const auto slots = static_cast<uint32_t>(maxElts), lines = static_cast<uint32_t>(handle.nSlots) / slots;
    const uint64_t of_block = devcomm::lsa::ll_slots_layout{1, static_cast<uint32_t>(handle.nSlots), 1}.bytes();
    return {{uint64_t{handle.bufHandle} * 128 + block * of_block, 1, static_cast<uint16_t>(team.nRanks),
             comm.base.lsa_barriers.owner},
            slots,
            lines};
  }

  devcomm::lsa::ll_all_to_all_session<devcomm::nccl::group_t<Coop>> session_;
};

#endif
