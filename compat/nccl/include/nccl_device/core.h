/// \file core.h
/// What host and device share: device communicators, their requirements, and teams.
#ifndef DEVCOMM_NCCL_DEVICE_CORE_H_
#define DEVCOMM_NCCL_DEVICE_CORE_H_

#include <nccl.h>

#ifdef __cplusplus
#  include <devcomm/device_comm.hpp>
#  include <devcomm/gin/queue.hpp>
#  include <devcomm/status.hpp>
#  include <devcomm/window.hpp>
#  if __has_include(<cuda/atomic>) && (!defined(DEVCOMM_SIMULATOR) || defined(DEVCOMM_SIMULATOR_OF_EACH_GPU))
#    include <cuda/atomic>
#  else  // without CCCL, and in the simulator's files of the host: what names orders and scopes
namespace cuda {
enum memory_order {
  memory_order_relaxed,
  memory_order_consume,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread = 10 };
}  // namespace cuda
#  endif
#  define NCCL_HOST_DEVICE_INLINE DEVCOMM_HOST_DEVICE inline
#  define NCCL_DEVICE_INLINE DEVCOMM_DEVICE inline
#endif

/// Members `rank - k`, `rank`, `rank + k` and so on: their world ranks are `stride` apart.
struct ncclTeam {
  int nRanks;
  int rank;
  int stride;
};
typedef struct ncclTeam ncclTeam_t;

typedef uint32_t ncclDevResourceHandle;
typedef ncclDevResourceHandle ncclDevResourceHandle_t;
typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;

/// Of a team. Null where none was asked for; otherwise no address, as each window has its own: see `ncclWindow_vidmem`.
struct ncclMultimemHandle {
  void* mcBasePtr;
};
typedef struct ncclMultimemHandle ncclMultimemHandle_t;
struct ncclLsaBarrierHandle {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
};
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
struct ncclLLA2AHandle {
  ncclDevResourceHandle_t bufHandle;
  int nSlots;
};
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
struct ncclGinBarrierHandle {
  ncclGinSignal_t signal0;
  uint32_t count;
};
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;

/// Made by `ncclDevCommCreate`; kernels take it by value.
struct ncclDevComm {
  int rank;
  int nRanks;
  int lsaRank;
  int lsaSize;
  struct ncclLsaBarrierHandle lsaBarrier;
  struct ncclLsaBarrierHandle hybridLsaBarrier;
  struct ncclMultimemHandle lsaMultimem;
  uint32_t ginContextCount;
  uint32_t cyclesPerMicrosecond;  ///< of the clock that limits of waits are given in
  ncclWindow_t resourceWindow;
  const struct ncclWindowTable* windowTable;  ///< in memory of the device
  bool usesMultimem;                          ///< barriers order multicast addresses with others
  struct ncclGinBarrierHandle railGinBarrier;
  struct ncclGinBarrierHandle worldGinBarrier;
  struct ncclGinBarrierHandle hybridRailGinBarrier;
  struct ncclGinBarrierHandle hybridWorldGinBarrier;
#ifdef __cplusplus
  devcomm::device_comm base;
  devcomm::gin::context_handle ginContexts;
  devcomm::buffer_handle<uint64_t> ginShadows;
#else
  uint64_t base[16];
  uint64_t ginContexts[4];
  uint64_t ginShadows[3];
#endif
};
typedef struct ncclDevComm ncclDevComm_t;

/// A part of the resource window, and signals, for code that is not the caller's; the outputs are written when the device
/// communicator is made.
struct ncclDevResourceRequirements {
  struct ncclDevResourceRequirements* next;
  size_t bufferSize, bufferAlign;
  ncclDevResourceHandle_t* outBufferHandle;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinSignal_t* outGinSignalStart;
  ncclGinCounter_t* outGinCounterStart;
};
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;

struct ncclTeamRequirements {
  struct ncclTeamRequirements* next;
  struct ncclTeam team;
  bool multimem;
  struct ncclMultimemHandle* outMultimemHandle;
};
typedef struct ncclTeamRequirements ncclTeamRequirements_t;

typedef enum { NCCL_GIN_CONNECTION_NONE, NCCL_GIN_CONNECTION_FULL, NCCL_GIN_CONNECTION_RAIL } ncclGinConnectionType_t;
typedef enum {
  NCCL_GIN_TYPE_NONE = 0,
  NCCL_GIN_TYPE_PROXY = 2,
  NCCL_GIN_TYPE_GDAKI = 3,
  NCCL_GIN_TYPE_GPI = 4
} ncclGinType_t;

/// All zeros, as programs for 2.28 set it, is the initializer's without its marks.
struct ncclDevCommRequirements {
  size_t size;
  unsigned int magic;
  unsigned int version;
  struct ncclDevResourceRequirements* resourceRequirementsList;
  struct ncclTeamRequirements* teamRequirementsList;
  bool lsaMultimem;
  int barrierCount;
  int lsaBarrierCount;
  int railGinBarrierCount;
  int lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinConnectionType_t ginConnectionType;
  bool ginExclusiveContexts;
  int ginQueueDepth;
  int ginTrafficClass;
  int worldGinBarrierCount;
  bool ginStrongSignalsRequired;
  bool ginVaSignalsRequired;
};
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;

#define NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER                                                                         \
  {                                                                                                                    \
    sizeof(struct ncclDevCommRequirements), NCCL_API_MAGIC, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), NULL,     \
        NULL, false, 0, 0, 0, 0, 0, false, 4, 0, 0, NCCL_GIN_CONNECTION_NONE, false, 0, NCCL_CONFIG_UNDEF_INT, 0, true, \
        true                                                                                                           \
  }

struct ncclCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
};
typedef struct ncclCommProperties ncclCommProperties_t;
#define NCCL_COMM_PROPERTIES_INITIALIZER                                                                             \
  {                                                                                                                  \
    sizeof(struct ncclCommProperties), NCCL_API_MAGIC, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), 0, 0, 0, 0, \
        false, false, NCCL_GIN_TYPE_NONE, 0, false, NCCL_GIN_TYPE_NONE                                               \
  }

#if !defined(__CUDACC_RTC__)
#  ifdef __cplusplus
extern "C" {
#  endif
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties);
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t* requirements, ncclDevComm_t* outDevComm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t* devComm);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                             ncclGinBarrierHandle_t* outHandle, ncclDevResourceRequirements_t* outReq);
int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                        ncclDevResourceRequirements_t* outReq);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void** outPtr);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** outPtr);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** outPtr);
#  ifdef __cplusplus
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
#  endif
#endif

#ifdef __cplusplus
struct ncclTeamTagWorld {};
struct ncclTeamTagLsa {};
struct ncclTeamTagRail {};

NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamWorld(const ncclDevComm& comm) { return {comm.nRanks, comm.rank, 1}; }
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamLsa(const ncclDevComm& comm) { return {comm.lsaSize, comm.lsaRank, 1}; }
/// One of each LSA team. *Requires* LSA teams of one size.
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamRail(const ncclDevComm& comm) {
  return {comm.nRanks / comm.lsaSize, comm.rank / comm.lsaSize, comm.lsaSize};
}
/// Whether member `bPeer` of `b` is one of `a`, of which the caller is a member too.
NCCL_HOST_DEVICE_INLINE bool ncclTeamRankIsMember(ncclTeam a, ncclTeam b, int bPeer) {
  const int distance = (bPeer - b.rank) * b.stride;
  const int member = a.rank + distance / a.stride;
  return distance % a.stride == 0 && member >= 0 && member < a.nRanks;
}
/// The number in `a` of member `bPeer` of `b`.
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToTeam(ncclTeam a, ncclTeam b, int bPeer) {
  return a.rank + (bPeer - b.rank) * b.stride / a.stride;
}
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToWorld(const ncclDevComm& comm, ncclTeam team, int rank) {
  return comm.rank + (rank - team.rank) * team.stride;
}
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToLsa(const ncclDevComm& comm, ncclTeam team, int rank) {
  return comm.lsaRank + (rank - team.rank) * team.stride;
}
/// The caller's run of `innerSize` members, and those with the caller's place in each run. *Requires* that it divides
/// the parent's size.
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamInnerFactor(ncclTeam parent, int innerSize) {
  return {innerSize, parent.rank % innerSize, parent.stride};
}
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamOuterFactor(ncclTeam parent, int innerSize) {
  return {parent.nRanks / innerSize, parent.rank / innerSize, parent.stride * innerSize};
}
/// The number in `parent` of its `index`-th member that is not in `subset`.
NCCL_HOST_DEVICE_INLINE int ncclTeamRankInDifference(ncclTeam parent, ncclTeam subset, int index) {
  for (int member = 0; member < parent.nRanks; ++member)
    if (!ncclTeamRankIsMember(subset, parent, member) && index-- == 0) return member;
  return -1;
}

/// A transport of GPUs after Hopper that came with NCCL 2.31.
struct ncclCft {
  template <class... Anything>
  DEVCOMM_HOST_DEVICE explicit ncclCft(const Anything&...) {
    static_assert(sizeof...(Anything) == ~size_t{0},
                  "devcomm has no CFT, which needs hardware of its own: store to the LSA team's memory, or put by ncclGin");
  }
};

/// What a window handle points to, in memory of the device.
struct ncclWindow_vidmem {
  static constexpr int max_teams = 8;

  devcomm::window window;
  char* multicast[max_teams];  ///< addresses by the number of a team with multimem, the LSA team's first; null: none
};

/// The windows of a communicator, those of no more than one range of addresses.
struct ncclWindowTable {
  static constexpr uint32_t capacity = 1024;
  struct entry {
    const char* begin;
    uint64_t bytes;
    ncclWindow_t window;
  };
  uint32_t count;
  entry windows[capacity];
};

namespace devcomm::nccl {

/// Number of the LSA team among those with multimem.
inline constexpr int lsa_multimem = 0;
/// A team's handle, and its number.
DEVCOMM_HOST_DEVICE inline ncclMultimemHandle handle_of_team(int number) {
  return {reinterpret_cast<void*>(static_cast<uintptr_t>(number) + 1)};
}
DEVCOMM_HOST_DEVICE inline int team_number(ncclMultimemHandle handle) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(handle.mcBasePtr)) - 1;
}

/// A part of the LSA team, by the numbers that devcomm's sessions inside of it take.
DEVCOMM_HOST_DEVICE inline team within_lsa(const ncclDevComm& comm, ncclTeam part) {
  const team lsa = comm.base.lsa();
  return {part.rank, part.nRanks, lsa.number(lsa.rank) - part.rank * part.stride, part.stride};
}

DEVCOMM_DEVICE inline nanoseconds nanoseconds_of(const ncclDevComm& comm, uint64_t cycles) {
  return {cycles / comm.cyclesPerMicrosecond * 1000 + cycles % comm.cyclesPerMicrosecond * 1000 / comm.cyclesPerMicrosecond};
}
DEVCOMM_DEVICE constexpr ncclResult_t result_of(status outcome) {
  return outcome == status::success ? ncclSuccess : outcome == status::timeout ? ncclTimeout : ncclRemoteError;
}

}  // namespace devcomm::nccl

static_assert(sizeof(devcomm::device_comm) == 128 && sizeof(devcomm::gin::context_handle) == 32 &&
                  sizeof(devcomm::buffer_handle<uint64_t>) == 24,
              "change what C sees of ncclDevComm");
#endif

#endif
