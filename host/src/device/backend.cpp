#include "device/backend.hpp"

#include <devcomm/host/error.hpp>

#include <atomic>
#include <cstring>
#include <utility>

namespace devcomm::host::detail {
namespace {

[[noreturn]] void no_network() { throw not_supported("this backend has no network"); }
[[noreturn]] void no_pinned() { throw not_supported("this backend has no windows in pinned host memory"); }
[[noreturn]] void no_multicast() { throw not_supported("this backend has no multicast"); }

/// Copies that are done when they have begun.
class immediate_copies final : public copy_engine {
 public:
  explicit immediate_copies(network_port& port) : port_(port) {}
  [[nodiscard]] std::uint64_t begin_read(void* host, const void* on_device, std::size_t bytes) override {
    port_.fetch(host, on_device, bytes);
    return 0;
  }
  [[nodiscard]] std::uint64_t begin_write(void* on_device, const void* host, std::size_t bytes) override {
    port_.deliver(on_device, host, bytes);
    return 0;
  }
  void poll() override {}
  [[nodiscard]] bool is_done(std::uint64_t) const override { return true; }

 private:
  network_port& port_;
};

}  // namespace

void address_range::map(std::size_t, multicast_object&, std::size_t, std::span<const int>) { no_multicast(); }

std::unique_ptr<physical_memory> memory_port::create_pinned(int, std::size_t, handle_kind) { no_pinned(); }

std::unique_ptr<address_range> memory_port::reserve_pinned(std::size_t) { no_pinned(); }

std::unique_ptr<physical_memory> sharing_port::import_pinned(int, int, std::size_t) { no_pinned(); }

std::size_t memory_port::multicast_granularity(int, handle_kind) { no_multicast(); }

std::unique_ptr<multicast_object> memory_port::create_multicast(int, std::size_t, handle_kind) { no_multicast(); }

std::unique_ptr<multicast_object> sharing_port::import_multicast_descriptor(int, std::size_t) { no_multicast(); }

std::unique_ptr<multicast_object> sharing_port::import_multicast_bytes(handle_kind, std::span<const std::byte>,
                                                                       std::size_t) {
  no_multicast();
}

capability sharing_port::nvlink_domain(int) {
  return {false, "these devices have none, and DEVCOMM_NVLINK_DOMAIN is not set"};
}

sharing_port::mapped_memory sharing_port::retain_mapped(int, void*, std::size_t, handle_kind) { return {}; }

sharing_port::bindable_memory sharing_port::retain_bindable(int device, void* pointer, std::size_t bytes,
                                                            handle_kind kind) {
  mapped_memory found = retain_mapped(device, pointer, bytes, kind);
  if (found.pieces.size() != 1) return {};
  return {std::move(found.pieces.front()), found.bytes.front(), found.offset};
}

capability network_port::network() { return {false, "this version has no network transport for these devices"}; }

capability network_port::network_from_host() {
  return {false, "this version has no network transport for memory of these devices"};
}

capability network_port::device_from_cards(int) { return {false, "these devices have no memory for network cards"}; }

std::unique_ptr<background_task> network_port::start_background_task(int, const std::vector<int>&, const proxy_work&) {
  no_network();
}

std::unique_ptr<copy_engine> network_port::open_copies(int) { return open_direct_copies(); }

std::unique_ptr<copy_engine> network_port::open_direct_copies() { return std::make_unique<immediate_copies>(*this); }

std::unique_ptr<copy_engine> network_port::open_copies_from_host(int) {
  class plain_port final : public network_port {};
  static plain_port plain;
  return std::make_unique<immediate_copies>(plain);
}

void network_port::fetch(void* own, const void* shared, std::size_t bytes) { std::memcpy(own, shared, bytes); }

void network_port::deliver(void* shared, const void* own, std::size_t bytes) { std::memcpy(shared, own, bytes); }

std::uint64_t network_port::load(const std::uint64_t* word) {
  return std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
}

void network_port::store(std::uint64_t* word, std::uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

gin::descriptor network_port::take(const gin::descriptor* posted) {
  return {load(&posted->local), load(&posted->remote),       load(&posted->windows), load(&posted->bytes),
          load(&posted->value), load(&posted->signal_value), load(&posted->actions), load(&posted->head)};
}

}  // namespace devcomm::host::detail
