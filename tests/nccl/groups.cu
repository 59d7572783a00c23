// Compiles every call that takes a group of threads with every kind of group: NCCL's, CUDA's, a program's own.
#include "nccl/on_ranks.hpp"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

template <class Coop>
__device__ int all_calls(Coop coop, const ncclDevComm& comm, ncclWindow_t w, float* out, ncclLLA2AHandle slots,
                         ncclGinBarrierHandle handle) {
  constexpr cuda::memory_order both = cuda::memory_order_acq_rel;
  const ncclTeam lsa = ncclTeamLsa(comm), world = ncclTeamWorld(comm);
  int failed = 0;
  {
    ncclLsaBarrierSession<Coop> barrier(coop, comm, ncclTeamTagLsa(), 0, true);
    barrier.sync(coop, both);
    barrier.arrive(coop, cuda::memory_order_release);
    barrier.wait(coop, cuda::memory_order_acquire);
    failed += barrier.sync(coop, both, 1000) != ncclSuccess;
    failed += barrier.wait(coop, both, 1000) != ncclSuccess;
  }
  const ncclGin gin(comm, 0);
  gin.put(world, 0, w, 0, w, 0, 16, ncclGin_StrongSignalInc{0}, ncclGin_WeakCounterInc{0}, coop);
  gin.put(world, 0, ncclSymPtr<float>(w), ncclSymPtr<float>(w), 4, ncclGin_None{}, ncclGin_None{}, coop);
  gin.putValue(world, 0, w, 0, 7, ncclGin_WeakSignalAdd{0, 2}, coop);
  gin.get(world, 0, w, 0, w, 0, 16, coop);
  gin.signal(world, 0, ncclGin_SignalAdd{0, 2}, coop);
  gin.waitSignal(coop, 0, 1);
  gin.waitCounter(coop, 0, 1);
  gin.flush(coop);
  ncclGinRequest_t request;
  gin.flushAsync(world, 0, &request, coop);
  gin.wait(request, coop);
  gin.waitSignalMeetShadow(coop, 0);
  uint64_t before, delta;
  gin.waitSignalFollowShadow(coop, 0, uint64_t{1}, &before, &delta);
  failed += gin.waitSignal(coop, 0, 1, 64, both, 1000) != ncclSuccess;
  failed += gin.waitCounter(coop, 0, 1, 56, both, 1000) != ncclSuccess;
  failed += gin.flush(coop, both, ncclGin_None{}, 1000) != ncclSuccess;
  failed += gin.wait(request, coop, ncclGin_None{}, both, 1000) != ncclSuccess;
  {
    ncclGinBarrierSession<Coop> barrier(coop, gin, ncclTeamTagWorld(), 0);
    barrier.sync(coop, both);
    failed += barrier.sync(coop, both, ncclGinFenceLevel::Put, 1000) != ncclSuccess;
  }
  ncclGinBarrierSession<Coop>(coop, ncclGinAllContexts{comm}, world, handle, 0)
      .sync(coop, both, ncclGinFenceLevel::None);
  {
    ncclBarrierSession<Coop> barrier(coop, ncclTeamTagWorld(), gin, 0);
    barrier.sync(coop, both);
    failed += barrier.sync(coop, both, ncclGinFenceLevel::Put, 1000) != ncclSuccess;
    barrier.lsaBarrier().sync(coop, both);
  }
  ncclBarrier(coop, ncclTeamTagWorld(), gin, 0);
  ncclLsaReduceSum<float>(coop, w, 0, out, 100, comm);
  ncclLsaCopy<float>(coop, out, w, 0, 100, lsa);
  ncclLocalCopy<float>(coop, out, 2, out, 100, 100);
  ncclMultimemReduceSum<float>(coop, w, 0, out, 100, comm.lsaMultimem);
  ncclMultimemCopy<float>(coop, out, w, 0, 100, comm.lsaMultimem);
  {
    ncclLLA2ASession<Coop> session(coop, comm, lsa, slots, 0, 32);
    session.bcast(0, 1.0f);
    out[0] = session.template recv<float>(0);
    session.endEpoch(coop);
  }
  return failed + (ncclFindWindow(coop, comm, out) != nullptr) + ncclCoopIsThread(coop) + ncclCoopWithinWarp(coop);
}

template <class Make>
__global__ void with_group(ncclDevComm comm, ncclWindow_t w, float* out, ncclLLA2AHandle slots,
                           ncclGinBarrierHandle handle, Make make) {
  out[1] = static_cast<float>(all_calls(make(), comm, w, out, slots, handle));
}

#define MAKES(name, group)                                                                                            \
  struct name {                                                                                                       \
    __device__ auto operator()() const { return group; }                                                              \
  };                                                                                                                  \
  template __global__ void with_group<name>(ncclDevComm, ncclWindow_t, float*, ncclLLA2AHandle, ncclGinBarrierHandle, \
                                            name);
MAKES(make_thread, ncclCoopThread())
MAKES(make_warp, ncclCoopWarp())
MAKES(make_tile, ncclCoopTile<4>())
MAKES(make_lanes, ncclCoopLanes(0xff))
MAKES(make_span, ncclCoopWarpSpan(0, 2, 1))
MAKES(make_block, ncclCoopCta())
MAKES(make_any, ncclCoopAny(ncclCoopCta()))
MAKES(make_coalesced, ncclCoopCoalesced())
MAKES(make_thread_block, cg::this_thread_block())
MAKES(make_cuda_tile, cg::tiled_partition<32>(cg::this_thread_block()))
MAKES(make_own, coop_of_program())

int main() { return 0; }
