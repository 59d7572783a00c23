#include "device/cuda/driver.hpp"

#include <devcomm/host/error.hpp>

#include <dlfcn.h>

#include <cstdio>

namespace devcomm::host::cuda {
namespace {

/// The oldest version that has every function, in the form that the header declares.
constexpr int needed_version = 11040;
/// The first version with multicast.
constexpr int multicast_version = 12010;

std::string advice() { return std::string("; install NVIDIA's driver (470 or newer), or ") + without_gpu; }

using find_by_version = CUresult (*)(const char*, void**, int, cuuint64_t);
using find_with_status = CUresult (*)(const char*, void**, int, cuuint64_t, int*);

class loader {
 public:
  /// Never closed: the driver does not support being unloaded.
  loader() : library_(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      const char* const why = ::dlerror();
      throw not_supported(std::string("there is no CUDA driver: ") + (why == nullptr ? "libcuda.so.1" : why) +
                          advice());
    }
    find_with_status_ = reinterpret_cast<find_with_status>(::dlsym(library_, "cuGetProcAddress_v2"));
    find_by_version_ = reinterpret_cast<find_by_version>(::dlsym(library_, "cuGetProcAddress"));
    if (find_with_status_ == nullptr && find_by_version_ == nullptr) {
      throw not_supported(std::string("the CUDA driver is too old: it lacks cuGetProcAddress") + advice());
    }
  }

  template <class Function>
  void load(Function& function, const char* name) const {
    if (!load_newer(function, name, needed_version)) {
      throw not_supported(std::string("the CUDA driver is too old: it lacks ") + name + advice());
    }
  }

  /// False, and `function` null, where the driver is older than `version`.
  template <class Function>
  bool load_newer(Function& function, const char* name, int version) const {
    void* found = nullptr;
    const CUresult code = find_with_status_ != nullptr ? find_with_status_(name, &found, version, 0, nullptr)
                                                       : find_by_version_(name, &found, version, 0);
    function = code == CUDA_SUCCESS ? reinterpret_cast<Function>(found) : nullptr;
    return function != nullptr;
  }

 private:
  void* library_;
  find_with_status find_with_status_;
  find_by_version find_by_version_;
};

driver_functions load_driver() {
  const loader from;
  driver_functions f{};
  from.load(f.init, "cuInit");
  from.load(f.get_error_name, "cuGetErrorName");
  from.load(f.get_error_string, "cuGetErrorString");
  from.load(f.device_get_count, "cuDeviceGetCount");
  from.load(f.device_get, "cuDeviceGet");
  from.load(f.device_get_name, "cuDeviceGetName");
  from.load(f.device_get_uuid, "cuDeviceGetUuid");
  from.load(f.device_get_attribute, "cuDeviceGetAttribute");
  from.load(f.device_can_access_peer, "cuDeviceCanAccessPeer");
  from.load(f.device_get_p2p_attribute, "cuDeviceGetP2PAttribute");
  from.load(f.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  from.load(f.ctx_set_current, "cuCtxSetCurrent");
  from.load(f.ctx_push_current, "cuCtxPushCurrent");
  from.load(f.ctx_pop_current, "cuCtxPopCurrent");
  from.load(f.ctx_enable_peer_access, "cuCtxEnablePeerAccess");
  from.load(f.ctx_synchronize, "cuCtxSynchronize");
  from.load(f.mem_get_allocation_granularity, "cuMemGetAllocationGranularity");
  from.load(f.mem_create, "cuMemCreate");
  from.load(f.mem_release, "cuMemRelease");
  from.load(f.mem_retain_allocation_handle, "cuMemRetainAllocationHandle");
  from.load(f.mem_get_allocation_properties, "cuMemGetAllocationPropertiesFromHandle");
  from.load(f.mem_export, "cuMemExportToShareableHandle");
  from.load(f.mem_import, "cuMemImportFromShareableHandle");
  from.load(f.mem_address_reserve, "cuMemAddressReserve");
  from.load(f.mem_address_free, "cuMemAddressFree");
  from.load(f.mem_map, "cuMemMap");
  from.load(f.mem_unmap, "cuMemUnmap");
  from.load(f.mem_set_access, "cuMemSetAccess");
  from.load(f.mem_host_alloc, "cuMemHostAlloc");
  from.load(f.mem_free_host, "cuMemFreeHost");
  from.load(f.mem_host_register, "cuMemHostRegister");
  from.load(f.mem_host_unregister, "cuMemHostUnregister");
  from.load(f.mem_alloc, "cuMemAlloc");
  from.load(f.mem_free, "cuMemFree");
  from.load(f.mem_get_address_range, "cuMemGetAddressRange");
  from.load(f.pointer_get_attribute, "cuPointerGetAttribute");
  from.load(f.ipc_get_mem_handle, "cuIpcGetMemHandle");
  from.load(f.ipc_open_mem_handle, "cuIpcOpenMemHandle");
  from.load(f.ipc_close_mem_handle, "cuIpcCloseMemHandle");
  from.load(f.stream_create, "cuStreamCreate");
  from.load(f.stream_create_with_priority, "cuStreamCreateWithPriority");
  from.load(f.stream_destroy, "cuStreamDestroy");
  from.load(f.stream_query, "cuStreamQuery");
  from.load_newer(f.stream_write_value64, "cuStreamWriteValue64", 12000);
  from.load(f.memset_d8_async, "cuMemsetD8Async");
  from.load(f.memcpy_htod_async, "cuMemcpyHtoDAsync");
  from.load(f.memcpy_dtoh_async, "cuMemcpyDtoHAsync");
  from.load(f.ctx_get_stream_priority_range, "cuCtxGetStreamPriorityRange");
  from.load(f.thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode");
  from.load_newer(f.multicast_get_granularity, "cuMulticastGetGranularity", multicast_version);
  from.load_newer(f.multicast_create, "cuMulticastCreate", multicast_version);
  from.load_newer(f.multicast_add_device, "cuMulticastAddDevice", multicast_version);
  from.load_newer(f.multicast_bind_mem, "cuMulticastBindMem", multicast_version);
  from.load_newer(f.multicast_unbind, "cuMulticastUnbind", multicast_version);
  return f;
}

std::string text_with(const driver_functions& f, CUresult code) {
  const char* name = nullptr;
  const char* meaning = nullptr;
  if (f.get_error_name(code, &name) != CUDA_SUCCESS || name == nullptr) {
    return "CUDA error " + std::to_string(static_cast<int>(code));
  }
  if (f.get_error_string(code, &meaning) != CUDA_SUCCESS || meaning == nullptr) return name;
  return std::string(name) + " (" + meaning + ")";
}

driver_functions start_driver() {
  const driver_functions f = load_driver();
  if (const CUresult code = f.init(0); code != CUDA_SUCCESS) {
    throw not_supported("the CUDA driver has no usable device: cuInit: " + text_with(f, code) +
                        "; check nvidia-smi, or " + without_gpu);
  }
  return f;
}

}  // namespace

const driver_functions& driver() {
  // A failure throws out of the initialization, so that every later call fails with the reason too.
  static const driver_functions functions = start_driver();
  return functions;
}

const char* missing_multicast_function() {
  const driver_functions& f = driver();
  if (f.multicast_get_granularity == nullptr) return "cuMulticastGetGranularity";
  if (f.multicast_create == nullptr) return "cuMulticastCreate";
  if (f.multicast_add_device == nullptr) return "cuMulticastAddDevice";
  if (f.multicast_bind_mem == nullptr) return "cuMulticastBindMem";
  if (f.multicast_unbind == nullptr) return "cuMulticastUnbind";
  return nullptr;
}

std::string error_text(CUresult code) { return text_with(driver(), code); }

void check(CUresult code, const char* call) {
  if (code != CUDA_SUCCESS) throw system_error(std::string(call) + " failed: " + error_text(code));
}

void report(CUresult code, const char* call) noexcept {
  if (code == CUDA_SUCCESS || code == CUDA_ERROR_DEINITIALIZED) return;
  const char* name = nullptr;
  driver().get_error_name(code, &name);
  std::fprintf(stderr, "devcomm: %s failed: %s\n", call, name == nullptr ? "unknown error" : name);
}

CUdevice handle_of(int device) {
  CUdevice handle = 0;
  check(driver().device_get(&handle, device), "cuDeviceGet");
  return handle;
}

int attribute(int device, CUdevice_attribute which) {
  int value = 0;
  return driver().device_get_attribute(&value, which, handle_of(device)) == CUDA_SUCCESS ? value : 0;
}

}  // namespace devcomm::host::cuda
