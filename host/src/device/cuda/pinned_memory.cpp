// Windows in pinned host memory: files without a name that processes of a host share, registered with the driver. So
// fabrics find ordinary memory, and no handle of the driver's is needed.
#include <devcomm/host/error.hpp>

#include "device/cuda/context.hpp"
#include "device/cuda/deferred_frees.hpp"
#include "device/cuda/memory.hpp"
#include "util/unique_fd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::cuda {
namespace {

using detail::unique_fd;

[[noreturn]] void fail_call(const char* call) {
  throw system_error(std::string(call) + " failed: " + std::strerror(errno));
}

int copy_of(int descriptor) {
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) fail_call("fcntl");
  return copy;
}

class host_file final : public detail::physical_memory {
 public:
  host_file(unique_fd descriptor, std::size_t bytes) : descriptor_(std::move(descriptor)), bytes_(bytes) {}

  [[nodiscard]] int get() const noexcept { return descriptor_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int export_descriptor() override { return copy_of(descriptor_.get()); }
  [[nodiscard]] std::vector<std::byte> export_bytes() override {
    throw not_supported("pinned host memory is shared by descriptors only");
  }

 private:
  unique_fd descriptor_;
  std::size_t bytes_;
};

/// Each mapping is registered once, for all devices, which use the host's address.
class pinned_reservation final : public detail::address_range {
 public:
  explicit pinned_reservation(std::size_t bytes)
      : base_(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)), bytes_(bytes) {
    if (base_ == MAP_FAILED) fail_call("mmap");
  }
  ~pinned_reservation() override {
    free_when_idle(devices_, [registered = std::move(registered_), device = devices_.empty() ? -1 : devices_.front(),
                              base = base_, bytes = bytes_] {
      if (!registered.empty()) {
        const on_device scope(device, std::nothrow);
        for (char* const each : registered) report(driver().mem_host_unregister(each), "cuMemHostUnregister");
      }
      ::munmap(base, bytes);
    });
  }
  pinned_reservation(const pinned_reservation&) = delete;
  pinned_reservation& operator=(const pinned_reservation&) = delete;

  [[nodiscard]] char* base() const noexcept override { return static_cast<char*>(base_); }

  void map(std::size_t offset, detail::physical_memory& memory, std::span<const int> devices) override {
    const auto& from = dynamic_cast<host_file&>(memory);
    char* const at = base() + offset;
    if (::mmap(at, from.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, from.get(), 0) == MAP_FAILED) {
      fail_call("mmap");
    }
    registered_.reserve(registered_.size() + 1);
    for (const int device : devices) {
      if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) devices_.push_back(device);
    }
    const on_device scope(devices.front());
    check(driver().mem_host_register(at, from.bytes(), CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
          "cuMemHostRegister");
    registered_.push_back(at);
  }

 private:
  void* base_;
  std::size_t bytes_;
  std::vector<char*> registered_;
  std::vector<int> devices_;  // whose kernels may use it
};

}  // namespace

capability pinned_windows_of(int device) {
  if (attribute(device, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) == 0) {
    return {false, "the device cannot register memory of the host"};
  }
  if (attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) == 0) {
    return {false, "the device has other addresses for registered memory of the host than the host"};
  }
  return {true, "shared memory of this host, registered with the device"};
}

std::unique_ptr<detail::physical_memory> create_pinned(std::size_t bytes) {
  unique_fd descriptor(::memfd_create("devcomm-window", MFD_CLOEXEC));
  if (!descriptor) fail_call("memfd_create");
  // Without pages an access would end the process.
  if (const int code = ::posix_fallocate(descriptor.get(), 0, static_cast<off_t>(bytes)); code != 0) {
    throw system_error("the host has no " + std::to_string(bytes) + " bytes of shared memory left (" +
                       std::strerror(code) + "); ask for less, or free memory there");
  }
  return std::make_unique<host_file>(std::move(descriptor), bytes);
}

std::unique_ptr<detail::physical_memory> import_pinned(int descriptor, std::size_t bytes) {
  struct stat file {};
  if (::fstat(descriptor, &file) != 0) fail_call("fstat");
  if (file.st_size < static_cast<off_t>(bytes)) {
    throw system_error(
        "host memory from another process is smaller than it said; link all ranks with one version of devcomm");
  }
  return std::make_unique<host_file>(unique_fd(copy_of(descriptor)), bytes);
}

std::unique_ptr<detail::address_range> reserve_pinned(std::size_t bytes) {
  return std::make_unique<pinned_reservation>(bytes);
}

}  // namespace devcomm::host::cuda
