#include "runtime/host_thread.hpp"

#include "runtime/host_port.hpp"

#include "gpu/device_memory.hpp"
#include "gpu/multiprocessors.hpp"
#include "runtime/simulation.hpp"
#include "runtime/stream.hpp"

#include <climits>
#include <cstddef>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>

extern "C" void cuTensorMapEncodeTiled();  // engine/tensor_copy.cpp

namespace devcomm::simulator::detail {
namespace {

std::set<std::pair<int, int>>& peers() {
  static auto& only = *new std::set<std::pair<int, int>>;
  return only;
}

/// As CUDA has it, of each device; simulated threads have stacks of their own.
std::size_t& stack_limit() {
  static auto& limits = *new std::map<int, std::size_t>;
  return limits.try_emplace(current_device(), 1024).first->second;
}

__thread int device_of_thread = 0;

bool exists(int device) { return device >= 0 && device < the_engine().config.devices; }

}  // namespace

int current_device() { return device_of_thread; }
void make_device_current(int device) { device_of_thread = device; }

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = host_port::device_count();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const engine_guard hold;
  if (!exists(device)) return keep(cudaErrorInvalidDevice);
  make_device_current(device);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const engine_guard hold;
  if (!exists(device)) return keep(cudaErrorInvalidDevice);
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "simulated GPU %d", device);
  p.totalGlobalMem = device_memory_bytes;
  p.sharedMemPerBlock = gpu_limits::shared_per_block;
  p.warpSize = 32;
  p.maxThreadsPerBlock = gpu_limits::threads_per_block;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = INT_MAX;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.major = the_engine().config.arch / 10;
  p.minor = the_engine().config.arch % 10;
  p.multiProcessorCount = the_engine().config.multiprocessors;
  p.unifiedAddressing = 1;
  p.maxThreadsPerMultiProcessor = gpu_limits::threads_per_multiprocessor;
  p.sharedMemPerMultiprocessor = gpu_limits::shared_per_multiprocessor;
  p.cooperativeLaunch = 1;
  p.sharedMemPerBlockOptin = gpu_limits::shared_per_block_opt_in;
  p.maxBlocksPerMultiProcessor = gpu_limits::blocks_per_multiprocessor;
  p.reservedSharedMemPerBlock = gpu_limits::shared_reserved_per_block;
  *properties = p;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p{};
  const cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrClockRate: *value = 1000000; break;  // kHz: clock64() counts nanoseconds
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrUnifiedAddressing: *value = p.unifiedAddressing; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(p.sharedMemPerMultiprocessor); break;
    case cudaDevAttrCooperativeLaunch: *value = p.cooperativeLaunch; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = static_cast<int>(p.reservedSharedMemPerBlock); break;
    default: return keep(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

// Waits for the device and makes it usable again; memory and streams stay.
cudaError_t cudaDeviceReset() {
  const engine_guard hold;
  static_cast<void>(synchronize_device(current_device()));
  if (const auto broken = the_engine().faults.find(current_device()); broken != the_engine().faults.end()) {
    broken->second.reset = true;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  const engine_guard hold;
  if (value == nullptr || limit != cudaLimitStackSize) return keep(cudaErrorInvalidValue);
  *value = stack_limit();
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
  const engine_guard hold;
  if (limit != cudaLimitStackSize) return keep(cudaErrorInvalidValue);
  stack_limit() = value;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const engine_guard hold;
  if (!exists(device) || !exists(peer)) return keep(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  const engine_guard hold;
  if (!exists(peer) || peer == current_device()) return keep(cudaErrorInvalidDevice);
  if (flags != 0) return keep(cudaErrorInvalidValue);
  return peers().insert({current_device(), peer}).second ? cudaSuccess : keep(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  const engine_guard hold;
  return peers().erase({current_device(), peer}) != 0 ? cudaSuccess : keep(cudaErrorPeerAccessNotEnabled);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long /*flags*/,
                                    cudaDriverEntryPointQueryResult* result) {
  const bool known = std::string_view(symbol) == "cuTensorMapEncodeTiled";
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  if (result != nullptr) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return keep(known || result != nullptr ? cudaSuccess : cudaErrorSymbolNotFound);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int /*version*/,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPoint(symbol, function, flags, result);
}
}

}  // namespace devcomm::simulator::detail
