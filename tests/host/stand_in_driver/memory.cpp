#include "state.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

namespace stand_in {
namespace {

constexpr unsigned long long descriptor_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr unsigned long long fabric_type = 8;

std::string hex(CUdeviceptr value) {
  char text[24];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

CUresult get_allocation_granularity(std::size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  const call here("cuMemGetAllocationGranularity");
  if (here.fails()) return call::failure;
  *bytes = memory_granularity;
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* wanted,
                unsigned long long flags) {
  const call here("cuMemCreate");
  if (here.fails()) return call::failure;
  process_state& s = state();
  if (bytes == 0 || bytes % memory_granularity != 0 || flags != 0) {
    return complain("cuMemCreate of " + std::to_string(bytes) + " bytes, no multiple of the granularity",
                    CUDA_ERROR_INVALID_VALUE);
  }
  if (!s.is_device(wanted->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if ((wanted->requestedHandleTypes & fabric_type) != 0 && !s.chosen.fabric) return CUDA_ERROR_NOT_SUPPORTED;
  std::size_t taken = bytes;
  const auto gpu = static_cast<std::uint32_t>(s.gpu_of(wanted->location.id));
  for (const auto& [other, what] : s.objects) {
    const shared_header& header = *what.file.header;
    if (!what.imported && !what.is_multicast() && header.device == gpu) taken += header.bytes;
  }
  if (taken > s.chosen.memory) return CUDA_ERROR_OUT_OF_MEMORY;
  object made;
  made.file = create_file(shared_header::kind::memory, bytes);
  if (made.file.header == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made.file.header->handle_types = static_cast<std::uint32_t>(wanted->requestedHandleTypes);
  made.file.header->device = gpu;
  *handle = s.next_handle++;
  s.objects.emplace(*handle, std::move(made));
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  const call here("cuMemRelease");
  process_state& s = state();
  object* const what = s.find(handle);
  if (what == nullptr) return complain("cuMemRelease of what is no handle", CUDA_ERROR_INVALID_VALUE);
  if (--what->references > 0) return here.result(CUDA_SUCCESS);
  CUresult code = CUDA_SUCCESS;
  const std::string name = what->is_multicast() ? "a multicast object" : "memory";
  if (what->mapped > 0) code = complain("cuMemRelease of " + name + " that is mapped");
  if (what->bound > 0) code = complain("cuMemRelease of memory that is bound to a multicast object");
  if (!what->bindings.empty()) code = complain("cuMemRelease of a multicast object with memory bound to it");
  close_file(what->file);
  s.objects.erase(handle);
  return here.result(code);
}

CUresult retain_allocation_handle(CUmemGenericAllocationHandle* handle, void* address) {
  const call here("cuMemRetainAllocationHandle");
  if (here.fails()) return call::failure;
  process_state& s = state();
  const auto found = s.mapping_of(reinterpret_cast<CUdeviceptr>(address));
  if (found == s.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  ++s.find(found->second.handle)->references;
  *handle = found->second.handle;
  return CUDA_SUCCESS;
}

CUresult get_allocation_properties(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  const call here("cuMemGetAllocationPropertiesFromHandle");
  if (here.fails()) return call::failure;
  process_state& s = state();
  const object* const what = s.find(handle);
  if (what == nullptr) return complain("properties of what is no handle", CUDA_ERROR_INVALID_VALUE);
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const auto gpu = static_cast<int>(what->file.header->device);
  while (s.is_device(properties->location.id) && s.gpu_of(properties->location.id) != gpu) ++properties->location.id;
  properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(what->file.header->handle_types);
  return CUDA_SUCCESS;
}

CUresult export_to_shareable(void* to, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                             unsigned long long) {
  const call here("cuMemExportToShareableHandle");
  if (here.fails()) return call::failure;
  const object* const what = state().find(handle);
  if (what == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wanted = static_cast<unsigned long long>(type);
  if ((what->file.header->handle_types & wanted) == 0) {
    return complain("cuMemExportToShareableHandle as a type that was not asked for at creation",
                    CUDA_ERROR_INVALID_VALUE);
  }
  if (wanted == descriptor_type) {
    const int copy = ::fcntl(what->file.descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    std::memcpy(to, &copy, sizeof copy);
    return CUDA_SUCCESS;
  }
  const shared_name name = what->file.name();
  std::memset(to, 0, 64);
  std::memcpy(to, &name, sizeof name);
  return CUDA_SUCCESS;
}

CUresult import_from_shareable(CUmemGenericAllocationHandle* handle, void* from, CUmemAllocationHandleType type) {
  const call here("cuMemImportFromShareableHandle");
  if (here.fails()) return call::failure;
  process_state& s = state();
  object made;
  made.imported = true;
  if (static_cast<unsigned long long>(type) == descriptor_type) {
    const int copy = ::fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(from)), F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return CUDA_ERROR_INVALID_VALUE;
    made.file = open_file(copy);
  } else {
    shared_name name{};
    std::memcpy(&name, from, sizeof name);
    made.file = open_file(name);
  }
  if (made.file.header == nullptr) {
    return complain("cuMemImportFromShareableHandle of what is no handle of memory", CUDA_ERROR_INVALID_VALUE);
  }
  *handle = s.next_handle++;
  s.objects.emplace(*handle, std::move(made));
  return CUDA_SUCCESS;
}

CUresult address_reserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  const call here("cuMemAddressReserve");
  if (here.fails()) return call::failure;
  if (bytes == 0 || bytes % memory_granularity != 0) {
    return complain("cuMemAddressReserve of " + std::to_string(bytes) + " bytes, no multiple of the granularity",
                    CUDA_ERROR_INVALID_VALUE);
  }
  reservation made{bytes, nullptr, bytes + 2 * multicast_granularity};
  made.raw = ::mmap(nullptr, made.raw_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made.raw == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  // A multiple of memory's granularity, and never one of a multicast object's.
  const auto raw = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(made.raw));
  *address = (raw + multicast_granularity - 1) / multicast_granularity * multicast_granularity + memory_granularity;
  state().reservations.emplace(*address, made);
  return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr address, std::size_t bytes) {
  const call here("cuMemAddressFree");
  process_state& s = state();
  const auto found = s.reservations.find(address);
  if (found == s.reservations.end() || found->second.bytes != bytes) {
    return complain("cuMemAddressFree of what is no reservation", CUDA_ERROR_INVALID_VALUE);
  }
  CUresult code = CUDA_SUCCESS;
  const auto inside = s.mappings.lower_bound(address);
  if (inside != s.mappings.end() && inside->first < address + bytes) {
    code = complain("cuMemAddressFree of a reservation in which memory is mapped");
  }
  ::munmap(found->second.raw, found->second.raw_bytes);
  s.reservations.erase(found);
  return here.result(code);
}

CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long) {
  const call here("cuMemMap");
  if (here.fails()) return call::failure;
  process_state& s = state();
  object* const what = s.find(handle);
  if (what == nullptr) return complain("cuMemMap of what is no handle", CUDA_ERROR_INVALID_VALUE);
  const shared_header& header = *what->file.header;
  const std::size_t granularity = what->is_multicast() ? multicast_granularity : memory_granularity;
  if (bytes == 0 || (address | bytes | offset) % granularity != 0) {
    return complain("cuMemMap at " + hex(address) + ", " + std::to_string(bytes) + " bytes from " +
                        std::to_string(offset) + ": no multiples of the granularity",
                    CUDA_ERROR_INVALID_VALUE);
  }
  if (offset + bytes > header.bytes) return complain("cuMemMap past the end", CUDA_ERROR_INVALID_VALUE);
  auto in = s.reservations.upper_bound(address);
  if (in == s.reservations.begin() || (--in)->first + in->second.bytes < address + bytes) {
    return complain("cuMemMap outside of a reservation", CUDA_ERROR_INVALID_VALUE);
  }
  const auto next = s.mappings.lower_bound(address);
  if (s.mapping_of(address) != s.mappings.end() || (next != s.mappings.end() && next->first < address + bytes)) {
    return complain("cuMemMap where something is mapped", CUDA_ERROR_INVALID_VALUE);
  }
  if (what->is_multicast() && static_cast<unsigned>(__builtin_popcountll(header.added)) != header.members) {
    return complain("cuMemMap of a multicast object before all devices were added: the driver would block");
  }
  s.mappings[address] = {bytes, handle};
  ++what->mapped;
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr address, std::size_t bytes) {
  const call here("cuMemUnmap");
  process_state& s = state();
  const auto found = s.mappings.find(address);
  if (found == s.mappings.end() || found->second.bytes != bytes) {
    return complain("cuMemUnmap of what is not mapped so", CUDA_ERROR_INVALID_VALUE);
  }
  CUresult code = CUDA_SUCCESS;
  if (s.busy) code = complain("cuMemUnmap while a kernel runs, which may use it");
  if (object* const what = s.find(found->second.handle)) --what->mapped;
  ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
  s.mappings.erase(found);
  return here.result(code);
}

CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
  const call here("cuMemSetAccess");
  if (here.fails()) return call::failure;
  process_state& s = state();
  const auto found = s.mappings.find(address);
  if (found == s.mappings.end() || found->second.bytes != bytes) {
    return complain("cuMemSetAccess of what is not mapped so", CUDA_ERROR_INVALID_VALUE);
  }
  const object& what = *s.find(found->second.handle);
  const shared_header& header = *what.file.header;
  for (std::size_t i = 0; i < count; ++i) {
    const int device = access[i].location.id;
    if (!s.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    const auto gpu = static_cast<std::uint32_t>(s.gpu_of(device));
    if (what.is_multicast() ? (header.added >> gpu & 1) == 0 : gpu != header.device && !s.chosen.peers) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
  }
  if (what.is_multicast()) {
    if (header.bound == header.added) return CUDA_SUCCESS;
    return complain("cuMemSetAccess to a multicast object to which not every device has bound memory");
  }
  void* const at = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          what.file.descriptor, static_cast<off_t>(header_bytes));
  return at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

template <class Function>
entry named(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

}  // namespace

std::vector<entry> memory_entries() {
  return {named("cuMemGetAllocationGranularity", get_allocation_granularity),
          named("cuMemCreate", create),
          named("cuMemRelease", release),
          named("cuMemRetainAllocationHandle", retain_allocation_handle),
          named("cuMemGetAllocationPropertiesFromHandle", get_allocation_properties),
          named("cuMemExportToShareableHandle", export_to_shareable),
          named("cuMemImportFromShareableHandle", import_from_shareable),
          named("cuMemAddressReserve", address_reserve),
          named("cuMemAddressFree", address_free),
          named("cuMemMap", map),
          named("cuMemUnmap", unmap),
          named("cuMemSetAccess", set_access)};
}

}  // namespace stand_in
