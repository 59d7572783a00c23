/// \file reduce_copy.h
/// Sums and copies over memory of the LSA team, by data/reduce_copy.cuh. None of them synchronizes; sums are in the order
/// of the ranks, of 16-bit and 8-bit types in float.
///
/// `Unroll` is accepted and changes nothing. Sources and destinations are functions of a number, which return pointers.
#ifndef DEVCOMM_NCCL_DEVICE_REDUCE_COPY_H_
#define DEVCOMM_NCCL_DEVICE_REDUCE_COPY_H_

#include <devcomm/data/copy.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/data/reduction.cuh>
#include <nccl_device/coop.h>
#include <nccl_device/core.h>
#include <nccl_device/ptr.h>

namespace devcomm::nccl {

template <class T>
inline constexpr int usual_unroll = 4 * 16 / sizeof(T);

/// The same place of a window on the members of a team.
template <class T>
struct on_members {
  ncclWindow_t memory;
  size_t offset;
  ncclTeam team;

  DEVCOMM_DEVICE T* operator()(int member) const {
    const window& of = window_of(memory);
    return reinterpret_cast<T*>(of.lsa_pointer(of.lsa_rank + (member - team.rank) * team.stride, offset));
  }
};
/// Places of this rank's memory, so many elements apart.
template <class T>
struct apart {
  T* first;
  size_t displacement;
  DEVCOMM_DEVICE T* operator()(int i) const { return first + static_cast<size_t>(i) * displacement; }
};
template <class T>
struct one_place {
  T* place;
  DEVCOMM_DEVICE T* operator()(int) const { return place; }
};

DEVCOMM_DEVICE inline ncclTeam team_of(ncclTeam team) { return team; }
DEVCOMM_DEVICE inline ncclTeam team_of(const ncclDevComm& comm) { return ncclTeamLsa(comm); }

}  // namespace devcomm::nccl

// --- any operator ---

template <class T, class Coop, class Sources, class Destinations, class RedOp, class Int,
          int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceLsaCopy(Coop coop, Sources src, int nSrc, Destinations dst, int nDst, RedOp redOp,
                                             Int count) {
  devcomm::reduce_copy<T>(devcomm::nccl::group_of(coop), nSrc, src, nDst, dst, static_cast<uint64_t>(count), redOp);
}

// --- sums of many to many ---

template <class T, class Coop, class Sources, class Destinations, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSumLsaCopy(Coop coop, Sources src, int nSrc, Destinations dst, int nDst, Int count) {
  devcomm::reduce_copy<T>(devcomm::nccl::group_of(coop), nSrc, src, nDst, dst, static_cast<uint64_t>(count), devcomm::sum{});
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclSymPtr<T> src, ncclTeam srcTeam, ncclSymPtr<T> dst,
                                             ncclTeam dstTeam, Int count) {
  ncclLsaReduceSumLsaCopy<T>(coop, devcomm::nccl::on_members<T>{src.window, src.offset, srcTeam}, srcTeam.nRanks,
                             devcomm::nccl::on_members<T>{dst.window, dst.offset, dstTeam}, dstTeam.nRanks, count);
}
/// Over a team, or over the LSA team of a device communicator.
template <class T, class Coop, class Int, class Team, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclSymPtr<T> src, ncclSymPtr<T> dst, Int count,
                                             const Team& teamOrComm) {
  const ncclTeam team = devcomm::nccl::team_of(teamOrComm);
  ncclLsaReduceSumCopy<T>(coop, src, team, dst, team, count);
}
template <class T, class Coop, class Int, class Team, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclWindow_t src, size_t srcOffset, ncclWindow_t dst,
                                             size_t dstOffset, Int count, const Team& teamOrComm) {
  ncclLsaReduceSumCopy<T>(coop, ncclSymPtr<T>(src, srcOffset), ncclSymPtr<T>(dst, dstOffset), count, teamOrComm);
}

// --- sums of many to one ---

template <class T, class Coop, class Sources, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, Sources src, int nSrc, T* dst, Int count) {
  ncclLsaReduceSumLsaCopy<T>(coop, src, nSrc, devcomm::nccl::one_place<T>{dst}, 1, count);
}
template <class T, class Coop, class Int, class Team, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclSymPtr<T> src, T* dst, Int count, const Team& teamOrComm) {
  const ncclTeam team = devcomm::nccl::team_of(teamOrComm);
  ncclLsaReduceSumLsaCopy<T>(coop, devcomm::nccl::on_members<T>{src.window, src.offset, team}, team.nRanks,
                             devcomm::nccl::one_place<T>{dst}, 1, count);
}
template <class T, class Coop, class Int, class Team, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclWindow_t src, size_t srcOffset, T* dst, Int count,
                                         const Team& teamOrComm) {
  ncclLsaReduceSum<T>(coop, ncclSymPtr<T>(src, srcOffset), dst, count, teamOrComm);
}

// --- copies of one to many ---

template <class T, class Coop, class Destinations, class Int, int Unroll = devcomm::nccl::usual_unroll<T>,
          devcomm::detail::enable_if_t<devcomm::detail::is_integral<Int>> = 0>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, const T* src, Destinations dst, int nDst, Int count) {
  devcomm::copy_to_all<T>(devcomm::nccl::group_of(coop), nDst, dst, src, static_cast<uint64_t>(count));
}
template <class T, class Coop, class Int, class Team, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, const T* src, ncclSymPtr<T> dst, Int count, const Team& teamOrComm) {
  const ncclTeam team = devcomm::nccl::team_of(teamOrComm);
  ncclLsaCopy<T>(coop, src, devcomm::nccl::on_members<T>{dst.window, dst.offset, team}, team.nRanks, count);
}
template <class T, class Coop, class Int, class Team, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, const T* src, ncclWindow_t dst, size_t dstOffset, Int count,
                                    const Team& teamOrComm) {
  ncclLsaCopy<T>(coop, src, ncclSymPtr<T>(dst, dstOffset), count, teamOrComm);
}

// --- inside this rank's memory ---

template <class T, class Coop, class Sources, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop coop, Sources src, int nSrc, T* dst, Int count) {
  ncclLsaReduceSum<T>(coop, src, nSrc, dst, count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop coop, int nSrc, T* base, size_t displ, T* dst, Int count) {
  ncclLsaReduceSum<T>(coop, devcomm::nccl::apart<T>{base, displ}, nSrc, dst, count);
}
template <class T, class Coop, class Destinations, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop coop, const T* src, Destinations dst, int nDst, Int count) {
  ncclLsaCopy<T>(coop, src, dst, nDst, count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop coop, const T* src, int nDst, T* base, size_t displ, Int count) {
  ncclLsaCopy<T>(coop, src, devcomm::nccl::apart<T>{base, displ}, nDst, count);
}
template <class T, class Coop, class Int, int Unroll = devcomm::nccl::usual_unroll<T>>
NCCL_DEVICE_INLINE void ncclLocalReduceSumCopy(Coop coop, int nSrc, T* src, size_t srcDispl, int nDst, T* dst,
                                               size_t dstDispl, Int count) {
  ncclLsaReduceSumLsaCopy<T>(coop, devcomm::nccl::apart<T>{src, srcDispl}, nSrc, devcomm::nccl::apart<T>{dst, dstDispl},
                             nDst, count);
}

#endif
