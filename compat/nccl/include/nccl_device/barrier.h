/// \file barrier.h
/// Barriers over networks, and of both kinds of peers: gin/barrier_session.cuh and lsa/barrier_session.cuh.
#ifndef DEVCOMM_NCCL_DEVICE_BARRIER_H_
#define DEVCOMM_NCCL_DEVICE_BARRIER_H_

#include <devcomm/assert.hpp>
#include <devcomm/gin/barrier_session.cuh>


#include <nccl_device/gin.h>
#include <nccl_device/lsa_barrier.h>

/// What a barrier has before it: puts to its members have arrived, and what this rank got, or put from, is complete.
enum class ncclGinFenceLevel : uint32_t { None = 0, Relaxed = 0, Put = 1, Get = 2 };
NCCL_HOST_DEVICE_INLINE constexpr ncclGinFenceLevel operator|(ncclGinFenceLevel a, ncclGinFenceLevel b) {
  return static_cast<ncclGinFenceLevel>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
NCCL_HOST_DEVICE_INLINE constexpr ncclGinFenceLevel operator&(ncclGinFenceLevel a, ncclGinFenceLevel b) {
  return static_cast<ncclGinFenceLevel>(static_cast<uint32_t>(a) & static_cast<uint32_t>(b));
}

/// In place of one context: a barrier that fences all.
struct ncclGinAllContexts {
  const ncclDevComm& comm;
};

namespace devcomm::nccl {

template <unsigned Mask>
DEVCOMM_DEVICE gin::context_range range_of(const ncclGin_BackendMask<Mask>& net) {
  return gin::one_context(net.contextId);
}
DEVCOMM_DEVICE inline gin::context_range range_of(const ncclGinAllContexts&) { return gin::all_contexts(); }

DEVCOMM_DEVICE inline team in_world(const ncclDevComm& comm, ncclTeam part) {
  return {part.rank, part.nRanks, comm.rank - part.rank * part.stride, part.stride};
}

struct placed {};
}  // namespace devcomm::nccl

// For NVRTC, which has no <new>.
DEVCOMM_DEVICE inline void* operator new(size_t, void* place, devcomm::nccl::placed) { return place; }
DEVCOMM_DEVICE inline void operator delete(void*, void*, devcomm::nccl::placed) {}

namespace devcomm::nccl {

/// Of a class that some objects have, and others not.
template <class T>
class maybe {
 public:
  maybe() = default;
  maybe(const maybe&) = delete;
  maybe& operator=(const maybe&) = delete;
  DEVCOMM_DEVICE ~maybe() noexcept(false) {  // as those of sessions
    if (exists_) get().~T();
  }
  template <class... Arguments>
  DEVCOMM_DEVICE void make(const Arguments&... arguments) {
    ::new (static_cast<void*>(bytes_), placed{}) T(arguments...);
    exists_ = true;
  }
  DEVCOMM_DEVICE bool exists() const { return exists_; }
  DEVCOMM_DEVICE T& get() { return *reinterpret_cast<T*>(bytes_); }

 private:
  alignas(T) char bytes_[sizeof(T)];
  bool exists_ = false;
};

}  // namespace devcomm::nccl

/// A group's use of barrier `index` of a team over the network. Always acquires and releases.
template <class Coop>
struct ncclGinBarrierSession {
  template <class Net>
  NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop coop, const Net& net, ncclTeam team, ncclGinBarrierHandle handle,
                                           uint32_t index)
      : comm_(net.comm),
        session_(devcomm::nccl::group_of(coop), net.comm.base, devcomm::nccl::in_world(net.comm, team), net.comm.ginContexts,
                 devcomm::nccl::range_of(net), checked(handle, index)) {}
  template <class Net>
  NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop coop, const Net& net, ncclTeamTagRail, uint32_t index)
      : ncclGinBarrierSession(coop, net, ncclTeamRail(net.comm), net.comm.railGinBarrier, index) {}
  template <class Net>
  NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop coop, const Net& net, ncclTeamTagWorld, uint32_t index)
      : ncclGinBarrierSession(coop, net, ncclTeamWorld(net.comm), net.comm.worldGinBarrier, index) {}
  ncclGinBarrierSession(const ncclGinBarrierSession&) = delete;

  NCCL_DEVICE_INLINE void sync(Coop, cuda::memory_order,
                               ncclGinFenceLevel fence = ncclGinFenceLevel::Put | ncclGinFenceLevel::Get) {
    session_.sync(level_of(fence));
    devcomm::nccl::order_aliases(comm_);
  }
  NCCL_DEVICE_INLINE ncclResult_t sync(Coop, cuda::memory_order, ncclGinFenceLevel fence, uint64_t timeoutCycles) {
    const devcomm::status outcome =
        session_.sync_for(devcomm::nccl::nanoseconds_of(comm_, timeoutCycles), level_of(fence));
    devcomm::nccl::order_aliases(comm_);
    return devcomm::nccl::result_of(outcome);
  }

 private:
  NCCL_DEVICE_INLINE static uint32_t checked(ncclGinBarrierHandle handle, uint32_t index) {
    DEVCOMM_ASSERT_OF(index < handle.count, "barrier", index, handle.count,
                      "the barrier's index is past those that were asked for: ask for more by worldGinBarrierCount, "
                      "railGinBarrierCount, barrierCount for ncclBarrierSession, or ncclGinBarrierCreateRequirement");
    return handle.signal0 + index;
  }
  NCCL_DEVICE_INLINE static devcomm::gin::fence_level level_of(ncclGinFenceLevel fence) {
    return static_cast<devcomm::gin::fence_level>(fence);
  }

  const ncclDevComm& comm_;
  devcomm::gin::barrier_session<devcomm::nccl::group_t<Coop>> session_;
};

/// A group's use of barrier `index` of the world, of the LSA team, or of the rail.
///
/// The world's is, where puts are fenced, a barrier of all ranks over the network, as a put to another rail is fenced by
/// its sender's own signal alone; else one of the LSA team, and then one of the rail. It acquires and releases.
template <class Coop>
struct ncclBarrierSession {
  NCCL_DEVICE_INLINE ncclBarrierSession(Coop coop, ncclTeam inner, ncclTeam outer, const ncclGin& net,
                                        ncclLsaBarrierHandle innerHandle, ncclGinBarrierHandle outerHandle, uint32_t index,
                                        bool multimem = false, ncclMultimemHandle mmHandle = {})
      : coop_(coop) {
    lsa_.make(coop, net.comm, inner, innerHandle, index, multimem, mmHandle);
    if (outer.nRanks > 1) rail_.make(coop, net, outer, outerHandle, index);
  }
  NCCL_DEVICE_INLINE ncclBarrierSession(Coop coop, ncclTeamTagWorld, const ncclGin& net, uint32_t index,
                                        bool multimem = false)
      : coop_(coop) {
    const ncclDevComm& comm = net.comm;
    lsa_.make(coop, comm, ncclTeamLsa(comm), comm.hybridLsaBarrier, index, multimem, comm.lsaMultimem);
    if (comm.lsaSize != comm.nRanks) rail_.make(coop, net, ncclTeamRail(comm), comm.hybridRailGinBarrier, index);
    world_.make(coop, net, ncclTeamWorld(comm), comm.hybridWorldGinBarrier, index);
  }
  NCCL_DEVICE_INLINE ncclBarrierSession(Coop coop, ncclTeamTagLsa, const ncclDevComm& comm, uint32_t index,
                                        bool multimem = false)
      : coop_(coop) {
    lsa_.make(coop, comm, ncclTeamLsa(comm), comm.hybridLsaBarrier, index, multimem, comm.lsaMultimem);
  }
  NCCL_DEVICE_INLINE ncclBarrierSession(Coop coop, ncclTeamTagRail, const ncclGin& net, uint32_t index) : coop_(coop) {
    rail_.make(coop, net, ncclTeamRail(net.comm), net.comm.hybridRailGinBarrier, index);
  }
  ncclBarrierSession(const ncclBarrierSession&) = delete;

  NCCL_DEVICE_INLINE ncclLsaBarrierSession<Coop>& lsaBarrier() { return lsa_.get(); }
  NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop>& ginBarrier() { return rail_.exists() ? rail_.get() : world_.get(); }

  NCCL_DEVICE_INLINE void sync(Coop, cuda::memory_order order,
                               ncclGinFenceLevel fence = ncclGinFenceLevel::Put | ncclGinFenceLevel::Get) {
    if (world_.exists() && (fence & ncclGinFenceLevel::Put) == ncclGinFenceLevel::Put)
      return world_.get().sync(coop_, order, fence);
    if (lsa_.exists()) lsa_.get().sync(coop_, rail_.exists() ? cuda::memory_order_acq_rel : order);
    if (rail_.exists()) return rail_.get().sync(coop_, order, fence);
    if (world_.exists() && fence != ncclGinFenceLevel::None) world_.get().sync(coop_, order, fence);
  }
  /// After `ncclTimeout` the call may be repeated, with the same fence.
  NCCL_DEVICE_INLINE ncclResult_t sync(Coop, cuda::memory_order order, ncclGinFenceLevel fence, uint64_t timeoutCycles) {
    if (world_.exists() && (fence & ncclGinFenceLevel::Put) == ncclGinFenceLevel::Put)
      return world_.get().sync(coop_, order, fence, timeoutCycles);
    if (lsa_.exists() && !inside_) {
      const ncclResult_t result =
          lsa_.get().sync(coop_, rail_.exists() ? cuda::memory_order_acq_rel : order, timeoutCycles);
      if (result != ncclSuccess) return result;
    }
    inside_ = true;
    ncclResult_t result = ncclSuccess;
    if (rail_.exists()) {
      result = rail_.get().sync(coop_, order, fence, timeoutCycles);
    } else if (world_.exists() && fence != ncclGinFenceLevel::None) {
      result = world_.get().sync(coop_, order, fence, timeoutCycles);
    }
    inside_ = result == ncclTimeout;
    return result;
  }

 private:
  Coop coop_;
  devcomm::nccl::maybe<ncclLsaBarrierSession<Coop>> lsa_;
  devcomm::nccl::maybe<ncclGinBarrierSession<Coop>> rail_;
  devcomm::nccl::maybe<ncclGinBarrierSession<Coop>> world_;
  bool inside_ = false;  // a call that timed out has passed the barrier of the LSA team
};

template <class Coop, class Net>
NCCL_DEVICE_INLINE void ncclGinBarrier(Coop coop, const Net& net, ncclTeam team, ncclGinBarrierHandle handle,
                                       uint32_t index, cuda::memory_order order = cuda::memory_order_acq_rel,
                                       ncclGinFenceLevel fence = ncclGinFenceLevel::Put | ncclGinFenceLevel::Get) {
  ncclGinBarrierSession<Coop>(coop, net, team, handle, index).sync(coop, order, fence);
}
template <class Coop, class Net, class Tag>
NCCL_DEVICE_INLINE void ncclGinBarrier(Coop coop, const Net& net, Tag tag, uint32_t index,
                                       cuda::memory_order order = cuda::memory_order_acq_rel,
                                       ncclGinFenceLevel fence = ncclGinFenceLevel::Put | ncclGinFenceLevel::Get) {
  ncclGinBarrierSession<Coop>(coop, net, tag, index).sync(coop, order, fence);
}
template <class Coop>
NCCL_DEVICE_INLINE void ncclBarrier(Coop coop, ncclTeamTagWorld tag, const ncclGin& net, uint32_t index,
                                    cuda::memory_order order = cuda::memory_order_acq_rel,
                                    ncclGinFenceLevel fence = ncclGinFenceLevel::Put | ncclGinFenceLevel::Get,
                                    bool multimem = false) {
  ncclBarrierSession<Coop>(coop, tag, net, index, multimem).sync(coop, order, fence);
}
template <class Coop>
NCCL_DEVICE_INLINE void ncclBarrier(Coop coop, ncclTeamTagRail tag, const ncclGin& net, uint32_t index,
                                    cuda::memory_order order = cuda::memory_order_acq_rel,
                                    ncclGinFenceLevel fence = ncclGinFenceLevel::Put | ncclGinFenceLevel::Get) {
  ncclBarrierSession<Coop>(coop, tag, net, index).sync(coop, order, fence);
}

#endif
