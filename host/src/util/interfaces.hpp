/// \file interfaces.hpp
/// Addresses of this host's network interfaces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {

struct interface_address {
  std::string interface;
  std::string address;  ///< "10.0.0.1" or "2001:db8::1"
  bool ipv6 = false;
};

/// Whether `host`, an address or a name, is what every host calls itself.
[[nodiscard]] bool is_loopback(std::string_view host);

/// Whether other hosts cannot use `host`: it is a loopback address, or one of a link, which means another host on each
/// interface.
[[nodiscard]] bool is_local_only(std::string_view host);

/// IPv4 and IPv6 addresses of all interfaces that are up. Throws `system_error`.
[[nodiscard]] std::vector<interface_address> interface_addresses();

}  // namespace devcomm::host::detail
