#include <devcomm/host/error.hpp>
#include <devcomm/simulator/simulator.hpp>

#include "base/sanitizer.hpp"
#include "gpu/host_accesses.hpp"
#include "runtime/current_device.hpp"
#include "runtime/host_port.hpp"
#include "runtime/memory_label.hpp"

#include <device/backend.hpp>
#include <util/unique_fd.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

[[noreturn]] void fail(const char* call) {
  throw system_error(std::string("simulator: ") + call + " failed: " + std::strerror(errno));
}

std::size_t page() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

struct stat status_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail("fstat");
  return status;
}

/// A memfd of a process of this host, as bytes: both fabric handles and CUDA IPC are implemented by it.
struct remote_descriptor {
  std::int64_t pid;
  std::int64_t descriptor;
  std::uint64_t inode;
  std::uint64_t bytes;
};

std::vector<std::byte> export_by_name(int descriptor, std::size_t bytes) {
  const remote_descriptor name{::getpid(), descriptor, status_of(descriptor).st_ino, bytes};
  const auto raw = std::as_bytes(std::span(&name, 1));
  return {raw.begin(), raw.end()};
}

remote_descriptor parse_name(std::span<const std::byte> handle) {
  remote_descriptor name{};
  if (handle.size() != sizeof name) {
    throw system_error("simulator: a memory handle of " + std::to_string(handle.size()) + " bytes is not one of the " +
                       "simulator's; link all ranks with the simulator");
  }
  std::memcpy(&name, handle.data(), sizeof name);
  return name;
}

unique_fd open_by_name(const remote_descriptor& name) {
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.descriptor);
  unique_fd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const auto same = [&](const struct stat& file) {
    return file.st_ino == name.inode && static_cast<std::uint64_t>(file.st_size) >= name.bytes;
  };
  if (!opened || !same(status_of(opened.get()))) {
    throw system_error("simulator: memory of process " + std::to_string(name.pid) + " cannot be opened (" +
                       (opened ? "it was freed" : std::strerror(errno)) +
                       "); all ranks must run as one user, and keep their memory until all are done");
  }
  return opened;
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

class memfd final : public host::detail::physical_memory {
 public:
  /// `share` is its part of the device's memory; null for memory of another process.
  memfd(int device, unique_fd descriptor, std::size_t bytes, std::unique_ptr<device_share> share)
      : device_(device), descriptor_(std::move(descriptor)), bytes_(bytes), share_(std::move(share)) {}

  /// The device that it belongs to; for memory of another process, the device that imported it.
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] int get() const noexcept { return descriptor_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int export_descriptor() override {
    const int copy = ::fcntl(descriptor_.get(), F_DUPFD_CLOEXEC, 0);
    if (copy < 0) fail("fcntl");
    return copy;
  }
  [[nodiscard]] std::vector<std::byte> export_fabric() override { return export_by_name(descriptor_.get(), bytes_); }

 private:
  int device_;
  unique_fd descriptor_;
  std::size_t bytes_;
  std::unique_ptr<device_share> share_;
};

/// Address space without memory, until some is mapped into it. Pages without access on both sides end what runs
/// out of bounds.
class reservation final : public host::detail::address_range {
 public:
  explicit reservation(std::size_t bytes) : mapped_bytes_(bytes + 2 * page()) {
    void* const range = ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) fail("mmap");
    base_ = static_cast<char*>(range) + page();
  }
  ~reservation() override {
    for (char* each : mapped_) detail::host_port::remove_device_range(each);
    detail::host_port::retire_range(base_ - page(), mapped_bytes_);
  }
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;

  [[nodiscard]] char* base() const noexcept override { return base_; }
  void map(std::size_t offset, host::detail::physical_memory& memory, std::span<const int>) override {
    const auto& from = dynamic_cast<memfd&>(memory);
    mapped_.reserve(mapped_.size() + 1);
    if (::mmap(base_ + offset, from.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, from.get(), 0) ==
        MAP_FAILED) {
      fail("mmap");
    }
    mapped_.push_back(base_ + offset);
    detail::host_port::add_device_range(from.device(), base_ + offset, from.bytes());
  }

 private:
  std::size_t mapped_bytes_;
  char* base_ = nullptr;
  std::vector<char*> mapped_;
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
  ~plain_device_memory() override { detail::host_port::remove_device_range(bytes_.get()); }
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
  mapped_allocation(int device, const remote_descriptor& name) : range_(name.bytes) {
    memfd memory(device, open_by_name(name), name.bytes, nullptr);
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
    if (count > detail::host_port::device_count()) set_device_count(count);
  }

  [[nodiscard]] host::detail::device_facts facts(int device) override {
    host::detail::device_facts f;
    f.name = "simulated GPU " + std::to_string(device);
    f.multiprocessors = detail::host_port::multiprocessors();
    f.uuid = uuid_prefix + std::to_string(device);
    f.file_descriptor_handles = {true, "shared memory of this host"};
    f.fabric_handles = {true, "shared memory of this host, opened through /proc"};
    f.cuda_ipc = {true, "shared memory of this host, opened through /proc"};
    f.multicast = {false, "the simulator has no NVLink switch"};
    return f;
  }
  [[nodiscard]] capability peer_access(int, const std::string& peer_uuid) override {
    if (peer_uuid.rfind(uuid_prefix, 0) == 0) return {true, "simulated"};
    return {false, "it is not a simulated GPU"};
  }
  [[nodiscard]] capability whole_lines(int, const std::string&) override { return {true, "simulated"}; }
  void make_current(int device) override { detail::make_device_current(device); }
  [[nodiscard]] std::unique_ptr<host::detail::memory_label> label(
      const std::string& name, std::span<const host::detail::window_part> parts) override {
    return detail::label_memory(name, parts);
  }
  void name_rank(int device, int rank) override { detail::host_port::name_rank_of_device(device, rank); }
  void begin_observing() override { detail::host_port::begin_looking_on(); }
  void end_observing() override { detail::host_port::end_looking_on(); }
  [[nodiscard]] bool may_run_kernels() override { return detail::host_port::kernels_run(); }

  [[nodiscard]] std::size_t granularity(int) override { return page(); }
  [[nodiscard]] std::unique_ptr<host::detail::physical_memory> create_physical(
      int device, std::size_t bytes, host::detail::handle_kind kind) override {
    // Other processes may hold what is exported, so their ranks may answer kernels that wait here.
    if (kind != host::detail::handle_kind::none) detail::host_port::note_shared_memory();
    auto share = std::make_unique<device_share>(device, bytes);
    unique_fd descriptor(::memfd_create("devcomm", MFD_CLOEXEC));
    if (!descriptor) fail("memfd_create");
    if (::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) fail("ftruncate");
    return std::make_unique<memfd>(device, std::move(descriptor), bytes, std::move(share));
  }
  [[nodiscard]] std::unique_ptr<host::detail::physical_memory> import_descriptor(int device, int descriptor,
                                                                                 std::size_t bytes) override {
    return import(device, unique_fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)), bytes);
  }
  [[nodiscard]] std::unique_ptr<host::detail::physical_memory> import_fabric(int device,
                                                                             std::span<const std::byte> handle,
                                                                             std::size_t bytes) override {
    return import(device, open_by_name(parse_name(handle)), bytes);
  }
  [[nodiscard]] std::unique_ptr<host::detail::address_range> reserve(std::size_t bytes) override {
    return std::make_unique<reservation>(bytes);
  }
  [[nodiscard]] std::unique_ptr<host::detail::host_memory> allocate_host(int, std::size_t bytes) override {
    return std::make_unique<plain_host_memory>(bytes);
  }

  [[nodiscard]] exported_pointer export_pointer(int, void* pointer, std::size_t bytes) override {
    const auto found = detail::host_port::find_allocation(pointer);
    const auto* const at = static_cast<char*>(pointer);
    if (!found || found->descriptor < 0) {
      throw not_supported(
          "the pointer is not cudaMalloc memory, which CUDA IPC needs; allocate "
          "with cudaMalloc, or use communicator::allocate");
    }
    const auto offset = static_cast<std::size_t>(at - found->base);
    if (bytes > found->bytes - offset) {
      throw host::invalid_argument(std::to_string(bytes) + " bytes run past the end of the " +
                                   "allocation, which has " + std::to_string(found->bytes - offset) +
                                   " left; register less or allocate more");
    }
    detail::host_port::note_shared_memory();
    return {export_by_name(found->descriptor, found->bytes), offset};
  }
  [[nodiscard]] std::unique_ptr<host::detail::opened_memory> open_pointer(int device,
                                                                          std::span<const std::byte> handle) override {
    detail::host_port::note_shared_memory();
    const std::lock_guard lock(mutex_);
    std::erase_if(opened_, [](const auto& entry) { return entry.second.expired(); });
    auto& entry = opened_[std::string(reinterpret_cast<const char*>(handle.data()), handle.size())];
    std::shared_ptr<mapped_allocation> mapping = entry.lock();
    if (!mapping) entry = mapping = std::make_shared<mapped_allocation>(device, parse_name(handle));
    return std::make_unique<opened_allocation>(std::move(mapping));
  }
  void enable_peer_access(int, int) override {}

  [[nodiscard]] std::unique_ptr<host::detail::opened_memory> allocate_device(int device, std::size_t bytes) override {
    return std::make_unique<plain_device_memory>(device, bytes);
  }
  void zero(int, void* destination, std::size_t bytes) override {
    // Whole pages of shared memory become zeros by being given back.
    const bool whole = reinterpret_cast<std::uintptr_t>(destination) % page() == 0 && bytes % page() == 0;
    if (whole && ::madvise(destination, bytes, MADV_REMOVE) == 0) return;
    const detail::sanitizer::unobserved ordered_by_the_call;
    std::memset(destination, 0, bytes);
  }
  void copy(int, void* destination, const void* source, std::size_t bytes) override {
    const detail::sanitizer::unobserved ordered_by_the_call;
    std::memcpy(destination, source, bytes);
  }
  void read(int device, void* destination, const void* source, std::size_t bytes) override {
    copy(device, destination, source, bytes);
  }

 private:
  static constexpr const char* uuid_prefix = "simulated-";

  [[nodiscard]] static std::unique_ptr<memfd> import(int device, unique_fd descriptor, std::size_t bytes) {
    if (!descriptor) fail("fcntl");
    if (status_of(descriptor.get()).st_size < static_cast<off_t>(bytes)) {
      throw system_error(
          "simulator: memory from another process is smaller than it said; link all ranks with "
          "one version of devcomm");
    }
    detail::host_port::note_shared_memory();
    return std::make_unique<memfd>(device, std::move(descriptor), bytes, nullptr);
  }

  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<mapped_allocation>> opened_;
};

}  // namespace
}  // namespace devcomm::simulator

devcomm::host::detail::backend& devcomm::host::detail::current_backend() {
  static devcomm::simulator::simulator_backend the_backend;
  return the_backend;
}
