// Memory whose owner a multicast object can be made over.
#include "state.hpp"

#include "device/backend.hpp"
#include "rank/settings.hpp"
#include "util/environment.hpp"

#include <devcomm/host/error.hpp>

#include <mutex>
#include <numeric>
#include <utility>

namespace devcomm::nccl {
namespace {

/// Physical memory of the current device, mapped for all devices that reach it. A simulated device's can be bound to
/// multicast objects as it is.
class allocation {
 public:
  explicit allocation(std::size_t bytes) : bytes_(bytes) {
#if defined(DEVCOMM_SIMULATOR)
    check_cuda(cudaMalloc(&data_, bytes), "ncclMemAlloc: cudaMalloc");
#else
    host::detail::backend& devices = host::detail::current_backend();
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    const host::detail::device_facts facts = devices.facts(device);
    const host::detail::handle_kind kind = handle_kind_of(facts);
    std::size_t unit = devices.granularity(device);
    if (facts.multicast.available) unit = std::lcm(unit, devices.multicast_granularity(2, kind));
    const std::size_t whole = (bytes + unit - 1) / unit * unit;
    memory_ = devices.create_physical(device, whole, kind);
    range_ = devices.reserve(whole);
    range_->map(0, *memory_, devices_that_reach(device));
    data_ = range_->base();
#endif
  }
  allocation(const allocation&) = delete;
  allocation& operator=(const allocation&) = delete;
#if defined(DEVCOMM_SIMULATOR)
  ~allocation() { cudaFree(data_); }
#endif

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
#if !defined(DEVCOMM_SIMULATOR)
  /// What other processes open it by: as `DEVCOMM_MEMORY_HANDLE` says, or by the first kind that the device has.
  static host::detail::handle_kind handle_kind_of(const host::detail::device_facts& facts) {
    const host::detail::handle_kind wanted = host::detail::wanted_handle(host::detail::process_variables());
    if (wanted != host::detail::handle_kind::none) return wanted;
    for (const host::detail::handle_traits& each : host::detail::handle_kinds)
      if ((facts.*each.offered).available) return each.kind;
    return host::detail::handle_kind::none;
  }
  static std::vector<int> devices_that_reach(int device) {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    std::vector<int> users{device};
    for (int peer = 0; peer < count; ++peer) {
      int reaches = 0;
      if (peer != device) check_cuda(cudaDeviceCanAccessPeer(&reaches, peer, device), "cudaDeviceCanAccessPeer");
      if (reaches != 0) users.push_back(peer);
    }
    return users;
  }

  std::unique_ptr<host::detail::physical_memory> memory_;
  std::unique_ptr<host::detail::address_range> range_;  // destroyed first
#endif
  void* data_ = nullptr;
  std::size_t bytes_;
};

std::mutex& allocations_guard() {
  static auto& guard = *new std::mutex;
  return guard;
}
// Never destroyed: a program may end without freeing its memory.
std::map<const char*, std::unique_ptr<allocation>>& allocations() {
  static auto& all = *new std::map<const char*, std::unique_ptr<allocation>>;
  return all;
}

}  // namespace

bool is_from_mem_alloc(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(allocations_guard());
  const auto* const at = static_cast<const char*>(memory);
  const auto next = allocations().upper_bound(at);
  if (next == allocations().begin()) return false;
  const auto& [begin, found] = *std::prev(next);
  return at + bytes <= begin + found->bytes();
}

}  // namespace devcomm::nccl

using namespace devcomm;

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  return nccl::guarded(nullptr, [&] {
    nccl::require(ptr, "ncclMemAlloc: where the address goes");
    if (size == 0) throw host::invalid_argument("ncclMemAlloc: 0 bytes; ask for at least 1");
    auto made = std::make_unique<nccl::allocation>(size);
    *ptr = made->data();
    const std::lock_guard lock(nccl::allocations_guard());
    nccl::allocations()[static_cast<const char*>(*ptr)] = std::move(made);
  });
}

ncclResult_t ncclMemFree(void* ptr) {
  return nccl::guarded(nullptr, [&] {
    if (ptr == nullptr) return;
    std::unique_ptr<nccl::allocation> freed;  // without the lock
    const std::lock_guard lock(nccl::allocations_guard());
    const auto found = nccl::allocations().find(static_cast<const char*>(ptr));
    if (found == nccl::allocations().end())
      throw host::invalid_argument("ncclMemFree: the address is none that ncclMemAlloc has returned, or was freed before");
    freed = std::move(found->second);
    nccl::allocations().erase(found);
  });
}
