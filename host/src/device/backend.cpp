#include "device/backend.hpp"

#include <devcomm/host/error.hpp>

namespace devcomm::host::detail {
namespace {

[[noreturn]] void no_network() { throw not_supported("this backend has no network"); }
[[noreturn]] void no_multicast() { throw not_supported("this backend has no multicast"); }

}  // namespace

void address_range::map(std::size_t, multicast_object&, std::size_t, std::span<const int>) { no_multicast(); }

std::size_t memory_port::multicast_granularity(int, handle_kind) { no_multicast(); }

std::unique_ptr<multicast_object> memory_port::create_multicast(int, std::size_t, handle_kind) { no_multicast(); }

std::unique_ptr<multicast_object> sharing_port::import_multicast_descriptor(int, std::size_t) { no_multicast(); }

std::unique_ptr<multicast_object> sharing_port::import_multicast_bytes(handle_kind, std::span<const std::byte>,
                                                                       std::size_t) {
  no_multicast();
}

capability network_port::network() { return {false, "this version has no network transport for these devices"}; }

capability network_port::network_from_host() {
  return {false, "this version has no network transport for memory of these devices"};
}

std::unique_ptr<companion> network_port::accompany(int, const std::function<bool(const choose_next&)>&) {
  no_network();
}

void network_port::fetch(void*, const void*, std::size_t) { no_network(); }

void network_port::deliver(void*, const void*, std::size_t) { no_network(); }

std::uint64_t network_port::load(const std::uint64_t*) { no_network(); }

void network_port::store(std::uint64_t*, std::uint64_t) { no_network(); }

}  // namespace devcomm::host::detail
