/// \file backend.hpp
/// The ports through which the host library reaches devices: memory, sharing, observing. CUDA's driver is behind them,
/// or simulated devices.
#pragma once

#include <devcomm/gin/queue.hpp>
#include <devcomm/host/memory_place.hpp>
#include <devcomm/host/properties.hpp>

#include "device/network_step.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {

/// Handle type by which another process opens physical memory. Everything that differs between kinds is in
/// `handle_kinds`, and in what the ports do with them.
enum class handle_kind : std::uint32_t { none, file_descriptor, fabric };

/// Physical memory on one device, owned or imported.
class physical_memory {
 public:
  virtual ~physical_memory() = default;
  /// A new descriptor that the caller closes. Only for `handle_kind::file_descriptor`.
  [[nodiscard]] virtual int export_descriptor() = 0;
  /// Opaque bytes to send, at most `max_handle_bytes`. For every other kind.
  [[nodiscard]] virtual std::vector<std::byte> export_bytes() = 0;
};

/// An NVLink multicast object, owned or imported: a store to its mapping reaches the same offset in the memory that
/// each member bound, a reducing load reads it from all. Every device of the team is added, in all processes, before
/// any memory is bound. Memory that this process bound is unbound on destruction.
class multicast_object {
 public:
  virtual ~multicast_object() = default;
  /// As those of `physical_memory`.
  [[nodiscard]] virtual int export_descriptor() = 0;
  [[nodiscard]] virtual std::vector<std::byte> export_bytes() = 0;
  virtual void add_device(int device) = 0;
  /// Binds all of `memory`, which lies on `device` and must outlive the object, at `offset`.
  virtual void bind(int device, std::size_t offset, physical_memory& memory, std::size_t bytes) = 0;
};

/// A span of address space; unmapped and released on destruction.
class address_range {
 public:
  virtual ~address_range() = default;
  [[nodiscard]] virtual char* base() const noexcept = 0;
  /// Places `memory`, which must outlive the range, at `offset`, accessible to `devices`.
  virtual void map(std::size_t offset, physical_memory& memory, std::span<const int> devices) = 0;
  /// Places `object`, of `bytes`, likewise. Only for backends whose devices have `device_facts::multicast`.
  virtual void map(std::size_t offset, multicast_object& object, std::size_t bytes, std::span<const int> devices);
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
  /// The calling thread frees the part of `rank`: an observing port checks who may still use it.
  virtual void ends(int /*rank*/) {}
};

struct device_facts {
  std::string name;
  int multiprocessors = 0;
  /// Identifies a device of a host across processes (`CUDA_VISIBLE_DEVICES` renumbers them).
  std::string uuid;
  /// PCI domain, bus and device, the domain in the upper half: GPUs behind one switch or socket have neighboring ones.
  std::uint64_t pci = 0;
  capability file_descriptor_handles;
  capability fabric_handles;
  capability cuda_ipc;
  capability multicast;
  capability pinned_host;
};

/// One kind of handle.
struct handle_traits {
  handle_kind kind;
  std::string_view name;              ///< that `handle_type()` returns
  std::string_view variable;          ///< that `DEVCOMM_MEMORY_HANDLE` may have
  capability device_facts::*offered;  ///< as a device reports it
  capability properties::*reported;   ///< as a communicator reports it
};

/// In the order in which they are tried. `handle_kind::none` is for memory that stays in its process.
inline constexpr std::array handle_kinds = {
    handle_traits{handle_kind::file_descriptor, "file descriptor", "file_descriptor",
                  &device_facts::file_descriptor_handles, &properties::file_descriptor_handles},
    handle_traits{handle_kind::fabric, "fabric", "fabric", &device_facts::fabric_handles, &properties::fabric_handles},
};

/// Longest handle that is sent as bytes.
inline constexpr std::size_t max_handle_bytes = 128;

/// The traits of a kind; null for `handle_kind::none`.
[[nodiscard]] constexpr const handle_traits* traits_of(handle_kind kind) {
  for (const handle_traits& traits : handle_kinds) {
    if (traits.kind == kind) return &traits;
  }
  return nullptr;
}

/// What holds for all devices of a backend.
struct backend_traits {
  bool checks_launches = false;  ///< default of `check_launch`
  bool one_clock = false;        ///< all devices of one process share the clock of traces
  /// Payload of the network passes through so many pieces of host memory of so many bytes.
  std::size_t bounce_buffer_count = 64;
  std::size_t bounce_buffer_bytes = 4096;
  capability timing{true, "GPU clocks"};
};

/// Memory of the devices of this process. Giving it back never waits for kernels: what they may still use is kept until
/// they are over.
class memory_port {
 public:
  virtual ~memory_port() = default;

  /// Sizes of physical memory and offsets in a range are multiples of this.
  [[nodiscard]] virtual std::size_t granularity(int device) = 0;
  [[nodiscard]] virtual std::unique_ptr<physical_memory> create_physical(int device, std::size_t bytes,
                                                                         handle_kind kind) = 0;
  [[nodiscard]] virtual std::unique_ptr<address_range> reserve(std::size_t bytes) = 0;
  /// Zeroed pinned host memory of whole pages, that only ranges of `reserve_pinned` map. It is exported by descriptor,
  /// where `kind` says so. This and the next only for backends whose devices have `device_facts::pinned_host`.
  [[nodiscard]] virtual std::unique_ptr<physical_memory> create_pinned(int device, std::size_t bytes, handle_kind kind);
  [[nodiscard]] virtual std::unique_ptr<address_range> reserve_pinned(std::size_t bytes);
  /// Sizes of multicast objects of `members` devices, and of what is bound to them, are multiples of this. This and the
  /// next only for backends whose devices have `device_facts::multicast`.
  [[nodiscard]] virtual std::size_t multicast_granularity(int members, handle_kind kind);
  [[nodiscard]] virtual std::unique_ptr<multicast_object> create_multicast(int members, std::size_t bytes,
                                                                           handle_kind kind);
  /// Address space that stays empty after each of a window's parts, beside the granule that always does; whole
  /// granules.
  [[nodiscard]] virtual std::size_t empty_after_part(int) { return 0; }
  [[nodiscard]] virtual std::unique_ptr<host_memory> allocate_host(int device, std::size_t bytes) = 0;
  /// Plain device memory for tables; freed by the returned owner.
  [[nodiscard]] virtual std::unique_ptr<opened_memory> allocate_device(int device, std::size_t bytes) = 0;
  /// From the host and back; all are complete on return. They throw `timeout_error` where kernels keep the device from
  /// it for `limit`.
  virtual void zero(int device, void* destination, std::size_t bytes, std::chrono::milliseconds limit) = 0;
  virtual void copy(int device, void* destination, const void* source, std::size_t bytes,
                    std::chrono::milliseconds limit) = 0;
  virtual void read(int device, void* destination, const void* source, std::size_t bytes,
                    std::chrono::milliseconds limit) = 0;
};

/// Memory of other devices and processes.
class sharing_port {
 public:
  virtual ~sharing_port() = default;

  /// Whether this process sees the device with `peer_uuid`, so that `peer_access` knows. Where it does not, only a
  /// trial tells.
  [[nodiscard]] virtual bool sees(const std::string& peer_uuid) {
    static_cast<void>(peer_uuid);
    return true;
  }
  /// Whether `device` can load and store memory of the device with `peer_uuid` on this host.
  [[nodiscard]] virtual capability peer_access(int device, const std::string& peer_uuid) = 0;
  /// Whether lines of 128 bytes that a warp stores by one instruction stay whole between the two.
  [[nodiscard]] virtual capability ll128_capability(int device, const std::string& peer_uuid) = 0;
  /// Whether `device` is in an NVLink domain with devices of other hosts; where it is, the reason names that domain,
  /// alike on all of them.
  [[nodiscard]] virtual capability nvlink_domain(int device);
  /// Lets `device` reach `cudaMalloc` memory of `peer_device` in this process.
  virtual void enable_peer_access(int device, int peer_device) = 0;

  [[nodiscard]] virtual std::unique_ptr<physical_memory> import_descriptor(int device, int descriptor,
                                                                           std::size_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<physical_memory> import_bytes(int device, handle_kind kind,
                                                                      std::span<const std::byte> handle,
                                                                      std::size_t bytes) = 0;

  /// Memory of `create_pinned` of another process. Only for backends whose devices have `device_facts::pinned_host`.
  [[nodiscard]] virtual std::unique_ptr<physical_memory> import_pinned(int device, int descriptor, std::size_t bytes);

  /// Only for backends whose devices have `device_facts::multicast`.
  [[nodiscard]] virtual std::unique_ptr<multicast_object> import_multicast_descriptor(int descriptor,
                                                                                      std::size_t bytes);
  [[nodiscard]] virtual std::unique_ptr<multicast_object> import_multicast_bytes(handle_kind kind,
                                                                                 std::span<const std::byte> handle,
                                                                                 std::size_t bytes);

  /// Throws unless `bytes` from `pointer` lie in one allocation on `device`, or in mappings of physical memory without
  /// a gap, and, where `for_peers`, in one that other devices can be given access to.
  virtual void check_pointer(int device, void* pointer, std::size_t bytes, bool for_peers) = 0;
  /// Opaque bytes by which another process opens the allocation that contains `pointer`, and the
  /// pointer's offset in it. *Requires* `check_pointer` for peers.
  struct exported_pointer {
    std::vector<std::byte> handle;
    std::size_t offset = 0;
  };
  [[nodiscard]] virtual exported_pointer export_pointer(int device, void* pointer) = 0;
  /// A number of the allocation that contains `pointer`, which no other allocation of this process ever has; 0 where
  /// there is none.
  [[nodiscard]] virtual std::uint64_t allocation_id(int device, const void* pointer) = 0;
  [[nodiscard]] virtual std::unique_ptr<opened_memory> open_pointer(int device, std::span<const std::byte> handle) = 0;

  /// Memory that the caller mapped from physical memory of its own, as PyTorch's expandable segments.
  struct mapped_memory {
    std::vector<std::shared_ptr<physical_memory>> pieces;  ///< in order; none: it is no such memory
    std::vector<std::size_t> bytes;                        ///< of each
    std::size_t offset = 0;                                ///< of the pointer in the first
  };
  /// The physical memory in which `bytes` from `pointer` lie. Throws `not_supported` where that cannot be exported as
  /// `kind`. *Requires* `check_pointer` for peers.
  [[nodiscard]] virtual mapped_memory retain_mapped(int device, void* pointer, std::size_t bytes, handle_kind kind);

  /// Memory that can be bound to a multicast object.
  struct bindable_memory {
    std::shared_ptr<physical_memory> memory;  ///< null: it is none
    std::size_t bytes = 0;                    ///< all of it
    std::size_t offset = 0;                   ///< of the pointer in it
  };
  /// The same, where `bytes` from `pointer` lie in one piece. Without an override, by `retain_mapped`.
  [[nodiscard]] virtual bindable_memory retain_bindable(int device, void* pointer, std::size_t bytes, handle_kind kind);
};

/// Work that goes on beside kernels until this is destroyed, which waits until there is none left.
class background_task {
 public:
  virtual ~background_task() = default;
};

/// Copies between memory of one device and host memory of `allocate_host`, beside kernels: none is waited for. One
/// thread at a time calls it. What is begun may be done in any order.
class copy_engine {
 public:
  /// Waits for what was begun.
  virtual ~copy_engine() = default;

  /// Each begins a copy and returns its number. They throw where that cannot be done.
  [[nodiscard]] virtual std::uint64_t begin_read(void* host, const void* on_device, std::size_t bytes) = 0;
  [[nodiscard]] virtual std::uint64_t begin_write(void* on_device, const void* host, std::size_t bytes) = 0;
  /// Looks which copies are done, and begins to watch those that were begun since: what is begun together is watched
  /// together. Throws where the device has failed: then no copy goes on.
  virtual void poll() = 0;
  /// Only begins to watch them: for what is begun long before the next `poll`.
  virtual void watch() {}
  /// Whether `poll` has seen copy `number` to be done. The calling thread then sees what was read, and kernels that
  /// acquire a later `network_port::store` what was written.
  [[nodiscard]] virtual bool is_done(std::uint64_t number) const = 0;
};

/// What the network's proxy does while kernels run.
class network_port {
 public:
  virtual ~network_port() = default;

  /// Whether the ranks of one process can put to each other here.
  [[nodiscard]] virtual capability network();
  /// Calls `step` of the work of `rank` again and again while kernels run on any device, and chooses where several
  /// steps could be next. It reaches what kernels use by the last six alone. Only where `network()` is available.
  /// Where it is a thread of its own that calls, it stays on `cpus`, or anywhere where there are none.
  [[nodiscard]] virtual std::unique_ptr<background_task> start_background_task(int rank, const std::vector<int>& cpus,
                                                                               const proxy_work& work);
  /// From here on a thread of the host's, whose proxy serves ranks of several processes, stores to memory that kernels
  /// wait for, as kernels of other processes do.
  virtual void expect_other_processes() {}
  /// Calls `work`, all that such a thread does: it is ordered with kernels by words that nobody but they see.
  virtual void as_other_processes(const std::function<void()>& work) { work(); }
  /// Whether such a thread, and fabrics, can reach what kernels put and get: the memory of windows. Where they do not,
  /// `open_copies_from_host` does.
  [[nodiscard]] virtual capability network_from_host();
  /// Whether network cards can read and write memory of `device` where they do not: then what they have written is
  /// seen by kernels that acquire a later `store`.
  [[nodiscard]] virtual capability device_from_cards(int device);
  /// For payload in memory of `device`. Without an override, by `fetch` and `deliver`: for devices whose memory the
  /// host reaches.
  [[nodiscard]] virtual std::unique_ptr<copy_engine> open_copies(int device);
  /// The same for such a thread. Without an override, by ordinary accesses.
  [[nodiscard]] virtual std::unique_ptr<copy_engine> open_copies_from_host(int device);
  /// For payload in memory that the host reaches: by `fetch` and `deliver`.
  [[nodiscard]] std::unique_ptr<copy_engine> open_direct_copies();
  // Without an override, the next five are what threads of the host do.
  /// Copies host memory that kernels write to memory that only `step` uses. Done on return.
  virtual void fetch(void* own, const void* shared, std::size_t bytes);
  /// Copies the other way. Done on return, and kernels that acquire a later `store` see the bytes.
  virtual void deliver(void* shared, const void* own, std::size_t bytes);
  /// A word of host memory that kernels store: acquires.
  [[nodiscard]] virtual std::uint64_t load(const std::uint64_t* word);
  /// One that kernels load: releases.
  virtual void store(std::uint64_t* word, std::uint64_t value);
  /// A descriptor that a kernel has posted, word by word as `load` does.
  [[nodiscard]] virtual gin::descriptor take(const gin::descriptor* posted);
};

/// What watches kernels, and what names things in messages. A backend without messages of its own implements only
/// `wait_until_idle`.
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
  /// Between the two the calling thread waits until all ranks have come, or one is lost. While it sleeps in a futex it
  /// makes no progress for kernels that wait, although its wait has a limit.
  virtual void begin_waiting_for_ranks() {}
  virtual void end_waiting_for_ranks() {}
  /// False only when no kernel runs on any device of this process.
  [[nodiscard]] virtual bool may_run_kernels() { return true; }
  /// Waits until nothing runs on `device` that this process gave it, at most for `limit`; whether that was so.
  /// Throws the error of a kernel that failed, unless `kernel_failure` tells it.
  [[nodiscard]] virtual bool wait_until_idle(int device, std::chrono::milliseconds limit) = 0;
  /// How a kernel has failed and left `device` unusable. Empty if none has, and on devices of which only calls of the
  /// driver know.
  [[nodiscard]] virtual std::string kernel_failure(int device) {
    static_cast<void>(device);
    return {};
  }
};

/// Devices and their ports: the CUDA driver's or the simulator's.
class backend : public memory_port, public sharing_port, public observing_port, public network_port {
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
