#include <devcomm/host/error.hpp>

#include "device/cuda/allocation.hpp"
#include "device/cuda/context.hpp"
#include "device/cuda/deferred_frees.hpp"
#include "device/cuda/memory.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::cuda {
namespace {

using detail::handle_kind;

/// How long `create_physical` waits for memory that is being freed.
constexpr std::chrono::milliseconds limit_of_frees(1000);

class reservation final : public detail::address_range {
 public:
  explicit reservation(std::size_t bytes) : bytes_(bytes) {
    check(driver().mem_address_reserve(&base_, bytes, 0, 0, 0), "cuMemAddressReserve");
  }

  ~reservation() override {
    free_when_idle(devices_, [mapped = std::move(mapped_), base = base_, bytes = bytes_] {
      for (const span& each : mapped) report(driver().mem_unmap(each.start, each.bytes), "cuMemUnmap");
      report(driver().mem_address_free(base, bytes), "cuMemAddressFree");
    });
  }
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;

  [[nodiscard]] char* base() const noexcept override { return reinterpret_cast<char*>(base_); }

  void map(std::size_t offset, detail::physical_memory& memory, std::span<const int> devices) override {
    const allocation& from = dynamic_cast<physical&>(memory).held();
    const CUresult code = map_for(offset, from.bytes(), from.get(), "cuMemMap", devices);
    if (code != CUDA_SUCCESS) {
      throw not_supported("cuMemSetAccess failed: " + error_text(code) +
                          "; a device of this process cannot reach a peer's memory: set DEVCOMM_LSA_SIZE to a "
                          "smaller team (1: none), or make all devices visible to all processes");
    }
  }

  void map(std::size_t offset, detail::multicast_object& object, std::size_t bytes,
           std::span<const int> devices) override {
    const allocation& from = dynamic_cast<multicast&>(object).held();
    check(map_for(offset, bytes, from.get(), "cuMemMap (multicast)", devices), "cuMemSetAccess (multicast)");
  }

 private:
  struct span {
    CUdeviceptr start;
    std::size_t bytes;
  };

  /// What the driver says to access by `devices`.
  [[nodiscard]] CUresult map_for(std::size_t offset, std::size_t bytes, CUmemGenericAllocationHandle handle,
                                 const char* call, std::span<const int> devices) {
    const span place{base_ + offset, bytes};
    mapped_.reserve(mapped_.size() + 1);
    check(driver().mem_map(place.start, place.bytes, 0, handle, 0), call);
    mapped_.push_back(place);
    for (const int device : devices) {
      if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) devices_.push_back(device);
    }
    std::vector<CUmemAccessDesc> access(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) {
      access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access[i].location.id = devices[i];
      access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return driver().mem_set_access(place.start, place.bytes, access.data(), access.size());
  }

  CUdeviceptr base_ = 0;
  std::size_t bytes_;
  std::vector<span> mapped_;
  std::vector<int> devices_;  // whose kernels may use it
};

}  // namespace

CUmemAllocationProp allocation_properties(int device, handle_kind kind) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  wanted.requestedHandleTypes = driver_type(kind);
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
  CUresult code = driver().mem_create(&handle, bytes, &wanted, 0);
  if (code == CUDA_ERROR_OUT_OF_MEMORY && frees_are_pending() && wait_for_frees(limit_of_frees)) {
    code = driver().mem_create(&handle, bytes, &wanted, 0);
  }
  if (code == CUDA_ERROR_OUT_OF_MEMORY) {
    throw system_error("device " + std::to_string(device) + " has no " + std::to_string(bytes) + " bytes left; " +
                       (frees_are_pending() ? "windows were destroyed while kernels run, and are freed once these "
                                              "are over: synchronize first"
                                            : "ask for less, or free memory there"));
  }
  check(code, "cuMemCreate");
  return std::make_unique<physical>(device, handle, bytes, kind);
}

std::unique_ptr<detail::physical_memory> import_descriptor(int device, int descriptor, std::size_t bytes) {
  const on_device scope(device);
  return std::make_unique<physical>(device, allocation::import_descriptor(descriptor), bytes,
                                    handle_kind::file_descriptor);
}

std::unique_ptr<detail::physical_memory> import_bytes(int device, handle_kind kind, std::span<const std::byte> handle,
                                                      std::size_t bytes) {
  const on_device scope(device);
  return std::make_unique<physical>(device, allocation::import_bytes(kind, handle), bytes, kind);
}

std::unique_ptr<detail::address_range> reserve(std::size_t bytes) { return std::make_unique<reservation>(bytes); }

}  // namespace devcomm::host::cuda
