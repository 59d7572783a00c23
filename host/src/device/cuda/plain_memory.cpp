#include <devcomm/host/error.hpp>

#include "device/cuda/allocation.hpp"
#include "device/cuda/context.hpp"
#include "device/cuda/deferred_frees.hpp"
#include "device/cuda/memory.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace devcomm::host::cuda {
namespace {

class pinned final : public detail::host_memory {
 public:
  pinned(int device, std::size_t bytes) : device_(device) {
    const on_device scope(device);
    check(driver().mem_host_alloc(&data_, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
          "cuMemHostAlloc");
    std::memset(data_, 0, bytes);
  }
  ~pinned() override {
    free_when_idle({device_}, [device = device_, data = data_] {
      const on_device scope(device, std::nothrow);
      report(driver().mem_free_host(data), "cuMemFreeHost");
    });
  }
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;

  /// With unified addressing the device's pointer is the same.
  [[nodiscard]] void* data() const noexcept override { return data_; }

 private:
  int device_;
  void* data_ = nullptr;
};

class device_memory final : public detail::opened_memory {
 public:
  device_memory(int device, std::size_t bytes) : device_(device) {
    const on_device scope(device);
    check(driver().mem_alloc(&data_, bytes), "cuMemAlloc");
  }
  ~device_memory() override {
    free_when_idle({device_}, [device = device_, data = data_] {
      const on_device scope(device, std::nothrow);
      report(driver().mem_free(data), "cuMemFree");
    });
  }
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;

  [[nodiscard]] char* data() const noexcept override { return reinterpret_cast<char*>(data_); }

 private:
  int device_;
  CUdeviceptr data_ = 0;
};

class ipc_memory final : public detail::opened_memory {
 public:
  ipc_memory(int device, const CUipcMemHandle& handle) : device_(device) {
    const on_device scope(device);
    check(driver().ipc_open_mem_handle(&data_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
  }
  ~ipc_memory() override {
    free_when_idle({device_}, [device = device_, data = data_] {
      const on_device scope(device, std::nothrow);
      report(driver().ipc_close_mem_handle(data), "cuIpcCloseMemHandle");
    });
  }
  ipc_memory(const ipc_memory&) = delete;
  ipc_memory& operator=(const ipc_memory&) = delete;

  [[nodiscard]] char* data() const noexcept override { return reinterpret_cast<char*>(data_); }

 private:
  int device_;
  CUdeviceptr data_ = 0;
};

}  // namespace

std::unique_ptr<detail::host_memory> allocate_host(int device, std::size_t bytes) {
  return std::make_unique<pinned>(device, bytes);
}

std::unique_ptr<detail::opened_memory> allocate_device(int device, std::size_t bytes) {
  return std::make_unique<device_memory>(device, bytes);
}

namespace {

struct span_of_memory {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
};

/// The handle of the physical memory that is mapped at an address; 0 where there is none. The caller releases it.
CUmemGenericAllocationHandle mapped_at(CUdeviceptr address) {
  CUmemGenericAllocationHandle handle = 0;
  const bool found = driver().mem_retain_allocation_handle(&handle, reinterpret_cast<void*>(address)) == CUDA_SUCCESS;
  return found ? handle : 0;
}

/// Memory of an asynchronous pool becomes accessible to a device neither by `cuCtxEnablePeerAccess` nor by a mapping.
void require_peers_access(void* pointer) {
  constexpr const char* instead = "; allocate with cudaMalloc, or use communicator::allocate";
  CUmemoryPool pool = nullptr;
  check(driver().pointer_get_attribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                       reinterpret_cast<CUdeviceptr>(pointer)),
        "cuPointerGetAttribute");
  if (pool != nullptr) {
    throw not_supported(std::string("the pointer is not cudaMalloc memory, which peers need: it comes from an ") +
                        "asynchronous pool (cudaMallocAsync)" + instead);
  }
}

span_of_memory allocation_of(CUdeviceptr address) {
  span_of_memory found;
  check(driver().mem_get_address_range(&found.base, &found.bytes, address), "cuMemGetAddressRange");
  return found;
}

/// Bytes from `address` to the end of its allocation, or of the mappings that follow each other there; no more than are
/// `needed` for sure.
std::size_t bytes_from(CUdeviceptr address, std::size_t needed) {
  std::size_t bytes = 0;
  for (bool mapped = true; mapped && bytes < needed;) {
    const span_of_memory here = allocation_of(address + bytes);
    bytes = here.base + here.bytes - address;
    for (const CUdeviceptr at : {address, address + bytes}) {
      const CUmemGenericAllocationHandle handle = mapped_at(at);
      mapped = mapped && handle != 0;
      if (handle != 0) report(driver().mem_release(handle), "cuMemRelease");
    }
  }
  return bytes;
}

}  // namespace

void check_pointer(int device, void* pointer, std::size_t bytes, bool for_peers) {
  const on_device scope(device);
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  CUmemorytype type{};
  const CUresult known = driver().pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (known == CUDA_ERROR_INVALID_VALUE) {
    throw invalid_argument("the pointer is not CUDA memory; give memory from cudaMalloc");
  }
  check(known, "cuPointerGetAttribute");
  if (type != CU_MEMORYTYPE_DEVICE) throw invalid_argument("the pointer is host memory; give memory from cudaMalloc");
  int owner = -1;
  check(driver().pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), "cuPointerGetAttribute");
  if (owner != device) {
    throw invalid_argument("the memory lies on device " + std::to_string(owner) + " and this rank uses device " +
                           std::to_string(device) + "; allocate it while the rank's device is current");
  }
  if (for_peers) require_peers_access(pointer);
  const std::size_t left = bytes_from(address, bytes);
  if (bytes > left) {
    throw invalid_argument(std::to_string(bytes) + " bytes run past the end of the allocation, which has " +
                           std::to_string(left) + " left; register less or allocate more");
  }
}

detail::sharing_port::exported_pointer export_pointer(int device, void* pointer) {
  const on_device scope(device);
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  int sharable = 0;
  check(driver().pointer_get_attribute(&sharable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address),
        "cuPointerGetAttribute");
  if (sharable == 0) {
    throw not_supported(
        "CUDA IPC cannot share this memory with other processes; allocate with cudaMalloc, or use "
        "communicator::allocate");
  }
  const CUdeviceptr base = allocation_of(address).base;
  CUipcMemHandle handle{};
  check(driver().ipc_get_mem_handle(&handle, base), "cuIpcGetMemHandle");
  const auto raw = std::as_bytes(std::span(&handle, 1));
  return {{raw.begin(), raw.end()}, address - base};
}

std::uint64_t allocation_id(int device, const void* pointer) {
  const on_device scope(device);
  unsigned long long id = 0;
  const CUresult known =
      driver().pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, reinterpret_cast<CUdeviceptr>(pointer));
  if (known == CUDA_ERROR_INVALID_VALUE) return 0;  // memory that CUDA does not know
  check(known, "cuPointerGetAttribute");
  return id;
}

detail::sharing_port::mapped_memory retain_mapped(int device, void* pointer, std::size_t bytes,
                                                  detail::handle_kind kind) {
  const on_device scope(device);
  const auto first = reinterpret_cast<CUdeviceptr>(pointer);
  detail::sharing_port::mapped_memory found;
  for (CUdeviceptr at = first; at < first + bytes;) {
    const CUmemGenericAllocationHandle handle = mapped_at(at);
    if (handle == 0) return found;  // as `check_pointer` allows it, memory of cudaMalloc
    const span_of_memory here = allocation_of(at);
    found.pieces.push_back(std::make_shared<physical>(device, handle, here.bytes, kind));
    found.bytes.push_back(here.bytes);
    if (at == first) found.offset = at - here.base;
    at = here.base + here.bytes;
    CUmemAllocationProp made{};
    check(driver().mem_get_allocation_properties(&made, handle), "cuMemGetAllocationPropertiesFromHandle");
    if (made.location.type != CU_MEM_LOCATION_TYPE_DEVICE || made.location.id != device) {
      throw invalid_argument("a part of the memory lies on device " + std::to_string(made.location.id) +
                             " and this rank uses device " + std::to_string(device) + "; register them apart");
    }
    if ((made.requestedHandleTypes & driver_type(kind)) != driver_type(kind)) {
      throw not_supported(
          std::string(
              "the memory comes from the virtual memory interface, as PyTorch's expandable segments do, and was "
              "not made to be shared by ") +
          std::string(detail::traits_of(kind)->name) +
          ", which the ranks in other processes need; make it so (requestedHandleTypes), allocate with cudaMalloc "
          "(leave expandable_segments off), or use communicator::allocate");
    }
  }
  return found;
}

std::unique_ptr<detail::opened_memory> open_pointer(int device, std::span<const std::byte> handle) {
  CUipcMemHandle raw{};
  if (handle.size() != sizeof raw) {
    throw system_error("an IPC handle of " + std::to_string(handle.size()) +
                       " bytes is not CUDA's; link all ranks "
                       "with the same library");
  }
  std::memcpy(&raw, handle.data(), sizeof raw);
  return std::make_unique<ipc_memory>(device, raw);
}

}  // namespace devcomm::host::cuda
