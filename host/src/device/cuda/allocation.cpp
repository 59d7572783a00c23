#include "device/cuda/allocation.hpp"

#include <devcomm/host/error.hpp>

#include <cstdint>
#include <cstring>
#include <string>

namespace devcomm::host::cuda {

using detail::handle_kind;

namespace {

constexpr std::size_t fabric_bytes = 64;

void check_import(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  throw system_error(std::string(call) + " failed: " + error_text(code) +
                     "; where a process may not use its peers' devices (MIG, containers with one GPU), set "
                     "DEVCOMM_LSA_SIZE to a smaller team (1: none)");
}

}  // namespace

CUmemAllocationHandleType driver_type(handle_kind kind) {
  switch (kind) {
    case handle_kind::none: return CU_MEM_HANDLE_TYPE_NONE;
    case handle_kind::file_descriptor: return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    case handle_kind::fabric: return handle_type_fabric;
  }
  throw system_error("CUDA has no handles of kind " + std::to_string(static_cast<std::uint32_t>(kind)));
}

int allocation::export_descriptor() const {
  int descriptor = -1;
  check(driver().mem_export(&descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle (file descriptor)");
  return descriptor;
}

std::vector<std::byte> allocation::export_bytes() const {
  std::vector<std::byte> handle(fabric_bytes);
  check(driver().mem_export(handle.data(), handle_, driver_type(kind_), 0), "cuMemExportToShareableHandle");
  return handle;
}

CUmemGenericAllocationHandle allocation::import_descriptor(int descriptor) {
  CUmemGenericAllocationHandle handle = 0;
  void* const raw = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
  check_import(driver().mem_import(&handle, raw, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "cuMemImportFromShareableHandle (file descriptor)");
  return handle;
}

CUmemGenericAllocationHandle allocation::import_bytes(handle_kind kind, std::span<const std::byte> handle) {
  if (handle.size() != fabric_bytes) {
    throw system_error("a memory handle of " + std::to_string(handle.size()) +
                       " bytes is not CUDA's; link all ranks "
                       "with the same library");
  }
  std::byte raw[fabric_bytes];
  std::memcpy(raw, handle.data(), fabric_bytes);
  CUmemGenericAllocationHandle imported = 0;
  check_import(driver().mem_import(&imported, raw, driver_type(kind)), "cuMemImportFromShareableHandle");
  return imported;
}

}  // namespace devcomm::host::cuda
