#include <devcomm/host/error.hpp>
#include <devcomm/simulator/simulator.hpp>

#include "base/sanitizer.hpp"
#include "gpu/host_accesses.hpp"
#include "gpu/memory_names.hpp"
#include "runtime/background_task.hpp"
#include "runtime/host_port.hpp"
#include "runtime/host_thread.hpp"
#include "runtime/memory_file.hpp"
#include "runtime/memory_label.hpp"
#include "runtime/multicast_object.hpp"

#include <device/backend.hpp>
#include <util/unique_fd.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace devcomm::simulator {
namespace {

using host::capability;
using host::not_supported;
using host::system_error;
using host::detail::unique_fd;

std::size_t page() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Part of a simulated GPU's memory, given back on destruction.
class device_share {
 public:
  device_share(int device, std::size_t bytes) : device_(device), bytes_(bytes) {
    if (!detail::host_port::take_device_memory(device, bytes)) {
      throw system_error("simulated GPU " + std::to_string(device) + " has no " + std::to_string(bytes) +
                         " bytes left; ask for less, or free memory there");
    }
  }
  ~device_share() { detail::host_port::return_device_memory(device_, bytes_); }
  device_share(const device_share&) = delete;
  device_share& operator=(const device_share&) = delete;

 private:
  int device_;
  std::size_t bytes_;
};

class memfd final : public host::detail::physical_memory, public detail::file_memory {
 public:
  enum class place { device, pinned_host };
  /// `share` is its part of the device's memory; null for memory of the host or of another process.
  memfd(int device, unique_fd descriptor, std::size_t bytes, std::unique_ptr<device_share> share,
        place where = place::device)
      : device_(device), descriptor_(std::move(descriptor)), bytes_(bytes), share_(std::move(share)), where_(where) {}

  /// The device that it belongs to; for memory of another process, the device that imported it.
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] bool is_pinned() const noexcept { return where_ == place::pinned_host; }
  [[nodiscard]] int get() const noexcept { return descriptor_.get(); }
  [[nodiscard]] int file() const noexcept override { return descriptor_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] int export_descriptor() override { return detail::copy_of(descriptor_.get()); }
  [[nodiscard]] std::vector<std::byte> export_bytes() override {
    return detail::export_by_name(descriptor_.get(), bytes_);
  }

 private:
  int device_;
  unique_fd descriptor_;
  std::size_t bytes_;
  std::unique_ptr<device_share> share_;
  place where_;
};

/// Address space without memory, until some is mapped into it. Addresses without access on both sides end what runs
/// out of bounds.
class reservation final : public host::detail::address_range {
 public:
  explicit reservation(std::size_t bytes) : lead_(detail::empty_before_parts()), mapped_bytes_(lead_ + bytes + page()) {
    void* const range = ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) detail::fail_call("mmap");
    base_ = static_cast<char*>(range) + lead_;
  }
  ~reservation() override {
    for (char* each : mapped_) {
      detail::host_port::remove_physical_mapping(each);
      detail::host_port::remove_range(each);
    }
    for (char* each : multicast_) detail::host_port::remove_multicast_range(each);
    detail::host_port::retire_range(base_ - lead_, mapped_bytes_);
  }
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;

  [[nodiscard]] char* base() const noexcept override { return base_; }
  void map(std::size_t offset, host::detail::physical_memory& memory, std::span<const int>) override {
    const auto& from = dynamic_cast<memfd&>(memory);
    mapped_.reserve(mapped_.size() + 1);
    if (::mmap(base_ + offset, from.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, from.get(), 0) ==
        MAP_FAILED) {
      detail::fail_call("mmap");
    }
    mapped_.push_back(base_ + offset);
    if (from.is_pinned()) {
      detail::host_port::add_pinned_range(from.device(), base_ + offset, from.bytes());
    } else {
      detail::host_port::add_device_range(from.device(), base_ + offset, from.bytes());
    }
    detail::host_port::add_physical_mapping(detail::name_of_file(from.get()), base_ + offset, from.bytes());
  }
  /// Pages without access: what is no multimem access faults.
  void map(std::size_t offset, host::detail::multicast_object& object, std::size_t bytes,
           std::span<const int>) override {
    auto& from = dynamic_cast<detail::multicast_file&>(object);
    from.check_mapping(bytes);
    multicast_.reserve(multicast_.size() + 1);
    multicast_.push_back(base_ + offset);
    detail::host_port::add_multicast_range(base_ + offset, bytes, from.state());
  }

 private:
  std::size_t lead_;
  std::size_t mapped_bytes_;
  char* base_ = nullptr;
  std::vector<char*> mapped_;
  std::vector<char*> multicast_;
};

/// Zeroed, and freed on destruction.
class aligned_bytes {
 public:
  explicit aligned_bytes(std::size_t bytes) : data_(::operator new(bytes, alignment)) { std::memset(data_, 0, bytes); }
  ~aligned_bytes() { ::operator delete(data_, alignment); }
  aligned_bytes(const aligned_bytes&) = delete;
  aligned_bytes& operator=(const aligned_bytes&) = delete;

  [[nodiscard]] void* get() const noexcept { return data_; }

 private:
  static constexpr std::align_val_t alignment{4096};
  void* data_;
};

class plain_host_memory final : public host::detail::host_memory {
 public:
  explicit plain_host_memory(std::size_t bytes) : bytes_(bytes) { detail::add_host_range(bytes_.get(), bytes); }
  ~plain_host_memory() override { detail::remove_host_range(bytes_.get()); }
  plain_host_memory(const plain_host_memory&) = delete;
  plain_host_memory& operator=(const plain_host_memory&) = delete;
  [[nodiscard]] void* data() const noexcept override { return bytes_.get(); }

 private:
  aligned_bytes bytes_;
};

class plain_device_memory final : public host::detail::opened_memory {
 public:
  plain_device_memory(int device, std::size_t bytes) : share_(device, bytes), bytes_(bytes) {
    detail::host_port::add_device_range(device, bytes_.get(), bytes);
  }
  ~plain_device_memory() override { detail::host_port::remove_range(bytes_.get()); }
  plain_device_memory(const plain_device_memory&) = delete;
  plain_device_memory& operator=(const plain_device_memory&) = delete;
  [[nodiscard]] char* data() const noexcept override { return static_cast<char*>(bytes_.get()); }

 private:
  device_share share_;
  aligned_bytes bytes_;
};

/// Another process's allocation, mapped once however many ranks of this process open it.
class mapped_allocation {
 public:
  mapped_allocation(int device, const detail::remote_descriptor& name) : range_(name.bytes) {
    memfd memory(device, detail::open_by_name(name), name.bytes, nullptr);
    range_.map(0, memory, {});
  }
  [[nodiscard]] char* data() const noexcept { return range_.base(); }

 private:
  reservation range_;
};

class opened_allocation final : public host::detail::opened_memory {
 public:
  explicit opened_allocation(std::shared_ptr<mapped_allocation> mapping) : mapping_(std::move(mapping)) {}
  [[nodiscard]] char* data() const noexcept override { return mapping_->data(); }

 private:
  std::shared_ptr<mapped_allocation> mapping_;
};

class simulator_backend final : public host::detail::backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "simulator"; }
  [[nodiscard]] host::detail::backend_traits traits() const override {
    return {.checks_launches = true, .one_clock = true, .timing = {false, "kernels run on the CPU"}};
  }
  [[nodiscard]] int device_count() override { return detail::host_port::device_count(); }
  void provide_devices(int count) override {
    if (!detail::host_port::devices_are_named() && count > detail::host_port::device_count()) set_device_count(count);
  }

  [[nodiscard]] host::detail::device_facts facts(int device) override {
    host::detail::device_facts f;
    f.name = "simulated GPU " + std::to_string(device);
    f.multiprocessors = detail::host_port::multiprocessors();
    f.uuid = uuid_prefix + std::to_string(device);
    f.pci = static_cast<std::uint64_t>(device) << 8;
    f.file_descriptor_handles = {true, "shared memory of this host"};
    f.fabric_handles = {true, "shared memory of this host, opened through /proc"};
    f.cuda_ipc = {true, "shared memory of this host, opened through /proc"};
    f.pinned_host = {true, "memory of this host"};
    f.multicast = detail::host_port::has_multicast()
                      ? capability{true, "simulated NVLink switch"}
                      : capability{false, "DEVCOMM_SIM_MULTICAST=none: the simulated GPUs have no NVLink switch"};
    return f;
  }
  [[nodiscard]] capability peer_access(int device, const std::string& peer_uuid) override {
    if (peer_uuid.rfind(uuid_prefix, 0) != 0) return {false, "it is not a simulated GPU"};
    const int peer = std::atoi(peer_uuid.c_str() + std::strlen(uuid_prefix));
    if (detail::host_port::reach_each_other(device, peer)) return {true, "simulated"};
    return {false, "DEVCOMM_SIM_PEERS puts it in another group"};
  }
  [[nodiscard]] capability ll128_capability(int, const std::string&) override { return {true, "simulated"}; }
  void make_current(int device) override { detail::make_device_current(device); }
  [[nodiscard]] std::unique_ptr<host::detail::memory_label> label(
      const std::string& name, std::span<const host::detail::window_part> parts) override {
    return detail::label_memory(name, parts);
  }
  void name_rank(int device, int rank) override { detail::host_port::name_rank_of_device(device, rank); }
  void begin_observing() override { detail::host_port::begin_observing(); }
  void end_observing() override { detail::host_port::end_observing(); }
  void begin_waiting_for_ranks() override { detail::host_port::begin_waiting_for_ranks(); }
  void end_waiting_for_ranks() override { detail::host_port::end_waiting_for_ranks(); }
  [[nodiscard]] bool may_run_kernels() override { return detail::host_port::kernels_run(); }
  [[nodiscard]] bool wait_until_idle(int device, std::chrono::milliseconds limit) override {
    return detail::host_port::wait_until_idle(device, limit);
  }
  [[nodiscard]] std::string kernel_failure(int device) override { return detail::host_port::kernel_failure(device); }

  [[nodiscard]] std::size_t granularity(int) override { return page(); }
  [[nodiscard]] std::unique_ptr<host::detail::physical_memory> create_physical(
      int device, std::size_t bytes, host::detail::handle_kind kind) override {
    // Other processes may hold what is exported, so their ranks may answer kernels that wait here.
    if (kind != host::detail::handle_kind::none) detail::host_port::note_shared_memory();
    auto share = std::make_unique<device_share>(device, bytes);
    return std::make_unique<memfd>(device, detail::make_file(bytes), bytes, std::move(share));
  }
  [[nodiscard]] std::unique_ptr<host::detail::physical_memory> create_pinned(int device, std::size_t bytes,
                                                                             host::detail::handle_kind kind) override {
    if (kind != host::detail::handle_kind::none) detail::host_port::note_shared_memory();
    return std::make_unique<memfd>(device, detail::make_file(bytes), bytes, nullptr, memfd::place::pinned_host);
  }
  [[nodiscard]] std::unique_ptr<host::detail::address_range> reserve_pinned(std::size_t bytes) override {
    return std::make_unique<reservation>(bytes);
  }
  [[nodiscard]] std::unique_ptr<host::detail::physical_memory> import_pinned(int device, int descriptor,
                                                                             std::size_t bytes) override {
    return import(device, unique_fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)), bytes, memfd::place::pinned_host);
  }
  [[nodiscard]] std::unique_ptr<host::detail::physical_memory> import_descriptor(int device, int descriptor,
                                                                                 std::size_t bytes) override {
    return import(device, unique_fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)), bytes);
  }
  [[nodiscard]] std::unique_ptr<host::detail::physical_memory> import_bytes(int device, host::detail::handle_kind,
                                                                            std::span<const std::byte> handle,
                                                                            std::size_t bytes) override {
    return import(device, detail::open_by_name(detail::parse_name(handle)), bytes);
  }
  [[nodiscard]] std::size_t multicast_granularity(int, host::detail::handle_kind) override {
    return detail::multicast_file::granularity;
  }
  [[nodiscard]] std::unique_ptr<host::detail::multicast_object> create_multicast(
      int members, std::size_t bytes, host::detail::handle_kind kind) override {
    require_multicast();
    if (kind != host::detail::handle_kind::none) detail::host_port::note_shared_memory();
    return detail::multicast_file::create(members, bytes);
  }
  [[nodiscard]] std::unique_ptr<host::detail::multicast_object> import_multicast_descriptor(
      int descriptor, std::size_t bytes) override {
    require_multicast();
    detail::host_port::note_shared_memory();
    return detail::multicast_file::open(unique_fd(detail::copy_of(descriptor)), bytes);
  }
  [[nodiscard]] std::unique_ptr<host::detail::multicast_object> import_multicast_bytes(
      host::detail::handle_kind, std::span<const std::byte> handle, std::size_t bytes) override {
    require_multicast();
    detail::host_port::note_shared_memory();
    return detail::multicast_file::open(detail::open_by_name(detail::parse_name(handle)), bytes);
  }
  [[nodiscard]] std::size_t empty_after_part(int parts) override { return detail::empty_after_part(parts); }
  [[nodiscard]] std::unique_ptr<host::detail::address_range> reserve(std::size_t bytes) override {
    return std::make_unique<reservation>(bytes);
  }
  [[nodiscard]] std::unique_ptr<host::detail::host_memory> allocate_host(int, std::size_t bytes) override {
    return std::make_unique<plain_host_memory>(bytes);
  }

  void check_pointer(int device, void* pointer, std::size_t bytes, bool) override {
    const auto found = detail::host_port::find_allocation(pointer);
    if (!found || found->descriptor < 0) {
      throw not_supported(
          "the pointer is not cudaMalloc memory, which peers need; allocate with cudaMalloc, or use "
          "communicator::allocate");
    }
    if (found->device != device) {
      throw host::invalid_argument("the memory lies on device " + std::to_string(found->device) +
                                   " and this rank uses device " + std::to_string(device) +
                                   "; allocate it while the rank's device is current");
    }
    const std::size_t left = found->bytes - static_cast<std::size_t>(static_cast<char*>(pointer) - found->base);
    if (bytes > left) {
      throw host::invalid_argument(std::to_string(bytes) + " bytes run past the end of the allocation, which has " +
                                   std::to_string(left) + " left; register less or allocate more");
    }
  }
  [[nodiscard]] exported_pointer export_pointer(int, void* pointer) override {
    const auto found = detail::host_port::find_allocation(pointer);
    if (!found) throw system_error("simulator: the memory was freed while it was registered");
    detail::host_port::note_shared_memory();
    return {detail::export_by_name(found->descriptor, found->bytes),
            static_cast<std::size_t>(static_cast<char*>(pointer) - found->base)};
  }
  /// Of any allocation, in whole granules; only the part that it has is ever accessed.
  [[nodiscard]] bindable_memory retain_bindable(int device, void* pointer, std::size_t,
                                                host::detail::handle_kind kind) override {
    const auto found = detail::host_port::find_allocation(pointer);
    if (!found) return {};
    if (kind != host::detail::handle_kind::none) detail::host_port::note_shared_memory();
    constexpr std::size_t granularity = detail::multicast_file::granularity;
    const std::size_t bytes = (found->bytes + granularity - 1) / granularity * granularity;
    detail::host_port::add_physical_mapping(detail::name_of_file(found->descriptor), found->base, bytes);
    return {std::make_shared<memfd>(device, unique_fd(detail::copy_of(found->descriptor)), bytes, nullptr), bytes,
            static_cast<std::size_t>(static_cast<char*>(pointer) - found->base)};
  }
  [[nodiscard]] std::uint64_t allocation_id(int, const void* pointer) override {
    const auto found = detail::host_port::find_allocation(pointer);
    return found ? found->number : 0;
  }
  [[nodiscard]] std::unique_ptr<host::detail::opened_memory> open_pointer(int device,
                                                                          std::span<const std::byte> handle) override {
    detail::host_port::note_shared_memory();
    const std::lock_guard lock(mutex_);
    std::erase_if(opened_, [](const auto& entry) { return entry.second.expired(); });
    auto& entry = opened_[std::string(reinterpret_cast<const char*>(handle.data()), handle.size())];
    std::shared_ptr<mapped_allocation> mapping = entry.lock();
    if (!mapping) entry = mapping = std::make_shared<mapped_allocation>(device, detail::parse_name(handle));
    return std::make_unique<opened_allocation>(std::move(mapping));
  }
  void enable_peer_access(int, int) override {}

  [[nodiscard]] std::unique_ptr<host::detail::opened_memory> allocate_device(int device, std::size_t bytes) override {
    return std::make_unique<plain_device_memory>(device, bytes);
  }
  void zero(int, void* destination, std::size_t bytes, std::chrono::milliseconds) override {
    // Whole pages of shared memory become zeros by being given back.
    const bool whole = reinterpret_cast<std::uintptr_t>(destination) % page() == 0 && bytes % page() == 0;
    if (whole && ::madvise(destination, bytes, MADV_REMOVE) == 0) return;
    const detail::sanitizer::unobserved ordered_by_the_call;
    std::memset(destination, 0, bytes);
  }
  void copy(int, void* destination, const void* source, std::size_t bytes, std::chrono::milliseconds) override {
    const detail::sanitizer::unobserved ordered_by_the_call;
    std::memcpy(destination, source, bytes);
  }
  void read(int device, void* destination, const void* source, std::size_t bytes,
            std::chrono::milliseconds limit) override {
    copy(device, destination, source, bytes, limit);
  }

  [[nodiscard]] host::capability network() override { return {true, "between the ranks of this process"}; }
  void expect_other_processes() override { detail::host_port::note_shared_memory(); }
  /// The race detector sees copies in libraries too, and knows no order between them and kernels.
  void as_other_processes(const std::function<void()>& work) override {
    if (!detail::sanitizer::exact()) return work();
    const detail::sanitizer::unobserved hidden;
    work();
  }
  [[nodiscard]] host::capability network_from_host() override { return {true, "memory of simulated GPUs"}; }
  [[nodiscard]] std::unique_ptr<host::detail::background_task> start_background_task(
      int rank, const std::vector<int>&, const host::detail::proxy_work& work) override {
    return detail::start_background_task(rank, work);
  }
  void fetch(void* own, const void* shared, std::size_t bytes) override {
    detail::fetch_in_background(own, shared, bytes);
  }
  void deliver(void* shared, const void* own, std::size_t bytes) override {
    detail::deliver_in_background(shared, own, bytes);
  }
  [[nodiscard]] std::uint64_t load(const std::uint64_t* word) override { return detail::load_in_background(word); }
  void store(std::uint64_t* word, std::uint64_t value) override { detail::store_in_background(word, value); }
  [[nodiscard]] gin::descriptor take(const gin::descriptor* posted) override {
    return detail::take_in_background(posted, [&] { return network_port::take(posted); });
  }

 private:
  static constexpr const char* uuid_prefix = "simulated-";

  static void require_multicast() {
    if (!detail::host_port::has_multicast())
      throw not_supported("DEVCOMM_SIM_MULTICAST=none: the simulated GPUs have no NVLink switch");
  }

  [[nodiscard]] static std::unique_ptr<memfd> import(int device, unique_fd descriptor, std::size_t bytes,
                                                     memfd::place where = memfd::place::device) {
    if (!descriptor) detail::fail_call("fcntl");
    if (detail::status_of(descriptor.get()).st_size < static_cast<off_t>(bytes)) {
      throw system_error(
          "simulator: memory from another process is smaller than it said; link all ranks with "
          "one version of devcomm");
    }
    detail::host_port::note_shared_memory();
    return std::make_unique<memfd>(device, std::move(descriptor), bytes, nullptr, where);
  }

  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<mapped_allocation>> opened_;
};

}  // namespace
}  // namespace devcomm::simulator

devcomm::host::detail::backend& devcomm::host::detail::current_backend() {
  using devcomm::simulator::simulator_backend;
  // Never destroyed: communicators may be static objects. Not on the heap: ThreadSanitizer sees what is allocated
  // there, and does not see that the initialization comes before the use.
  alignas(simulator_backend) static std::byte place[sizeof(simulator_backend)];
  static auto& the_backend = *new (place) simulator_backend;
  return the_backend;
}
