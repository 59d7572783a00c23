#include "state.hpp"

#include <algorithm>

namespace stand_in {
namespace {

CUresult get_granularity(std::size_t* bytes, const CUmulticastObjectProp* wanted, CUmulticastGranularity_flags which) {
  const call here("cuMulticastGetGranularity");
  if (here.fails()) return call::failure;
  if (wanted->numDevices == 0 || wanted->size == 0 || wanted->flags != 0) {
    return complain("cuMulticastGetGranularity for no devices or no bytes", CUDA_ERROR_INVALID_VALUE);
  }
  *bytes = which == CU_MULTICAST_GRANULARITY_RECOMMENDED ? recommended_multicast_granularity : multicast_granularity;
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* wanted) {
  const call here("cuMulticastCreate");
  if (here.fails()) return call::failure;
  process_state& s = state();
  constexpr unsigned long long known_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | 8;
  if (wanted->numDevices == 0 || wanted->flags != 0 || (wanted->handleTypes & ~known_types) != 0) {
    return complain("cuMulticastCreate with properties that make no sense", CUDA_ERROR_INVALID_VALUE);
  }
  if (wanted->size == 0 || wanted->size % multicast_granularity != 0) {
    return complain("cuMulticastCreate of " + std::to_string(wanted->size) + " bytes, no multiple of the granularity",
                    CUDA_ERROR_INVALID_VALUE);
  }
  object made;
  made.file = create_file(shared_header::kind::multicast, 0);
  if (made.file.header == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made.file.header->bytes = wanted->size;
  made.file.header->members = wanted->numDevices;
  made.file.header->handle_types = static_cast<std::uint32_t>(wanted->handleTypes);
  *handle = s.next_handle++;
  s.objects.emplace(*handle, std::move(made));
  return CUDA_SUCCESS;
}

/// The object behind `handle`, or null.
object* multicast_object(CUmemGenericAllocationHandle handle) {
  object* const what = state().find(handle);
  return what != nullptr && what->is_multicast() ? what : nullptr;
}

CUresult add_device(CUmemGenericAllocationHandle handle, CUdevice device) {
  const call here("cuMulticastAddDevice");
  if (here.fails()) return call::failure;
  process_state& s = state();
  object* const what = multicast_object(handle);
  if (what == nullptr) {
    return complain("cuMulticastAddDevice to what is no multicast object", CUDA_ERROR_INVALID_VALUE);
  }
  if (!s.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  shared_header& header = *what->file.header;
  const int gpu = s.gpu_of(device);
  const std::uint64_t bit = std::uint64_t{1} << gpu;
  if (gpu >= s.chosen.with_multicast) {
    return complain("cuMulticastAddDevice of a device that has no multicast", CUDA_ERROR_NOT_SUPPORTED);
  }
  if ((header.added & bit) != 0) {
    return complain("cuMulticastAddDevice of a device that was added before", CUDA_ERROR_INVALID_VALUE);
  }
  if (static_cast<unsigned>(__builtin_popcountll(header.added)) >= header.members) {
    return complain("cuMulticastAddDevice of more devices than the object is for", CUDA_ERROR_INVALID_VALUE);
  }
  header.added |= bit;
  return CUDA_SUCCESS;
}

CUresult bind_mem(CUmemGenericAllocationHandle handle, std::size_t offset, CUmemGenericAllocationHandle memory,
                  std::size_t memory_offset, std::size_t bytes, unsigned long long flags) {
  const call here("cuMulticastBindMem");
  if (here.fails()) return call::failure;
  object* const what = multicast_object(handle);
  object* const bound = state().find(memory);
  if (what == nullptr || bound == nullptr || bound->is_multicast() || flags != 0) {
    return complain("cuMulticastBindMem of what is no memory, or to what is no multicast object",
                    CUDA_ERROR_INVALID_VALUE);
  }
  shared_header& header = *what->file.header;
  const shared_header& from = *bound->file.header;
  if (static_cast<unsigned>(__builtin_popcountll(header.added)) != header.members) {
    return complain("cuMulticastBindMem before all devices were added: the driver would block");
  }
  if (bytes == 0 || (offset | memory_offset | bytes) % multicast_granularity != 0) {
    return complain("cuMulticastBindMem of " + std::to_string(bytes) + " bytes from " + std::to_string(memory_offset) +
                        " at " + std::to_string(offset) + ": no multiples of the granularity",
                    CUDA_ERROR_INVALID_VALUE);
  }
  if (offset + bytes > header.bytes || memory_offset + bytes > from.bytes) {
    return complain("cuMulticastBindMem past the end", CUDA_ERROR_INVALID_VALUE);
  }
  if ((header.handle_types != 0 || what->imported) && from.handle_types == 0) {
    return complain("cuMulticastBindMem of memory that cannot be shared to an object that can be",
                    CUDA_ERROR_INVALID_VALUE);
  }
  const std::uint64_t bit = std::uint64_t{1} << from.device;
  if ((header.added & bit) == 0) {
    return complain("cuMulticastBindMem of memory of a device that was not added", CUDA_ERROR_INVALID_DEVICE);
  }
  if ((header.bound & bit) != 0) {
    return complain("cuMulticastBindMem of a second memory of one device", CUDA_ERROR_INVALID_VALUE);
  }
  what->bindings.push_back({static_cast<int>(from.device), offset, bytes, memory});
  ++bound->bound;
  header.bound |= bit;
  return CUDA_SUCCESS;
}

CUresult unbind(CUmemGenericAllocationHandle handle, CUdevice device, std::size_t offset, std::size_t bytes) {
  const call here("cuMulticastUnbind");
  process_state& s = state();
  object* const what = multicast_object(handle);
  if (what == nullptr || !s.is_device(device)) {
    return complain("cuMulticastUnbind from what is no multicast object", CUDA_ERROR_INVALID_VALUE);
  }
  const int gpu = s.gpu_of(device);
  const auto found = std::find_if(what->bindings.begin(), what->bindings.end(), [&](const object::binding& each) {
    return each.device == gpu && each.offset == offset && each.bytes == bytes;
  });
  if (found == what->bindings.end()) {
    return complain("cuMulticastUnbind of what this process has not bound so", CUDA_ERROR_INVALID_VALUE);
  }
  if (object* const memory = s.find(found->memory)) --memory->bound;
  what->file.header->bound &= ~(std::uint64_t{1} << gpu);
  what->bindings.erase(found);
  return here.result(CUDA_SUCCESS);
}

template <class Function>
entry named(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

}  // namespace

std::vector<entry> multicast_entries() {
  return {named("cuMulticastGetGranularity", get_granularity), named("cuMulticastCreate", create),
          named("cuMulticastAddDevice", add_device), named("cuMulticastBindMem", bind_mem),
          named("cuMulticastUnbind", unbind)};
}

}  // namespace stand_in
