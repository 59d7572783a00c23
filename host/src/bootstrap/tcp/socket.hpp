/// \file socket.hpp
/// Non-blocking TCP sockets: closed on exec, no SIGPIPE, a deadline for every wait.
#pragma once

#include "util/deadline.hpp"
#include "util/unique_fd.hpp"

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {

/// "10.0.0.1:29500", "[::1]:29500", "node3:29500".
[[nodiscard]] std::string endpoint_text(const std::string& host, std::uint16_t port);

/// The inverse; throws `invalid_argument` saying `what` is wrong and how it should look.
struct endpoint {
  std::string host;
  std::uint16_t port;
};
[[nodiscard]] endpoint parse_endpoint(std::string_view text, const std::string& what);

/// Why `host` can be no host name or address, or empty.
[[nodiscard]] std::string host_problem(std::string_view host);

/// An address to bind or connect to.
struct socket_address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
  [[nodiscard]] std::string text() const;
};

/// All addresses of `host`, or none and `problem`. Takes at most the time that is left:
/// a look-up that the name server does not answer goes on in the background, and its answer is dropped.
[[nodiscard]] std::vector<socket_address> resolve(const std::string& host, std::uint16_t port, const deadline& until,
                                                  std::string& problem);

/// Where rank 0 listens for `host`: an address is taken literally, "localhost" is the loopback, and any
/// other name means all interfaces, since a host's own name is often its loopback in its own
/// /etc/hosts. Bound and not yet listening; 0 takes a free port. Throws `system_error` that names the
/// address, and `call`.
[[nodiscard]] unique_fd bind_for(const std::string& host, std::uint16_t port, const std::string& call);
[[nodiscard]] std::uint16_t bound_port(int fd);

/// A connection, or none and `problem`.
[[nodiscard]] unique_fd connect_to(const socket_address& address, const deadline& until, std::string& problem);
/// The next waiting connection, or none with errno set.
[[nodiscard]] unique_fd accept_from(int listener, std::string& peer);

/// All of `data` by the deadline; false with `problem` otherwise.
[[nodiscard]] bool send_all(int fd, std::span<const std::byte> data, const deadline& until, std::string& problem);
[[nodiscard]] bool receive_all(int fd, std::span<std::byte> data, const deadline& until, std::string& problem);

/// One attempt: bytes moved, 0 when it would block, -1 when the connection is over (`problem` says how).
[[nodiscard]] std::ptrdiff_t receive_some(int fd, std::span<std::byte> data, std::string& problem);

}  // namespace devcomm::host::detail
