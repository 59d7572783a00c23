/// \file driver.hpp
/// The CUDA driver, looked up at run time: programs that link this library start without one.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace devcomm::host::cuda {

// As the headers of CUDA 12.1 and newer have them.

/// `CUmulticastObjectProp`.
struct multicast_properties {
  unsigned devices;
  std::size_t bytes;
  unsigned long long handle_types;
  unsigned long long flags;
};
/// `CU_MULTICAST_GRANULARITY_MINIMUM` of `CUmulticastGranularity_flags`.
enum multicast_granularity_flag : unsigned { multicast_granularity_minimum = 0 };

/// Entry points of the driver, with the types that its header declares. Named without the `cu`.
struct driver_functions {
  decltype(&cuInit) init;
  decltype(&cuGetErrorName) get_error_name;
  decltype(&cuGetErrorString) get_error_string;
  decltype(&cuDeviceGetCount) device_get_count;
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDeviceGetName) device_get_name;
  decltype(&cuDeviceGetUuid) device_get_uuid;
  decltype(&cuDeviceGetAttribute) device_get_attribute;
  decltype(&cuDeviceCanAccessPeer) device_can_access_peer;
  decltype(&cuDeviceGetP2PAttribute) device_get_p2p_attribute;
  decltype(&cuDevicePrimaryCtxRetain) device_primary_ctx_retain;
  decltype(&cuCtxSetCurrent) ctx_set_current;
  decltype(&cuCtxPushCurrent) ctx_push_current;
  decltype(&cuCtxPopCurrent) ctx_pop_current;
  decltype(&cuCtxEnablePeerAccess) ctx_enable_peer_access;
  decltype(&cuCtxSynchronize) ctx_synchronize;
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity;
  decltype(&cuMemCreate) mem_create;
  decltype(&cuMemRelease) mem_release;
  decltype(&cuMemRetainAllocationHandle) mem_retain_allocation_handle;
  decltype(&cuMemGetAllocationPropertiesFromHandle) mem_get_allocation_properties;
  decltype(&cuMemExportToShareableHandle) mem_export;
  decltype(&cuMemImportFromShareableHandle) mem_import;
  decltype(&cuMemAddressReserve) mem_address_reserve;
  decltype(&cuMemAddressFree) mem_address_free;
  decltype(&cuMemMap) mem_map;
  decltype(&cuMemUnmap) mem_unmap;
  decltype(&cuMemSetAccess) mem_set_access;
  decltype(&cuMemHostAlloc) mem_host_alloc;
  decltype(&cuMemFreeHost) mem_free_host;
  decltype(&cuMemHostRegister) mem_host_register;
  decltype(&cuMemHostUnregister) mem_host_unregister;
  decltype(&cuMemAlloc) mem_alloc;
  decltype(&cuMemFree) mem_free;
  decltype(&cuMemGetAddressRange) mem_get_address_range;
  decltype(&cuPointerGetAttribute) pointer_get_attribute;
  decltype(&cuIpcGetMemHandle) ipc_get_mem_handle;
  decltype(&cuIpcOpenMemHandle) ipc_open_mem_handle;
  decltype(&cuIpcCloseMemHandle) ipc_close_mem_handle;
  decltype(&cuStreamCreate) stream_create;
  decltype(&cuStreamCreateWithPriority) stream_create_with_priority;
  decltype(&cuStreamDestroy) stream_destroy;
  decltype(&cuStreamQuery) stream_query;
  decltype(&cuStreamWriteValue64) stream_write_value64;
  decltype(&cuMemsetD8Async) memset_d8_async;
  decltype(&cuMemcpyHtoDAsync) memcpy_htod_async;
  decltype(&cuMemcpyDtoHAsync) memcpy_dtoh_async;
  decltype(&cuCtxGetStreamPriorityRange) ctx_get_stream_priority_range;
  decltype(&cuThreadExchangeStreamCaptureMode) thread_exchange_stream_capture_mode;

  // Null in drivers before 530.
  CUresult (*multicast_get_granularity)(std::size_t*, const multicast_properties*, multicast_granularity_flag);
  CUresult (*multicast_create)(CUmemGenericAllocationHandle*, const multicast_properties*);
  CUresult (*multicast_add_device)(CUmemGenericAllocationHandle, CUdevice);
  CUresult (*multicast_bind_mem)(CUmemGenericAllocationHandle object, std::size_t object_offset,
                                 CUmemGenericAllocationHandle memory, std::size_t memory_offset, std::size_t bytes,
                                 unsigned long long flags);
  CUresult (*multicast_unbind)(CUmemGenericAllocationHandle, CUdevice, std::size_t offset, std::size_t bytes);
};

/// The initialized driver. Throws `not_supported` with the reason when there is none that works.
[[nodiscard]] const driver_functions& driver();
/// What else there is, for errors.
inline constexpr const char* without_gpu =
    "link devcomm::simulator (from Python: DEVCOMM_BACKEND=simulator) to run without a GPU";

/// The first function for multicast that the driver lacks, or null.
[[nodiscard]] const char* missing_multicast_function();

/// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
[[nodiscard]] std::string error_text(CUresult code);

/// Throws `system_error` naming `call` and the driver's error, unless `code` is success.
void check(CUresult code, const char* call);

/// For destructors: prints what `check` would throw. Silent while the driver shuts down.
void report(CUresult code, const char* call) noexcept;

CUdevice handle_of(int device);
/// 0 also for what an older driver does not know.
int attribute(int device, CUdevice_attribute which);

// Newer than the oldest toolkit whose header this is compiled with.
inline constexpr auto attribute_fabric_supported = static_cast<CUdevice_attribute>(128);
inline constexpr auto attribute_multicast_supported = static_cast<CUdevice_attribute>(132);
inline constexpr auto handle_type_fabric = static_cast<CUmemAllocationHandleType>(8);

}  // namespace devcomm::host::cuda
