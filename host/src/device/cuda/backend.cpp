#include "device/backend.hpp"

#include <devcomm/host/error.hpp>

#include "device/cuda/context.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/network.hpp"
#include "device/cuda/nvml.hpp"
#include "util/hex.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <span>

namespace devcomm::host::cuda {
namespace {

using detail::handle_kind;

/// "9.0".
std::string compute_capability(int device) {
  return std::to_string(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)) + "." +
         std::to_string(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

CUuuid raw_uuid_of(int device) {
  CUuuid raw{};
  check(driver().device_get_uuid(&raw, handle_of(device)), "cuDeviceGetUuid");
  return raw;
}

std::string uuid_of(int device) {
  const CUuuid raw = raw_uuid_of(device);
  return "GPU-" + detail::to_hex(std::as_bytes(std::span(raw.bytes)));
}

std::size_t granularity_of(int device, handle_kind kind) {
  const CUmemAllocationProp wanted = allocation_properties(device, kind);
  std::size_t bytes = 0;
  check(driver().mem_get_allocation_granularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity");
  return bytes;
}

/// The attribute promises fabric handles that need a running IMEX service too, so one is tried.
capability probe_fabric(int device) {
  if (attribute(device, attribute_fabric_supported) == 0) return {false, "the driver offers none for this device"};
  try {
    const auto memory = create_physical(device, granularity_of(device, handle_kind::fabric), handle_kind::fabric);
    static_cast<void>(memory->export_bytes());
    return {true, "exported one"};
  } catch (const error& e) {
    return {false, std::string("a trial failed: ") + e.what() + "; an IMEX channel may be missing"};
  }
}

detail::device_facts look_at(int device) {
  detail::device_facts f;
  std::array<char, 256> name{};
  check(driver().device_get_name(name.data(), static_cast<int>(name.size()), handle_of(device)), "cuDeviceGetName");
  f.name = name.data();
  f.multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  f.uuid = uuid_of(device);
  const auto part = [&](CUdevice_attribute which) { return static_cast<std::uint64_t>(attribute(device, which)); };
  f.pci = part(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) << 32 | part(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) << 8 |
          part(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  const bool managed = attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
  const bool descriptors = attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
  if (!managed) {
    f.file_descriptor_handles = f.fabric_handles = {false, "the device has no virtual memory management"};
  } else {
    f.file_descriptor_handles =
        descriptors ? capability{true, "virtual memory management"}
                    : capability{false, "the driver offers none for this device (some virtual GPUs lack them)"};
    f.fabric_handles = probe_fabric(device);
  }
  f.cuda_ipc = attribute(device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) != 0
                   ? capability{true, "memory from cudaMalloc"}
                   : capability{false, "the device has no unified addressing"};
  f.multicast = multicast_of(device);
  f.pinned_host = pinned_windows_of(device);
  return f;
}

class cuda_backend final : public detail::backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "cuda"; }
  [[nodiscard]] detail::backend_traits traits() const override {
    detail::backend_traits t;
    t.bounce_buffer_count = 32;
    t.bounce_buffer_bytes = std::size_t{256} << 10;
    return t;
  }

  [[nodiscard]] int device_count() override {
    int count = 0;
    check(driver().device_get_count(&count), "cuDeviceGetCount");
    if (count == 0) {
      throw not_supported(std::string("the CUDA driver sees no device; check CUDA_VISIBLE_DEVICES, or ") + without_gpu);
    }
    return count;
  }

  [[nodiscard]] detail::device_facts facts(int device) override {
    const std::lock_guard lock(mutex_);
    const auto known = facts_.find(device);
    if (known != facts_.end()) return known->second;
    return facts_[device] = look_at(device);
  }

  [[nodiscard]] bool sees(const std::string& peer_uuid) override {
    const int count = device_count();
    for (int device = 0; device < count; ++device) {
      if (uuid_of(device) == peer_uuid) return true;
    }
    return false;
  }

  [[nodiscard]] capability peer_access(int device, const std::string& peer_uuid) override {
    const int count = device_count();
    for (int other = 0; other < count; ++other) {
      if (uuid_of(other) != peer_uuid) continue;
      if (other == device) return {true, "the same device"};
      int can = 0;
      check(driver().device_can_access_peer(&can, handle_of(device), handle_of(other)), "cuDeviceCanAccessPeer");
      if (can != 0) return {true, "peer access"};
      return {false,
              "cuDeviceCanAccessPeer says no: there is no NVLink between the two, and the PCIe topology, an "
              "IOMMU or a virtual machine forbids peer access"};
    }
    return {false, "this process does not see it, and the driver answers only for devices that it sees"};
  }

  /// NCCL's rule: NVLink between GPUs of one compute capability, from Volta on. Native atomics identify NVLink.
  [[nodiscard]] capability ll128_capability(int device, const std::string& peer_uuid) override {
    const int count = device_count();
    for (int other = 0; other < count; ++other) {
      if (uuid_of(other) != peer_uuid) continue;
      if (other == device) return {true, "the same device"};
      const std::string mine = compute_capability(device);
      const std::string theirs = compute_capability(other);
      if (mine != theirs) return {false, "GPUs of two kinds: compute capability " + mine + " and " + theirs};
      if (attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 7)
        return {false, "GPUs before Volta cut lines into parts"};
      int atomics = 0;
      check(driver().device_get_p2p_attribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                              handle_of(device), handle_of(other)),
            "cuDeviceGetP2PAttribute");
      if (atomics == 0) return {false, "there is no NVLink between the two, and PCIe cuts lines into parts"};
      return {true, "NVLink"};
    }
    return {
        false,
        "this process does not see it, and the driver reports nothing about the link; leave CUDA_VISIBLE_DEVICES out and "
        "choose devices by the option device"};
  }

  [[nodiscard]] capability nvlink_domain(int device) override { return nvlink_domain_of(raw_uuid_of(device)); }

  [[nodiscard]] bool wait_until_idle(int device, std::chrono::milliseconds limit) override {
    return cuda::wait_until_idle(device, limit);
  }

  void make_current(int device) override {
    check(driver().ctx_set_current(primary_context(device)), "cuCtxSetCurrent");
  }

  [[nodiscard]] std::size_t granularity(int device) override {
    const detail::device_facts known = facts(device);
    std::size_t bytes = granularity_of(device, handle_kind::none);
    for (const detail::handle_traits& each : detail::handle_kinds) {
      if ((known.*each.offered).available) bytes = std::max(bytes, granularity_of(device, each.kind));
    }
    return bytes;
  }

  [[nodiscard]] std::unique_ptr<detail::physical_memory> create_physical(int device, std::size_t bytes,
                                                                         handle_kind kind) override {
    return cuda::create_physical(device, bytes, kind);
  }
  [[nodiscard]] std::unique_ptr<detail::physical_memory> import_descriptor(int device, int descriptor,
                                                                           std::size_t bytes) override {
    return cuda::import_descriptor(device, descriptor, bytes);
  }
  [[nodiscard]] std::unique_ptr<detail::physical_memory> import_bytes(int device, handle_kind kind,
                                                                      std::span<const std::byte> handle,
                                                                      std::size_t bytes) override {
    return cuda::import_bytes(device, kind, handle, bytes);
  }
  [[nodiscard]] std::unique_ptr<detail::address_range> reserve(std::size_t bytes) override {
    return cuda::reserve(bytes);
  }
  [[nodiscard]] std::unique_ptr<detail::physical_memory> create_pinned(int, std::size_t bytes, handle_kind) override {
    return cuda::create_pinned(bytes);
  }
  [[nodiscard]] std::unique_ptr<detail::physical_memory> import_pinned(int, int descriptor,
                                                                       std::size_t bytes) override {
    return cuda::import_pinned(descriptor, bytes);
  }
  [[nodiscard]] std::unique_ptr<detail::address_range> reserve_pinned(std::size_t bytes) override {
    return cuda::reserve_pinned(bytes);
  }
  [[nodiscard]] std::size_t multicast_granularity(int members, handle_kind kind) override {
    return cuda::multicast_granularity(members, kind);
  }
  [[nodiscard]] std::unique_ptr<detail::multicast_object> create_multicast(int members, std::size_t bytes,
                                                                           handle_kind kind) override {
    return cuda::create_multicast(members, bytes, kind);
  }
  [[nodiscard]] std::unique_ptr<detail::multicast_object> import_multicast_descriptor(int descriptor,
                                                                                      std::size_t bytes) override {
    return cuda::import_multicast_descriptor(descriptor, bytes);
  }
  [[nodiscard]] std::unique_ptr<detail::multicast_object> import_multicast_bytes(handle_kind kind,
                                                                                 std::span<const std::byte> handle,
                                                                                 std::size_t bytes) override {
    return cuda::import_multicast_bytes(kind, handle, bytes);
  }
  [[nodiscard]] std::unique_ptr<detail::host_memory> allocate_host(int device, std::size_t bytes) override {
    return cuda::allocate_host(device, bytes);
  }
  void check_pointer(int device, void* pointer, std::size_t bytes, bool for_peers) override {
    cuda::check_pointer(device, pointer, bytes, for_peers);
  }
  [[nodiscard]] exported_pointer export_pointer(int device, void* pointer) override {
    return cuda::export_pointer(device, pointer);
  }
  [[nodiscard]] std::uint64_t allocation_id(int device, const void* pointer) override {
    return cuda::allocation_id(device, pointer);
  }
  [[nodiscard]] std::unique_ptr<detail::opened_memory> open_pointer(int device,
                                                                    std::span<const std::byte> handle) override {
    return cuda::open_pointer(device, handle);
  }

  [[nodiscard]] mapped_memory retain_mapped(int device, void* pointer, std::size_t bytes, handle_kind kind) override {
    return cuda::retain_mapped(device, pointer, bytes, kind);
  }

  void enable_peer_access(int device, int peer_device) override {
    const on_device scope(device);
    const CUresult code = driver().ctx_enable_peer_access(primary_context(peer_device), 0);
    if (code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) check(code, "cuCtxEnablePeerAccess");
  }

  [[nodiscard]] std::unique_ptr<detail::opened_memory> allocate_device(int device, std::size_t bytes) override {
    return cuda::allocate_device(device, bytes);
  }
  void zero(int device, void* destination, std::size_t bytes, std::chrono::milliseconds limit) override {
    set_to_zero(device, destination, bytes, limit);
  }
  void copy(int device, void* destination, const void* source, std::size_t bytes,
            std::chrono::milliseconds limit) override {
    copy_to_device(device, destination, source, bytes, limit);
  }
  void read(int device, void* destination, const void* source, std::size_t bytes,
            std::chrono::milliseconds limit) override {
    copy_to_host(device, destination, source, bytes, limit);
  }

  [[nodiscard]] capability network() override {
    return {true, "between the ranks of this process; payload goes through pinned host memory by copy engines"};
  }
  [[nodiscard]] std::unique_ptr<detail::background_task> start_background_task(
      int, const std::vector<int>& cpus, const detail::proxy_work& work) override {
    return cuda::start_background_task(cpus, work);
  }
  [[nodiscard]] std::unique_ptr<detail::copy_engine> open_copies(int device) override {
    return cuda::open_copies(device);
  }
  [[nodiscard]] capability network_from_host() override {
    return {false, "windows lie in GPU memory, which threads of the host do not reach"};
  }
  [[nodiscard]] capability device_from_cards(int device) override { return cuda::device_from_cards(device); }
  [[nodiscard]] std::unique_ptr<detail::copy_engine> open_copies_from_host(int device) override {
    return cuda::open_copies(device);
  }
  void as_other_processes(const std::function<void()>& work) override {
    stay_out_of_captures();
    work();
  }

 private:
  std::mutex mutex_;
  std::map<int, detail::device_facts> facts_;
};

}  // namespace
}  // namespace devcomm::host::cuda

devcomm::host::detail::backend& devcomm::host::detail::current_backend() {
  // Never destroyed: communicators may be static objects.
  static auto& the_backend = *new devcomm::host::cuda::cuda_backend;
  return the_backend;
}
