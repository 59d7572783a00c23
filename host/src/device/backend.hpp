/// \file backend.hpp
/// The ports through which the host library reaches devices: memory, sharing, observing. CUDA's driver is behind them,
/// or simulated devices.
#pragma once

#include <devcomm/host/properties.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {

/// Handle type by which another process opens physical memory.
enum class handle_kind : std::uint32_t { none, file_descriptor, fabric };

/// Physical memory on one device, owned or imported.
class physical_memory {
 public:
  virtual ~physical_memory() = default;
  /// A new descriptor that the caller closes. Only for `handle_kind::file_descriptor`.
  [[nodiscard]] virtual int export_descriptor() = 0;
  /// Opaque bytes to send. Only for `handle_kind::fabric`.
  [[nodiscard]] virtual std::vector<std::byte> export_fabric() = 0;
};

/// A span of address space; unmapped and released on destruction.
class address_range {
 public:
  virtual ~address_range() = default;
  [[nodiscard]] virtual char* base() const noexcept = 0;
  /// Places `memory`, which must outlive the range, at `offset`, accessible to `devices`.
  virtual void map(std::size_t offset, physical_memory& memory, std::span<const int> devices) = 0;
};

/// Zeroed host memory that code of any device reaches at the same address.
class host_memory {
 public:
  virtual ~host_memory() = default;
  [[nodiscard]] virtual void* data() const noexcept = 0;
};

/// Another process's `cudaMalloc` memory, opened here; closed on destruction.
class opened_memory {
 public:
  virtual ~opened_memory() = default;
  [[nodiscard]] virtual char* data() const noexcept = 0;
};

/// One rank's part of a window. The bytes from `bytes` to `capacity` are padding.
struct window_part {
  char* base;
  std::size_t bytes;
  std::size_t capacity;
  int rank;
};

/// Registration of a name for memory; removed on destruction.
class memory_label {
 public:
  virtual ~memory_label() = default;
};

struct device_facts {
  std::string name;
  int multiprocessors = 0;
  /// Identifies a device of a host across processes (`CUDA_VISIBLE_DEVICES` renumbers them).
  std::string uuid;
  capability file_descriptor_handles;
  capability fabric_handles;
  capability cuda_ipc;
  capability multicast;
};

/// What holds for all devices of a backend.
struct backend_traits {
  bool checks_launches = false;  ///< default of `check_launch`
  bool one_clock = false;        ///< all devices of one process share the clock of traces
  capability timing{true, "GPU clocks"};
};

/// Memory of the devices of this process.
class memory_port {
 public:
  virtual ~memory_port() = default;

  /// Sizes of physical memory and offsets in a range are multiples of this.
  [[nodiscard]] virtual std::size_t granularity(int device) = 0;
  [[nodiscard]] virtual std::unique_ptr<physical_memory> create_physical(int device, std::size_t bytes,
                                                                         handle_kind kind) = 0;
  [[nodiscard]] virtual std::unique_ptr<address_range> reserve(std::size_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<host_memory> allocate_host(int device, std::size_t bytes) = 0;
  /// Plain device memory for tables; freed by the returned owner.
  [[nodiscard]] virtual std::unique_ptr<opened_memory> allocate_device(int device, std::size_t bytes) = 0;
  /// From the host and back; all are complete on return.
  virtual void zero(int device, void* destination, std::size_t bytes) = 0;
  virtual void copy(int device, void* destination, const void* source, std::size_t bytes) = 0;
  virtual void read(int device, void* destination, const void* source, std::size_t bytes) = 0;
};

/// Memory of other devices and processes.
class sharing_port {
 public:
  virtual ~sharing_port() = default;

  /// Whether `device` can load and store memory of the device with `peer_uuid` on this host.
  [[nodiscard]] virtual capability peer_access(int device, const std::string& peer_uuid) = 0;
  /// Whether lines of 128 bytes that a warp stores by one instruction stay whole between the two.
  [[nodiscard]] virtual capability whole_lines(int device, const std::string& peer_uuid) = 0;
  /// Lets `device` reach `cudaMalloc` memory of `peer_device` in this process.
  virtual void enable_peer_access(int device, int peer_device) = 0;

  [[nodiscard]] virtual std::unique_ptr<physical_memory> import_descriptor(int device, int descriptor,
                                                                           std::size_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<physical_memory> import_fabric(int device, std::span<const std::byte> handle,
                                                                       std::size_t bytes) = 0;

  /// Opaque bytes by which another process opens the allocation that contains `pointer`, and the
  /// pointer's offset in it. Throws `not_supported` for memory that CUDA IPC cannot share.
  struct exported_pointer {
    std::vector<std::byte> handle;
    std::size_t offset = 0;
  };
  [[nodiscard]] virtual exported_pointer export_pointer(int device, void* pointer, std::size_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<opened_memory> open_pointer(int device, std::span<const std::byte> handle) = 0;
};

/// What watches kernels, and what names things in messages. A backend without messages of its own implements none.
class observing_port {
 public:
  virtual ~observing_port() = default;

  /// Messages may call `device` by the world rank that uses it.
  virtual void name_rank(int device, int rank) {
    static_cast<void>(device);
    static_cast<void>(rank);
  }
  /// Messages may call that memory by `name` while the result lives; null where there are none.
  [[nodiscard]] virtual std::unique_ptr<memory_label> label(const std::string& name,
                                                            std::span<const window_part> parts) {
    static_cast<void>(name);
    static_cast<void>(parts);
    return nullptr;
  }
  /// Between the two the calling thread only observes: it makes no progress for kernels that wait.
  virtual void begin_observing() {}
  virtual void end_observing() {}
  /// False only when no kernel runs on any device of this process.
  [[nodiscard]] virtual bool may_run_kernels() { return true; }
};

/// Devices and their three ports: the CUDA driver's or the simulator's.
class backend : public memory_port, public sharing_port, public observing_port {
 public:
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual backend_traits traits() const { return {}; }
  /// Throws `not_supported` with the reason when there is no usable driver or device.
  [[nodiscard]] virtual int device_count() = 0;
  /// Makes sure that there are `count` devices where they can be had for the asking; elsewhere does nothing, and
  /// ranks share the devices that there are.
  virtual void provide_devices(int count) { static_cast<void>(count); }
  [[nodiscard]] virtual device_facts facts(int device) = 0;
  /// Makes `device` current for the calling thread.
  virtual void make_current(int device) = 0;
};

/// The one of the library that was linked, `devcomm::host` or `devcomm::simulator`: for communicators whose options
/// name none.
[[nodiscard]] backend& current_backend();

}  // namespace devcomm::host::detail
