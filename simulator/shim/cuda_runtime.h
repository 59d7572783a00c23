/// \file cuda_runtime.h
/// The CUDA runtime and the device functions that the simulator implements. Used instead of the
/// toolkit's headers, with and without a toolkit, so that both behave alike.
#pragma once
#define __CUDA_RUNTIME_H__  // the toolkit's own file is not read beside it

#if !defined(DEVCOMM_SIMULATOR)
#  error "this is the simulator's cuda_runtime.h: compile kernels through devcomm_simulate()"
#endif

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <devcomm/simulator/detail/launch.hpp>
#include <devcomm/simulator/detail/launch_syntax.hpp>
#include <devcomm/simulator/device/atomics.hpp>
#include <devcomm/simulator/device/math.hpp>
#include <devcomm/simulator/device/ptx.hpp>
#include <devcomm/simulator/device/refused.hpp>
#include <devcomm/simulator/device/threads.hpp>
#include <devcomm/simulator/device/warp.hpp>

// As nvcc has them in every file.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <class T>
cudaError_t cudaMallocAsync(T** pointer, std::size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, std::size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes);
}
template <class T>
cudaError_t cudaHostAlloc(T** pointer, std::size_t bytes, unsigned int flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}

namespace devcomm::simulator::detail {
cudaError_t copy_to_symbol(void* symbol, const void* source, std::size_t bytes, cudaStream_t stream, bool wait);
cudaError_t copy_from_symbol(void* destination, const void* symbol, std::size_t bytes, cudaStream_t stream, bool wait);
template <class T>
char* place_in(const T& symbol, std::size_t offset) {
  return const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset;
}
}  // namespace devcomm::simulator::detail

/// `__device__` and `__constant__` variables of the current device.
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* source, std::size_t bytes, std::size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
  using namespace devcomm::simulator::detail;
  return copy_to_symbol(place_in(symbol, offset), source, bytes, nullptr, true);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* source, std::size_t bytes, std::size_t offset,
                                    cudaMemcpyKind, cudaStream_t stream = nullptr) {
  using namespace devcomm::simulator::detail;
  return copy_to_symbol(place_in(symbol, offset), source, bytes, stream, false);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* destination, const T& symbol, std::size_t bytes, std::size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  using namespace devcomm::simulator::detail;
  return copy_from_symbol(destination, place_in(symbol, offset), bytes, nullptr, true);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* destination, const T& symbol, std::size_t bytes, std::size_t offset,
                                      cudaMemcpyKind, cudaStream_t stream = nullptr) {
  using namespace devcomm::simulator::detail;
  return copy_from_symbol(destination, place_in(symbol, offset), bytes, stream, false);
}
template <class T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T&) {
  *bytes = sizeof(T);
  return cudaSuccess;
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return devcomm::simulator::detail::launch(*config,
                                            std::make_unique<devcomm::simulator::detail::kernel_call_of<Parameters...>>(
                                                kernel, static_cast<Arguments&&>(arguments)...));
}

namespace devcomm::simulator::detail {
template <class... Parameters, std::size_t... I>
std::unique_ptr<kernel_call> unpack(void (*kernel)(Parameters...), void** arguments, std::index_sequence<I...>) {
  return std::make_unique<kernel_call_of<Parameters...>>(kernel, *static_cast<Parameters*>(arguments[I])...);
}
}  // namespace devcomm::simulator::detail

/// The next three need the kernel's own type, so there is no form that takes `const void*`; the build drops casts to
/// it.
template <class... Parameters>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), void** arguments) {
  return devcomm::simulator::detail::launch(
      *config, devcomm::simulator::detail::unpack(kernel, arguments, std::index_sequence_for<Parameters...>()));
}
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  cudaLaunchConfig_t config{grid, block, shared_bytes, stream, nullptr, 0};
  return devcomm::simulator::detail::launch(
      config, devcomm::simulator::detail::unpack(kernel, arguments, std::index_sequence_for<Parameters...>()));
}

template <class... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{grid, block, shared_bytes, stream, &cooperative, 1};
  return devcomm::simulator::detail::launch(
      config, devcomm::simulator::detail::unpack(kernel, arguments, std::index_sequence_for<Parameters...>()));
}

template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return devcomm::simulator::detail::set_function_attribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return devcomm::simulator::detail::get_function_attributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class T>
cudaError_t cudaFuncGetName(const char** name, T* kernel) {
  return devcomm::simulator::detail::get_function_name(name, reinterpret_cast<const void*>(kernel));
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T* kernel, int threads,
                                                          std::size_t dynamic_bytes) {
  return devcomm::simulator::detail::occupancy(blocks, reinterpret_cast<const void*>(kernel), threads, dynamic_bytes);
}
