#include "state.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace stand_in {
namespace {

/// Maps the bytes behind the header of `file`; 0 where that fails.
CUdeviceptr map_all(const shared_file& file) {
  void* const at = ::mmap(nullptr, file.header->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor,
                          static_cast<off_t>(header_bytes));
  return at == MAP_FAILED ? 0 : static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(at));
}

/// The allocation that contains `address`, or the end.
std::map<CUdeviceptr, plain_allocation>::iterator plain_of(CUdeviceptr address) {
  auto& all = state().plain;
  auto next = all.upper_bound(address);
  if (next == all.begin()) return all.end();
  --next;
  return address < next->first + next->second.bytes ? next : all.end();
}

CUresult give_back(CUdeviceptr address, bool opened, const char* function) {
  const auto found = state().plain.find(address);
  if (found == state().plain.end() || found->second.opened != opened) {
    return complain(std::string(function) + " of what is not such memory", CUDA_ERROR_INVALID_VALUE);
  }
  ::munmap(reinterpret_cast<void*>(address), found->second.bytes);
  close_file(found->second.file);
  state().plain.erase(found);
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* address, std::size_t bytes, bool pooled) {
  if (current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  shared_file file = create_file(shared_header::kind::plain, bytes);
  if (file.header == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = map_all(file);
  state().plain.emplace(*address, plain_allocation{bytes, current_device(), false, pooled, file, ++state().numbers});
  return CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr* address, std::size_t bytes) {
  const call here("cuMemAlloc");
  return here.fails() ? call::failure : allocate(address, bytes, false);
}

/// For tests: the host library makes no such memory.
CUresult mem_alloc_async(CUdeviceptr* address, std::size_t bytes, CUstream) {
  const call here("cuMemAllocAsync");
  return here.fails() ? call::failure : allocate(address, bytes, true);
}

CUresult mem_free(CUdeviceptr address) {
  wait_for_kernels();
  const call here("cuMemFree");
  return here.result(give_back(address, false, "cuMemFree"));
}

CUresult mem_host_alloc(void** data, std::size_t bytes, unsigned) {
  const call here("cuMemHostAlloc");
  if (here.fails()) return call::failure;
  if (current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*data == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  state().host.emplace(*data, bytes);
  return CUDA_SUCCESS;
}

CUresult mem_free_host(void* data) {
  wait_for_kernels();
  const call here("cuMemFreeHost");
  if (state().host.erase(data) == 0) {
    return complain("cuMemFreeHost of what is not such memory", CUDA_ERROR_INVALID_VALUE);
  }
  std::free(data);
  return here.result(CUDA_SUCCESS);
}

CUresult mem_host_register(void* data, std::size_t bytes, unsigned flags) {
  const call here("cuMemHostRegister");
  if (here.fails()) return call::failure;
  if (current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)) {
    return complain("cuMemHostRegister for one device, or for none", CUDA_ERROR_INVALID_VALUE);
  }
  if (!state().registered.emplace(data, bytes).second) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  return CUDA_SUCCESS;
}

CUresult mem_host_unregister(void* data) {
  wait_for_kernels();
  const call here("cuMemHostUnregister");
  if (state().registered.erase(data) == 0) {
    return complain("cuMemHostUnregister of what is not registered", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  }
  unsigned char resident = 0;
  if (::mincore(data, 1, &resident) != 0) return complain("memory was unmapped while it was registered");
  return here.result(CUDA_SUCCESS);
}

CUresult get_address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  const call here("cuMemGetAddressRange");
  if (here.fails()) return call::failure;
  if (const auto plain = plain_of(address); plain != state().plain.end()) {
    *base = plain->first;
    *bytes = plain->second.bytes;
    return CUDA_SUCCESS;
  }
  const auto mapped = state().mapping_of(address);
  if (mapped == state().mappings.end()) return CUDA_ERROR_NOT_FOUND;
  *base = mapped->first;
  *bytes = mapped->second.bytes;
  return CUDA_SUCCESS;
}

CUresult pointer_get_attribute(void* value, CUpointer_attribute which, CUdeviceptr address) {
  const call here("cuPointerGetAttribute");
  if (here.fails()) return call::failure;
  process_state& s = state();
  const auto plain = plain_of(address);
  const auto mapped = s.mapping_of(address);
  const bool is_host = s.host.count(reinterpret_cast<void*>(address)) != 0;
  if (plain == s.plain.end() && mapped == s.mappings.end() && !is_host) return CUDA_ERROR_INVALID_VALUE;
  int answer = 0;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<void**>(value) = plain != s.plain.end() && plain->second.pooled ? &s : nullptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: answer = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      answer = plain != s.plain.end() && !plain->second.pooled ? 1 : 0;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(value) = plain != s.plain.end() ? plain->second.number : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      if (plain != s.plain.end()) answer = plain->second.device;
      if (mapped != s.mappings.end()) {
        const auto gpu = static_cast<int>(s.find(mapped->second.handle)->file.header->device);
        while (static_cast<std::size_t>(answer) < s.chosen.visible.size() && s.gpu_of(answer) != gpu) ++answer;
      }
      break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  std::memcpy(value, &answer, sizeof answer);
  return CUDA_SUCCESS;
}

CUresult ipc_get_mem_handle(CUipcMemHandle* handle, CUdeviceptr address) {
  const call here("cuIpcGetMemHandle");
  if (here.fails()) return call::failure;
  const auto found = state().plain.find(address);
  if (found == state().plain.end()) return CUDA_ERROR_INVALID_VALUE;
  const shared_name name = found->second.file.name();
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &name, sizeof name);
  return CUDA_SUCCESS;
}

CUresult ipc_open_mem_handle(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  const call here("cuIpcOpenMemHandle");
  if (here.fails()) return call::failure;
  if (current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  shared_name name{};
  std::memcpy(&name, &handle, sizeof name);
  const shared_file file = open_file(name);
  if (file.header == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *address = map_all(file);
  state().plain.emplace(*address,
                        plain_allocation{file.header->bytes, current_device(), true, false, file, ++state().numbers});
  return CUDA_SUCCESS;
}

CUresult ipc_close_mem_handle(CUdeviceptr address) {
  wait_for_kernels();
  const call here("cuIpcCloseMemHandle");
  return here.result(give_back(address, true, "cuIpcCloseMemHandle"));
}

template <class Function>
entry named(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

}  // namespace

std::vector<entry> plain_memory_entries() {
  return {named("cuMemAlloc", mem_alloc),
          named("cuMemAllocAsync", mem_alloc_async),
          named("cuMemFree", mem_free),
          named("cuMemHostAlloc", mem_host_alloc),
          named("cuMemFreeHost", mem_free_host),
          named("cuMemHostRegister", mem_host_register),
          named("cuMemHostUnregister", mem_host_unregister),
          named("cuMemGetAddressRange", get_address_range),
          named("cuPointerGetAttribute", pointer_get_attribute),
          named("cuIpcGetMemHandle", ipc_get_mem_handle),
          named("cuIpcOpenMemHandle", ipc_open_mem_handle),
          named("cuIpcCloseMemHandle", ipc_close_mem_handle)};
}

}  // namespace stand_in
