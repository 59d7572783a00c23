#include "bootstrap/tcp/listener.hpp"

#include "bootstrap/tcp/socket.hpp"
#include "util/random.hpp"

#include <devcomm/host/error.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace devcomm::host::detail {
namespace {

/// How long rank 0 may look up its own name.
constexpr std::chrono::milliseconds own_name_limit = std::chrono::seconds(5);

/// Other sockets of this host that are bound to the same port and do not listen.
enum class beside { allowed, refused };

struct places {
  std::vector<socket_address> addresses;  ///< to try in this order
  bool both_families = false;             ///< an IPv6 one is to take IPv4 too
};

places places_for(const std::string& host) {
  places found;
  if (host != "::") found.addresses = numeric_addresses(host == "localhost" ? "127.0.0.1" : host, 0);
  if (!found.addresses.empty()) return found;
  std::string problem;
  std::vector<std::string> of_name;
  if (host != "::") {
    for (const socket_address& each : resolve(host, 0, deadline(own_name_limit), problem)) {
      of_name.push_back(each.host_text());
    }
  }
  const std::vector<std::string> chosen = addresses_to_listen_at(of_name, interface_addresses());
  for (const std::string& each : chosen) {
    const auto numeric = numeric_addresses(each, 0);
    found.addresses.insert(found.addresses.end(), numeric.begin(), numeric.end());
  }
  found.both_families = chosen.size() > 1;
  return found;
}

void set_flag(int fd, int level, int name, int value) { (void)::setsockopt(fd, level, name, &value, sizeof value); }

/// None with errno set.
unique_fd bind_at(socket_address address, std::uint16_t port, bool both_families, beside others) {
  address.set_port(port);
  unique_fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  // With it a port whose last connections are still winding down is free for us, and so is one that was reserved by
  // `unique_id::create` and on which nobody listens.
  if (others == beside::allowed) set_flag(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6 && both_families) set_flag(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), address.get(), address.length) != 0) {
    const int problem = errno;
    fd.reset();
    errno = problem;
    return fd;
  }
  // Rank 0 in another process of this host binds beside it.
  set_flag(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  return fd;
}

}  // namespace

std::vector<std::string> addresses_to_listen_at(const std::vector<std::string>& of_name,
                                                const std::vector<interface_address>& here) {
  std::vector<std::string> known;
  for (const std::string& each : of_name) {
    const bool ours =
        std::any_of(here.begin(), here.end(), [&](const interface_address& own) { return own.address == each; });
    if (ours && !is_local_only(each) && std::find(known.begin(), known.end(), each) == known.end()) {
      known.push_back(each);
    }
  }
  if (known.size() == 1) return known;
  return {"::", "0.0.0.0"};
}

unique_fd bind_for(const std::string& host, std::uint16_t port, const std::string& call) {
  std::string problem = "no usable address";
  const places where = places_for(host);
  for (const socket_address& address : where.addresses) {
    if (unique_fd fd = bind_at(address, port, where.both_families, beside::allowed)) return fd;
    problem = std::strerror(errno);
    if (errno == EADDRINUSE) {
      problem += "; is another rank 0 or another job there? Choose another port";
      break;
    }
    if (errno == EADDRNOTAVAIL) problem += "; rank 0 must run on the host that has this address";
  }
  throw system_error(call + ": cannot listen at " + endpoint_text(host, port) + ": " + problem);
}

unique_fd bind_in(const std::string& host, port_range ports, const std::string& call) {
  std::string problem = "no usable address";
  const places where = places_for(host);
  const auto start = random_value<std::uint32_t>();
  // Ports on which connections wind down come second.
  for (const beside others : {beside::refused, beside::allowed}) {
    for (const socket_address& address : where.addresses) {
      for (unsigned i = 0; i < ports.size(); ++i) {
        if (unique_fd fd = bind_at(address, ports.at(std::uint64_t{start} + i), where.both_families, others)) return fd;
        problem = std::strerror(errno);
        if (errno != EADDRINUSE && errno != EACCES) break;
      }
    }
  }
  throw system_error(call + ": cannot listen at " + host + " at any of the ports " + ports.text() +
                     " that DEVCOMM_PORTS gives: " + problem);
}

}  // namespace devcomm::host::detail
