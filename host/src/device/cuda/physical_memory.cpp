#include <devcomm/host/error.hpp>

#include "device/cuda/context.hpp"
#include "device/cuda/memory.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace devcomm::host::cuda {
namespace {

using detail::handle_kind;

constexpr std::size_t fabric_bytes = 64;

class physical final : public detail::physical_memory {
 public:
  physical(int device, CUmemGenericAllocationHandle handle, std::size_t bytes)
      : device_(device), handle_(handle), bytes_(bytes) {}
  ~physical() override { report(driver().mem_release(handle_), "cuMemRelease"); }
  physical(const physical&) = delete;
  physical& operator=(const physical&) = delete;

  [[nodiscard]] CUmemGenericAllocationHandle get() const noexcept { return handle_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  [[nodiscard]] int export_descriptor() override {
    const on_device scope(device_);
    int descriptor = -1;
    check(driver().mem_export(&descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemExportToShareableHandle (file descriptor)");
    return descriptor;
  }

  [[nodiscard]] std::vector<std::byte> export_fabric() override {
    const on_device scope(device_);
    std::vector<std::byte> handle(fabric_bytes);
    check(driver().mem_export(handle.data(), handle_, handle_type_fabric, 0), "cuMemExportToShareableHandle (fabric)");
    return handle;
  }

 private:
  int device_;
  CUmemGenericAllocationHandle handle_;
  std::size_t bytes_;
};

class reservation final : public detail::address_range {
 public:
  explicit reservation(std::size_t bytes) : bytes_(bytes) {
    check(driver().mem_address_reserve(&base_, bytes, 0, 0, 0), "cuMemAddressReserve");
  }

  ~reservation() override {
    for (const span& each : mapped_) report(driver().mem_unmap(each.start, each.bytes), "cuMemUnmap");
    report(driver().mem_address_free(base_, bytes_), "cuMemAddressFree");
  }
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;

  [[nodiscard]] char* base() const noexcept override { return reinterpret_cast<char*>(base_); }

  void map(std::size_t offset, detail::physical_memory& memory, std::span<const int> devices) override {
    const auto& from = dynamic_cast<physical&>(memory);
    const span place{base_ + offset, from.bytes()};
    mapped_.reserve(mapped_.size() + 1);
    check(driver().mem_map(place.start, place.bytes, 0, from.get(), 0), "cuMemMap");
    mapped_.push_back(place);
    std::vector<CUmemAccessDesc> access(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) {
      access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access[i].location.id = devices[i];
      access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    const CUresult code = driver().mem_set_access(place.start, place.bytes, access.data(), access.size());
    if (code != CUDA_SUCCESS) {
      throw not_supported("cuMemSetAccess failed: " + error_text(code) +
                          "; a device of this process cannot reach a peer's memory: set DEVCOMM_LSA_SIZE to a "
                          "smaller team (1: none), or make all devices visible to all processes");
    }
  }

 private:
  struct span {
    CUdeviceptr start;
    std::size_t bytes;
  };

  CUdeviceptr base_ = 0;
  std::size_t bytes_;
  std::vector<span> mapped_;
};

}  // namespace

CUmemAllocationProp allocation_properties(int device, handle_kind kind) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  switch (kind) {
    case handle_kind::none: wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE; break;
    case handle_kind::file_descriptor: wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; break;
    case handle_kind::fabric: wanted.requestedHandleTypes = handle_type_fabric; break;
  }
  if (attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0) {
    wanted.allocFlags.gpuDirectRDMACapable = 1;
  }
  return wanted;
}

std::unique_ptr<detail::physical_memory> create_physical(int device, std::size_t bytes, handle_kind kind) {
  if (attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
    throw not_supported("device " + std::to_string(device) +
                        " has no virtual memory management, which symmetric memory needs; use register_memory on "
                        "cudaMalloc memory, or a newer GPU");
  }
  const on_device scope(device);
  const CUmemAllocationProp wanted = allocation_properties(device, kind);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code = driver().mem_create(&handle, bytes, &wanted, 0);
  if (code == CUDA_ERROR_OUT_OF_MEMORY) {
    throw system_error("device " + std::to_string(device) + " has no " + std::to_string(bytes) +
                       " bytes left; ask for less, or free memory there");
  }
  check(code, "cuMemCreate");
  return std::make_unique<physical>(device, handle, bytes);
}

std::unique_ptr<detail::physical_memory> import_descriptor(int device, int descriptor, std::size_t bytes) {
  const on_device scope(device);
  CUmemGenericAllocationHandle handle = 0;
  void* const raw = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
  check(driver().mem_import(&handle, raw, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle (file descriptor)");
  return std::make_unique<physical>(device, handle, bytes);
}

std::unique_ptr<detail::physical_memory> import_fabric(int device, std::span<const std::byte> handle,
                                                       std::size_t bytes) {
  if (handle.size() != fabric_bytes) {
    throw system_error("a fabric handle of " + std::to_string(handle.size()) +
                       " bytes is not CUDA's; link all ranks "
                       "with the same library");
  }
  const on_device scope(device);
  std::byte raw[fabric_bytes];
  std::memcpy(raw, handle.data(), fabric_bytes);
  CUmemGenericAllocationHandle imported = 0;
  check(driver().mem_import(&imported, raw, handle_type_fabric), "cuMemImportFromShareableHandle (fabric)");
  return std::make_unique<physical>(device, imported, bytes);
}

std::unique_ptr<detail::address_range> reserve(std::size_t bytes) { return std::make_unique<reservation>(bytes); }

}  // namespace devcomm::host::cuda
