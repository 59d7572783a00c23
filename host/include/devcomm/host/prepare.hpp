/// \file prepare.hpp
/// Loads kernels before any of them waits for a peer.
#pragma once

#include <devcomm/host/communicator.hpp>
#include <devcomm/launch.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>

namespace devcomm::host {

namespace detail {

/// Loads `kernel` on the current device. Bytes of local memory that each of its threads needs.
template <class... Parameters>
std::size_t load_kernel(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "prepare");
  return attributes.localSizeBytes;
}

/// Gives all threads of the current device so much local memory, unless they have it.
inline void provide_local_memory(std::size_t bytes) {
  std::size_t provided = 0;
  check_cuda(cudaDeviceGetLimit(&provided, cudaLimitStackSize), "prepare");
  if (provided < bytes) check_cuda(cudaDeviceSetLimit(cudaLimitStackSize, bytes), "prepare");
}

}  // namespace detail

/// Loads `kernels` on this rank's device and reserves the local memory that they need, so that their first launches
/// wait for neither; then waits for the other ranks. Without it the first launch of a kernel may wait for one that runs
/// on the same GPU, and that one for the launch. Launches nothing.
///
///     host::prepare(comm, all_reduce<float>, all_reduce<half>);
///
/// *Collective*: on every rank, before the first launch that waits for peers. Throws `cuda_error` where a kernel cannot
/// be loaded.
template <class... Kernels>
void prepare(communicator& comm, Kernels... kernels) {
  static_assert(sizeof...(Kernels) > 0, "name the kernels that are to be loaded");
  int before = 0;
  check_cuda(cudaGetDevice(&before), "prepare");
  check_cuda(cudaSetDevice(comm.device()), "prepare");
  detail::provide_local_memory(std::max({detail::load_kernel(kernels)...}));
  check_cuda(cudaSetDevice(before), "prepare");
  comm.barrier();
}

}  // namespace devcomm::host
