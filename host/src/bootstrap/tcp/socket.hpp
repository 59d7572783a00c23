/// \file socket.hpp
/// Non-blocking TCP sockets: closed on exec, no SIGPIPE, a deadline for every wait.
#pragma once

#include "util/deadline.hpp"
#include "util/unique_fd.hpp"

#include <sys/socket.h>

#include <chrono>
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
  /// "10.0.0.1", also where IPv6 carries it; empty for what is no address.
  [[nodiscard]] std::string host_text() const;
  [[nodiscard]] std::string text() const;
};

/// The address that `host` is, or none when it is a name.
[[nodiscard]] std::vector<socket_address> numeric_addresses(const std::string& host, std::uint16_t port);

/// All addresses of `host`, or none and `problem`. Takes at most the time that is left:
/// a look-up that the name server does not answer goes on in the background, and its answer is dropped.
[[nodiscard]] std::vector<socket_address> resolve(const std::string& host, std::uint16_t port, const deadline& until,
                                                  std::string& problem);

[[nodiscard]] std::uint16_t bound_port(int fd);
/// The address of a connection's own end, without port: "10.0.0.1"; empty when there is none.
[[nodiscard]] std::string address_of_this_end(int fd);

/// After how long a silent host is taken for gone: `DEVCOMM_PEER_TIMEOUT` (seconds), else the default. Throws
/// `invalid_argument` for another value.
inline constexpr std::chrono::milliseconds default_peer_limit = std::chrono::seconds(30);
[[nodiscard]] std::chrono::milliseconds peer_limit();

/// A connection, or none and `problem`. It ends when the other side answers nothing for `silence`.
[[nodiscard]] unique_fd connect_to(const socket_address& address, const deadline& until, std::string& problem,
                                   std::chrono::milliseconds silence = default_peer_limit);
/// The next waiting connection, or none with errno set. It ends when the other side answers nothing for `silence`.
[[nodiscard]] unique_fd accept_from(int listener, std::string& peer,
                                    std::chrono::milliseconds silence = default_peer_limit);

/// All of `data` by the deadline; false with `problem` otherwise.
[[nodiscard]] bool send_all(int fd, std::span<const std::byte> data, const deadline& until, std::string& problem);
[[nodiscard]] bool receive_all(int fd, std::span<std::byte> data, const deadline& until, std::string& problem);

/// One attempt: bytes moved, 0 when it would block, -1 when the connection is over (`problem` says how).
[[nodiscard]] std::ptrdiff_t receive_some(int fd, std::span<std::byte> data, std::string& problem);

}  // namespace devcomm::host::detail
