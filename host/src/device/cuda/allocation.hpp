/// \file allocation.hpp
/// What the driver gives handles to: physical memory and multicast objects.
#pragma once

#include "device/backend.hpp"
#include "device/cuda/context.hpp"
#include "device/cuda/deferred_frees.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace devcomm::host::cuda {

/// What the driver calls a kind; the one place that knows.
[[nodiscard]] CUmemAllocationHandleType driver_type(detail::handle_kind kind);

/// A handle, released on destruction.
class allocation {
 public:
  /// Takes over `handle`.
  allocation(CUmemGenericAllocationHandle handle, std::size_t bytes, detail::handle_kind kind)
      : handle_(handle), bytes_(bytes), kind_(kind) {}
  ~allocation() {
    free_in_order([handle = handle_] { report(driver().mem_release(handle), "cuMemRelease"); });
  }
  allocation(const allocation&) = delete;
  allocation& operator=(const allocation&) = delete;

  /// What another process exported. Both return a handle to take over.
  [[nodiscard]] static CUmemGenericAllocationHandle import_descriptor(int descriptor);
  [[nodiscard]] static CUmemGenericAllocationHandle import_bytes(detail::handle_kind kind,
                                                                 std::span<const std::byte> handle);

  [[nodiscard]] CUmemGenericAllocationHandle get() const noexcept { return handle_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int export_descriptor() const;
  [[nodiscard]] std::vector<std::byte> export_bytes() const;

 private:
  CUmemGenericAllocationHandle handle_;
  std::size_t bytes_;
  detail::handle_kind kind_;
};

class physical final : public detail::physical_memory {
 public:
  physical(int device, CUmemGenericAllocationHandle handle, std::size_t bytes, detail::handle_kind kind)
      : device_(device), held_(handle, bytes, kind) {}

  [[nodiscard]] const allocation& held() const noexcept { return held_; }
  [[nodiscard]] int export_descriptor() override {
    const on_device scope(device_);
    return held_.export_descriptor();
  }
  [[nodiscard]] std::vector<std::byte> export_bytes() override {
    const on_device scope(device_);
    return held_.export_bytes();
  }

 private:
  int device_;
  allocation held_;
};

/// Its devices are added by all processes before any memory is bound: the driver blocks in a call that comes too early.
/// An object is of no device: unlike those on `physical`, calls on it need no context.
class multicast final : public detail::multicast_object {
 public:
  multicast(CUmemGenericAllocationHandle handle, std::size_t bytes, detail::handle_kind kind)
      : held_(handle, bytes, kind) {}
  ~multicast() override;
  multicast(const multicast&) = delete;
  multicast& operator=(const multicast&) = delete;

  [[nodiscard]] const allocation& held() const noexcept { return held_; }
  [[nodiscard]] int export_descriptor() override { return held_.export_descriptor(); }
  [[nodiscard]] std::vector<std::byte> export_bytes() override { return held_.export_bytes(); }
  void add_device(int device) override;
  void bind(int device, std::size_t offset, detail::physical_memory& memory, std::size_t bytes) override;

 private:
  /// The driver wants the same numbers to unbind.
  struct binding {
    CUdevice device;
    std::size_t offset;
    std::size_t bytes;
  };

  allocation held_;
  std::vector<binding> bound_;
};

}  // namespace devcomm::host::cuda
