/// \file listener.hpp
/// Where rank 0 listens.
#pragma once

#include "bootstrap/ports.hpp"
#include "util/interfaces.hpp"
#include "util/unique_fd.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// Addresses to listen at for a name that resolves to `of_name`, the first that works: the one of them that is `here`
/// and that other hosts can use. Where there is none, as when a host's own name is its loopback address in /etc/hosts,
/// or more than one, other hosts may know another address by the name, and these are all interfaces.
[[nodiscard]] std::vector<std::string> addresses_to_listen_at(const std::vector<std::string>& of_name,
                                                              const std::vector<interface_address>& here);

/// A socket bound for `host`, not yet listening: an address is taken literally, "localhost" is the loopback, "::" are
/// all interfaces for both families, another name is what `addresses_to_listen_at` says. 0 takes a free port. Throws
/// `system_error` that names the address, and `call`.
[[nodiscard]] unique_fd bind_for(const std::string& host, std::uint16_t port, const std::string& call);

/// The same at a port of `ports` that no other program has, nor `bind_in` or `bind_for` elsewhere.
[[nodiscard]] unique_fd bind_in(const std::string& host, port_range ports, const std::string& call);

}  // namespace devcomm::host::detail
