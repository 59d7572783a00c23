/// Memory for PyTorch's pools (`torch.cuda.MemPool`): other processes can map it, so that an array in it becomes a
/// window without a copy. PyTorch calls by these names.
#include <devcomm/host/error.hpp>

#include "device/cuda/context.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/memory.hpp"

#include <cstddef>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

namespace {

using namespace devcomm::host;  // NOLINT(google-build-using-namespace): this file is about its CUDA side
using cuda::check;
using cuda::driver;

struct allocation {
  CUmemGenericAllocationHandle memory;
  std::size_t bytes;
};
std::mutex guard;
std::map<CUdeviceptr, allocation> allocations;

/// Also over a fabric, where this process may.
CUmemGenericAllocationHandle create(CUmemAllocationProp& wanted, std::size_t bytes) {
  CUmemGenericAllocationHandle memory = 0;
  if (cuda::attribute(wanted.location.id, cuda::attribute_fabric_supported) != 0) {
    const CUmemAllocationHandleType alone = wanted.requestedHandleTypes;
    wanted.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(alone | cuda::handle_type_fabric);
    if (driver().mem_create(&memory, bytes, &wanted, 0) == CUDA_SUCCESS) return memory;
    wanted.requestedHandleTypes = alone;
  }
  check(driver().mem_create(&memory, bytes, &wanted, 0), "cuMemCreate");
  return memory;
}

/// The device, and those that reach it: ranks of one process use each other's addresses.
std::vector<CUmemAccessDesc> users_of(int device) {
  int count = 0;
  check(driver().device_get_count(&count), "cuDeviceGetCount");
  std::vector<CUmemAccessDesc> users;
  for (int each = 0; each < count; ++each) {
    int reaches = each == device ? 1 : 0;
    if (each != device) {
      check(driver().device_can_access_peer(&reaches, cuda::handle_of(each), cuda::handle_of(device)),
            "cuDeviceCanAccessPeer");
    }
    if (reaches != 0) users.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, each}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return users;
}

void* allocate(std::size_t bytes, int device) {
  const cuda::on_device current(device);
  CUmemAllocationProp wanted = cuda::allocation_properties(device, detail::handle_kind::file_descriptor);
  std::size_t granularity = 0;
  check(driver().mem_get_allocation_granularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity");
  const std::size_t rounded = (bytes + granularity - 1) / granularity * granularity;
  const std::vector<CUmemAccessDesc> users = users_of(device);
  const CUmemGenericAllocationHandle memory = create(wanted, rounded);
  CUdeviceptr place = 0;
  bool mapped = false;
  try {
    check(driver().mem_address_reserve(&place, rounded, granularity, 0, 0), "cuMemAddressReserve");
    check(driver().mem_map(place, rounded, 0, memory, 0), "cuMemMap");
    mapped = true;
    check(driver().mem_set_access(place, rounded, users.data(), users.size()), "cuMemSetAccess");
  } catch (...) {
    if (mapped) cuda::report(driver().mem_unmap(place, rounded), "cuMemUnmap");
    if (place != 0) cuda::report(driver().mem_address_free(place, rounded), "cuMemAddressFree");
    cuda::report(driver().mem_release(memory), "cuMemRelease");
    throw;
  }
  const std::lock_guard lock(guard);
  allocations[place] = {memory, rounded};
  return reinterpret_cast<void*>(place);
}

}  // namespace

/// Null, after a line of why, where there is no more: PyTorch then frees what it keeps, and tries again.
extern "C" [[gnu::visibility("default")]] void* devcomm_pool_allocate(std::size_t bytes, int device, CUstream) {
  try {
    return allocate(bytes, device);
  } catch (const error& problem) {
    std::fprintf(stderr, "devcomm: a pool's allocation of %zu bytes on device %d: %s\n", bytes, device, problem.what());
    return nullptr;
  }
}

/// Waits for the device, as cudaFree does: kernels may still use the memory.
extern "C" [[gnu::visibility("default")]] void devcomm_pool_free(void* pointer, std::size_t, int device, CUstream) {
  const auto place = reinterpret_cast<CUdeviceptr>(pointer);
  allocation freed{};
  {
    const std::lock_guard lock(guard);
    const auto found = allocations.find(place);
    if (found == allocations.end()) return;
    freed = found->second;
    allocations.erase(found);
  }
  try {
    const cuda::on_device current(device);
    cuda::report(driver().ctx_synchronize(), "cuCtxSynchronize");
    cuda::report(driver().mem_unmap(place, freed.bytes), "cuMemUnmap");
    cuda::report(driver().mem_address_free(place, freed.bytes), "cuMemAddressFree");
    cuda::report(driver().mem_release(freed.memory), "cuMemRelease");
  } catch (const error& problem) {
    std::fprintf(stderr, "devcomm: a pool's memory on device %d is not freed: %s\n", device, problem.what());
  }
}
