// Three kernels by NCCL's names, and the same by devcomm's own.
#include <nccl_device.h>

#include <devcomm/devcomm.cuh>

extern "C" __global__ void all_reduce_nccl(ncclWindow_t window, float* out, size_t length, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < length; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      sum += static_cast<const float*>(ncclGetLsaPointer(window, 0, peer))[i];
    out[i] = sum;
  }
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}
extern "C" __global__ void all_reduce_own(devcomm::window window, float* out, size_t length,
                                          devcomm::device_comm comm) {
  const unsigned index = blockIdx.x;  // Clang deduces no class from it
  devcomm::lsa::barrier_session barrier(devcomm::block{}, comm, index);
  barrier.sync(devcomm::memory_order::acq_rel);
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < length; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int peer = 0; peer < comm.lsa_size; ++peer) sum += reinterpret_cast<const float*>(window.lsa_pointer(peer))[i];
    out[i] = sum;
  }
  barrier.sync(devcomm::memory_order::acq_rel);
}

extern "C" __global__ void copy_to_all_nccl(ncclWindow_t window, const float* in, size_t length, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
  ncclLsaCopy<float>(ncclCoopCta(), in, ncclSymPtr<float>(window, 0), length, comm);
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}
extern "C" __global__ void copy_to_all_own(devcomm::window window, const float* in, size_t length,
                                           devcomm::device_comm comm) {
  const unsigned index = blockIdx.x;  // Clang deduces no class from it
  devcomm::lsa::barrier_session barrier(devcomm::block{}, comm, index);
  const auto all = [&](int peer) { return reinterpret_cast<float*>(window.lsa_pointer(peer)); };
  devcomm::copy_to_all<float>(devcomm::block{}, comm.lsa_size, all, in, length);
  barrier.sync(devcomm::memory_order::acq_rel);
}

extern "C" __global__ void exchange_nccl(ncclWindow_t in, ncclWindow_t out, size_t bytes, ncclDevComm comm) {
  const ncclGin gin(comm, static_cast<int>(blockIdx.x));
  const uint64_t before = gin.readSignal(0);
  ncclGinBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), gin, ncclTeamTagWorld(), blockIdx.x);
  barrier.sync(ncclCoopCta(), cuda::memory_order_acquire, ncclGinFenceLevel::None);
  for (int peer = static_cast<int>(threadIdx.x); peer < comm.nRanks; peer += static_cast<int>(blockDim.x))
    gin.put(ncclTeamWorld(comm), peer, out, bytes * static_cast<size_t>(comm.rank), in,
            bytes * static_cast<size_t>(peer), bytes, ncclGin_StrongSignalInc{0});
  gin.waitSignal(ncclCoopCta(), 0, before + static_cast<uint64_t>(comm.nRanks));
  gin.flush(ncclCoopCta());
}
extern "C" __global__ void exchange_own(devcomm::window in, devcomm::window out, size_t bytes,
                                        devcomm::device_comm comm, devcomm::gin::context_handle contexts) {
  const unsigned index = blockIdx.x;  // Clang deduces no class from it
  const uint64_t before = devcomm::gin::context(devcomm::thread{}, comm, contexts, index).read_signal(0);
  devcomm::gin::barrier_session barrier(devcomm::block{}, comm, comm.world(), contexts,
                                        devcomm::gin::one_context(index), index);
  barrier.sync(devcomm::gin::fence_level::none);
  devcomm::gin::context one(devcomm::thread{}, comm, contexts, index);
  for (int peer = static_cast<int>(threadIdx.x); peer < comm.world().size; peer += static_cast<int>(blockDim.x))
    one.put(peer, out, bytes * static_cast<size_t>(comm.rank), in, bytes * static_cast<size_t>(peer), bytes,
            devcomm::gin::signal_add{0, 1}, devcomm::gin::no_action{});
  devcomm::gin::context all(devcomm::block{}, comm, contexts, index);
  all.wait_signal(0, before + static_cast<uint64_t>(comm.world().size));
  all.flush();
}
