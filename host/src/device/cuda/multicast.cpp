#include <devcomm/host/error.hpp>

#include "device/cuda/allocation.hpp"
#include "device/cuda/deferred_frees.hpp"
#include "device/cuda/memory.hpp"

#include <memory>
#include <string>
#include <utility>

namespace devcomm::host::cuda {

using detail::handle_kind;

namespace {

/// Throws unless `code` is success; with what helps where the switch or its software is at fault.
void check_multicast(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  throw system_error(std::string(call) + " failed: " + error_text(code) +
                     "; check the state of the NVLink switch (nvidia-smi -q, section Fabric) and at its fabric "
                     "manager, or set DEVCOMM_NVLS_ENABLE=0 to go without multicast");
}

multicast_properties properties_of(int members, std::size_t bytes, handle_kind kind) {
  multicast_properties wanted{};
  wanted.devices = static_cast<unsigned>(members);
  wanted.bytes = bytes;
  wanted.handle_types = static_cast<unsigned long long>(driver_type(kind));
  return wanted;
}

const driver_functions& driver_with_multicast() {
  if (const char* const missing = missing_multicast_function()) {
    throw not_supported(std::string("the driver is too old for multicast: it lacks ") + missing);
  }
  return driver();
}

}  // namespace

capability multicast_of(int device) {
  if (attribute(device, attribute_multicast_supported) == 0) {
    return {false, "the driver offers none for this device: it needs NVSwitch and Hopper or newer"};
  }
  if (const char* const missing = missing_multicast_function()) {
    return {false, std::string("the driver is too old: it lacks ") + missing + "; install 530 or newer"};
  }
  return {true, "the driver offers it"};
}

multicast::~multicast() {
  // What is bound was bound by a driver that can unbind it.
  CUresult (*const unbind)(CUmemGenericAllocationHandle, CUdevice, std::size_t, std::size_t) =
      driver().multicast_unbind;
  if (unbind == nullptr) return;
  free_in_order([unbind, handle = held_.get(), bound = std::move(bound_)] {
    for (const binding& each : bound) {
      report(unbind(handle, each.device, each.offset, each.bytes), "cuMulticastUnbind");
    }
  });
}

void multicast::add_device(int device) {
  check_multicast(driver_with_multicast().multicast_add_device(held_.get(), handle_of(device)), "cuMulticastAddDevice");
}

void multicast::bind(int device, std::size_t offset, detail::physical_memory& memory, std::size_t bytes) {
  bound_.reserve(bound_.size() + 1);
  const CUdevice handle = handle_of(device);
  check_multicast(driver_with_multicast().multicast_bind_mem(held_.get(), offset,
                                                             dynamic_cast<physical&>(memory).held().get(), 0, bytes, 0),
                  "cuMulticastBindMem");
  bound_.push_back({handle, offset, bytes});
}

std::size_t multicast_granularity(int members, handle_kind kind) {
  // Any size will do, but not 0. The recommended granularity may be far larger than most windows.
  const multicast_properties wanted = properties_of(members, std::size_t{1} << 21, kind);
  std::size_t bytes = 0;
  check_multicast(driver_with_multicast().multicast_get_granularity(&bytes, &wanted, multicast_granularity_minimum),
                  "cuMulticastGetGranularity");
  return bytes;
}

std::unique_ptr<detail::multicast_object> create_multicast(int members, std::size_t bytes, handle_kind kind) {
  const multicast_properties wanted = properties_of(members, bytes, kind);
  CUmemGenericAllocationHandle handle = 0;
  check_multicast(driver_with_multicast().multicast_create(&handle, &wanted), "cuMulticastCreate");
  return std::make_unique<multicast>(handle, bytes, kind);
}

std::unique_ptr<detail::multicast_object> import_multicast_descriptor(int descriptor, std::size_t bytes) {
  return std::make_unique<multicast>(allocation::import_descriptor(descriptor), bytes, handle_kind::file_descriptor);
}

std::unique_ptr<detail::multicast_object> import_multicast_bytes(handle_kind kind, std::span<const std::byte> handle,
                                                                 std::size_t bytes) {
  return std::make_unique<multicast>(allocation::import_bytes(kind, handle), bytes, kind);
}

}  // namespace devcomm::host::cuda
