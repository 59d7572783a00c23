#include "state.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stand_in {
namespace {

/// A context is its device, from 1.
CUcontext context_of(CUdevice device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1); }

thread_local std::vector<CUcontext> contexts;

int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

options read_options() {
  options now;
  now.version = number("STAND_IN_CUDA_VERSION", now.version);
  if (const char* const missing = std::getenv("STAND_IN_CUDA_MISSING")) now.missing = missing;
  now.with_multicast = number("STAND_IN_CUDA_MULTICAST", now.with_multicast);
  now.peers = number("STAND_IN_CUDA_P2P", 1) != 0;
  now.cards = number("STAND_IN_CUDA_CARDS", 0);
  now.registers = number("STAND_IN_CUDA_REGISTERS", 1) != 0;
  now.writes_values = number("STAND_IN_CUDA_WRITES_VALUES", 1) != 0;
  now.fabric = number("STAND_IN_CUDA_FABRIC", 1) != 0;
  if (const char* const memory = std::getenv("STAND_IN_CUDA_MEMORY")) now.memory = std::strtoull(memory, nullptr, 10);
  const int count = number("STAND_IN_CUDA_DEVICES", 8);
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    for (int gpu = 0; gpu < count; ++gpu) now.visible.push_back(gpu);
    return now;
  }
  const std::string list = visible;
  for (std::size_t at = 0; at < list.size();) {
    const int gpu = std::atoi(list.c_str() + at);
    if (gpu >= 0 && gpu < count) now.visible.push_back(gpu);
    const std::size_t comma = list.find(',', at);
    at = comma == std::string::npos ? list.size() : comma + 1;
  }
  return now;
}

CUresult init(unsigned) {
  const call here("cuInit");
  if (here.fails()) return call::failure;
  process_state& s = state();
  if (s.started) return CUDA_SUCCESS;
  s.chosen = read_options();
  s.started = true;
  if (const char* const failing = std::getenv("STAND_IN_CUDA_FAIL")) {
    const std::string text = failing;
    const std::size_t colon = text.find(':');
    s.failing = text.substr(0, colon);
    s.failing_call = colon == std::string::npos ? 1 : std::atoi(text.c_str() + colon + 1);
  }
  return s.chosen.visible.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult get_error_name(CUresult code, const char** name) {
  switch (code) {
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_STATE: *name = "CUDA_ERROR_ILLEGAL_STATE"; return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_PERMITTED: *name = "CUDA_ERROR_NOT_PERMITTED"; return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; return CUDA_SUCCESS;
    default: *name = "CUDA_ERROR_UNKNOWN"; return CUDA_SUCCESS;
  }
}

CUresult get_error_string(CUresult, const char** text) {
  *text = "says the stand-in";
  return CUDA_SUCCESS;
}

CUresult device_get_count(int* count) {
  const call here("cuDeviceGetCount");
  if (here.fails()) return call::failure;
  *count = static_cast<int>(state().chosen.visible.size());
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int ordinal) {
  const call here("cuDeviceGet");
  if (here.fails()) return call::failure;
  if (!state().is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult device_get_name(char* name, int bytes, CUdevice device) {
  const call here("cuDeviceGetName");
  if (here.fails()) return call::failure;
  if (!state().is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<std::size_t>(bytes), "stand-in GPU %d", state().gpu_of(device));
  return CUDA_SUCCESS;
}

CUresult device_get_uuid(CUuuid* uuid, CUdevice device) {
  const call here("cuDeviceGetUuid");
  if (here.fails()) return call::failure;
  if (!state().is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::memset(uuid, 0x5a, sizeof *uuid);
  uuid->bytes[15] = static_cast<char>(state().gpu_of(device));
  return CUDA_SUCCESS;
}

CUresult device_get_attribute(int* value, CUdevice_attribute which, CUdevice device) {
  const call here("cuDeviceGetAttribute");
  if (here.fails()) return call::failure;
  const process_state& s = state();
  if (!s.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  constexpr auto fabric = static_cast<CUdevice_attribute>(128);
  constexpr auto multicast = static_cast<CUdevice_attribute>(132);
  *value = 0;
  if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = 9;
  if (which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *value = 132;
  if (which == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) *value = 1;
  if (which == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) *value = s.chosen.writes_values ? 1 : 0;
  if (which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) *value = 1;
  if (which == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) *value = 1;
  if (which == CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) *value = 1;
  if (which == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) *value = s.chosen.registers ? 1 : 0;
  if (which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) *value = s.chosen.cards > 0 ? 1 : 0;
  if (which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) *value = s.chosen.cards > 0 ? 1 : 0;
  if (which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) *value = s.chosen.cards > 1 ? 100 : 0;
  if (which == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) *value = s.chosen.cards > 2 ? 1 : 0;
  if (which == fabric) *value = s.chosen.fabric ? 1 : 0;
  if (which == multicast && s.chosen.version >= 12010) *value = s.gpu_of(device) < s.chosen.with_multicast ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult device_can_access_peer(int* can, CUdevice device, CUdevice peer) {
  const call here("cuDeviceCanAccessPeer");
  if (here.fails()) return call::failure;
  if (!state().is_device(device) || !state().is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = state().chosen.peers && device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult device_get_p2p_attribute(int* value, CUdevice_P2PAttribute, CUdevice device, CUdevice peer) {
  const call here("cuDeviceGetP2PAttribute");
  if (here.fails()) return call::failure;
  if (!state().is_device(device) || !state().is_device(peer) || device == peer) return CUDA_ERROR_INVALID_DEVICE;
  *value = state().chosen.peers ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult device_primary_ctx_retain(CUcontext* context, CUdevice device) {
  const call here("cuDevicePrimaryCtxRetain");
  if (here.fails()) return call::failure;
  if (!state().is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult ctx_set_current(CUcontext context) {
  const call here("cuCtxSetCurrent");
  if (here.fails()) return call::failure;
  if (!contexts.empty()) contexts.pop_back();
  if (context != nullptr) contexts.push_back(context);
  return CUDA_SUCCESS;
}

CUresult ctx_push_current(CUcontext context) {
  const call here("cuCtxPushCurrent");
  if (here.fails()) return call::failure;
  contexts.push_back(context);
  return CUDA_SUCCESS;
}

CUresult ctx_pop_current(CUcontext* context) {
  const call here("cuCtxPopCurrent");
  if (contexts.empty()) return complain("cuCtxPopCurrent without a context", CUDA_ERROR_INVALID_CONTEXT);
  if (context != nullptr) *context = contexts.back();
  contexts.pop_back();
  return here.result(CUDA_SUCCESS);
}

CUresult ctx_enable_peer_access(CUcontext, unsigned) {
  const call here("cuCtxEnablePeerAccess");
  if (here.fails()) return call::failure;
  return state().chosen.peers ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult ctx_synchronize() {
  wait_for_kernels();
  const call here("cuCtxSynchronize");
  if (here.fails()) return call::failure;
  return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult stream_create(CUstream* made, unsigned) {
  const call here("cuStreamCreate");
  if (here.fails()) return call::failure;
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *made = reinterpret_cast<CUstream>(new stream);
  ++state().streams;
  return CUDA_SUCCESS;
}

CUresult stream_create_with_priority(CUstream* made, unsigned flags, int) { return stream_create(made, flags); }

stream& of(CUstream handle) { return *reinterpret_cast<stream*>(handle); }

CUresult stream_destroy(CUstream handle) {
  CUresult outcome = CUDA_SUCCESS;
  {
    const call here("cuStreamDestroy");
    of(handle).do_all();
    --state().streams;
    outcome = here.result(CUDA_SUCCESS);
  }
  delete &of(handle);
  return outcome;
}

CUresult stream_query(CUstream handle) {
  const call here("cuStreamQuery");
  if (here.fails()) return call::failure;
  if (state().busy) return CUDA_ERROR_NOT_READY;
  of(handle).go_on_alone();
  return of(handle).is_done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult stream_write_value64(CUstream handle, CUdeviceptr to, cuuint64_t value, unsigned flags) {
  const call here("cuStreamWriteValue64");
  if (here.fails()) return call::failure;
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return complain("a value is written without a barrier before it");
  of(handle).begin(
      [=] { std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to)).store(value, std::memory_order_release); });
  of(handle).go_on_alone();
  return CUDA_SUCCESS;
}

CUresult memset_d8_async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream handle) {
  const call here("cuMemsetD8Async");
  if (here.fails()) return call::failure;
  of(handle).begin([=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return CUDA_SUCCESS;
}

CUresult memcpy_htod_async(CUdeviceptr to, const void* from, std::size_t bytes, CUstream handle) {
  const call here("cuMemcpyHtoDAsync");
  if (here.fails()) return call::failure;
  of(handle).begin([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  return CUDA_SUCCESS;
}

CUresult memcpy_dtoh_async(void* to, CUdeviceptr from, std::size_t bytes, CUstream handle) {
  const call here("cuMemcpyDtoHAsync");
  if (here.fails()) return call::failure;
  of(handle).begin([=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return CUDA_SUCCESS;
}

CUresult ctx_get_stream_priority_range(int* least, int* greatest) {
  const call here("cuCtxGetStreamPriorityRange");
  if (here.fails()) return call::failure;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult thread_exchange_stream_capture_mode(CUstreamCaptureMode* mode) {
  const call here("cuThreadExchangeStreamCaptureMode");
  if (here.fails()) return call::failure;
  *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return CUDA_SUCCESS;
}

template <class Function>
entry named(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

}  // namespace

CUdevice current_device() {
  return contexts.empty() ? -1 : static_cast<CUdevice>(reinterpret_cast<std::uintptr_t>(contexts.back()) - 1);
}

std::vector<entry> device_entries() {
  return {named("cuInit", init),
          named("cuGetErrorName", get_error_name),
          named("cuGetErrorString", get_error_string),
          named("cuDeviceGetCount", device_get_count),
          named("cuDeviceGet", device_get),
          named("cuDeviceGetName", device_get_name),
          named("cuDeviceGetUuid", device_get_uuid),
          named("cuDeviceGetAttribute", device_get_attribute),
          named("cuDeviceCanAccessPeer", device_can_access_peer),
          named("cuDeviceGetP2PAttribute", device_get_p2p_attribute),
          named("cuDevicePrimaryCtxRetain", device_primary_ctx_retain),
          named("cuCtxSetCurrent", ctx_set_current),
          named("cuCtxPushCurrent", ctx_push_current),
          named("cuCtxPopCurrent", ctx_pop_current),
          named("cuCtxEnablePeerAccess", ctx_enable_peer_access),
          named("cuCtxSynchronize", ctx_synchronize),
          named("cuStreamCreate", stream_create),
          named("cuStreamCreateWithPriority", stream_create_with_priority),
          named("cuStreamDestroy", stream_destroy),
          named("cuStreamQuery", stream_query),
          named("cuStreamWriteValue64", stream_write_value64),
          named("cuMemsetD8Async", memset_d8_async),
          named("cuMemcpyHtoDAsync", memcpy_htod_async),
          named("cuMemcpyDtoHAsync", memcpy_dtoh_async),
          named("cuCtxGetStreamPriorityRange", ctx_get_stream_priority_range),
          named("cuThreadExchangeStreamCaptureMode", thread_exchange_stream_capture_mode)};
}

}  // namespace stand_in

#if CUDA_VERSION < 12000
using CUdriverProcAddressQueryResult = int;
#endif

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* name, void** function,
                                                                               int version, cuuint64_t,
                                                                               CUdriverProcAddressQueryResult*) {
  using namespace stand_in;
  const std::lock_guard lock(state().mutex);
  // Before cuInit, as in the driver.
  const options chosen = read_options();
  *function = nullptr;
  if (version > chosen.version || name == chosen.missing) return CUDA_ERROR_NOT_FOUND;
  constexpr int multicast_version = 12010;
  const auto multicast = version >= multicast_version ? multicast_entries() : std::vector<entry>();
  for (const auto& list : {device_entries(), memory_entries(), multicast, plain_memory_entries()}) {
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const entry& each) { return std::strcmp(each.first, name) == 0; });
    if (found == list.end()) continue;
    *function = found->second;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
