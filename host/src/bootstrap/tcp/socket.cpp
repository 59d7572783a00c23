#include "bootstrap/tcp/socket.hpp"

#include "util/environment.hpp"
#include "util/quiet_thread.hpp"

#include <devcomm/host/error.hpp>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

namespace devcomm::host::detail {
namespace {

constexpr int socket_type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

struct look_up {
  std::string problem;  ///< empty when there are addresses
  std::vector<socket_address> addresses;
};

look_up look_up_now(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  look_up result;
  if (const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); code != 0) {
    result.problem = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
    return result;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    socket_address address;
    address.length = a->ai_addrlen;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
    result.addresses.push_back(address);
  }
  if (result.addresses.empty()) result.problem = "it has no IPv4 or IPv6 address";
  return result;
}

/// The resolver's answer or, past the deadline, none; then the thread ends by itself.
std::shared_ptr<look_up> look_up_until(const std::string& host, const deadline& until) {
  struct box {
    std::mutex mutex;
    std::condition_variable done;
    std::shared_ptr<look_up> answer;
  };
  const auto shared = std::make_shared<box>();
  std::thread resolver = quiet_thread([shared, host] {
    auto answer = std::make_shared<look_up>(look_up_now(host, 0));
    const std::lock_guard lock(shared->mutex);
    shared->answer = std::move(answer);
    shared->done.notify_all();
  });
  std::shared_ptr<look_up> answer;
  {
    std::unique_lock lock(shared->mutex);
    shared->done.wait_until(lock, until.when(), [&] { return shared->answer != nullptr; });
    answer = shared->answer;
  }
  // One that has answered is at its end; a process that forks next has no thread of it left.
  if (answer != nullptr) {
    resolver.join();
  } else {
    resolver.detach();
  }
  return answer;
}

void set_option(int fd, int level, int name, int value) {
  // Refusal costs speed or a late notice, not correctness.
  (void)::setsockopt(fd, level, name, &value, sizeof(value));
}

/// A peer that answers nothing for the limit, whether anything is sent to it or not, is gone.
void watch_peer(int fd, std::chrono::milliseconds limit) {
  const int seconds = static_cast<int>(std::max<std::int64_t>(1, limit.count() / 1000));
  const int idle = std::max(1, seconds / 2);
  const int interval = std::max(1, seconds / 8);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, std::max(1, (seconds - idle) / interval));
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit.count()));
}

bool wait_for(int fd, short events, const deadline& until, std::string& problem) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, until.poll_milliseconds());
    if (ready > 0) return true;
    if (ready == 0 && until.passed()) {
      problem = "no answer in time";
      return false;
    }
    if (ready < 0 && errno != EINTR) {
      problem = std::strerror(errno);
      return false;
    }
  }
}

}  // namespace

std::chrono::milliseconds peer_limit() {
  return seconds_variable(process_variables(), "DEVCOMM_PEER_TIMEOUT", {.most = 32767},
                          "a number of seconds above 0 and up to 32767")
      .value_or(default_peer_limit);
}

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string host_problem(std::string_view host) {
  if (host.empty()) return "is empty";
  if (host.size() > 255) return "is longer than 255 characters";
  for (const char c : host) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && std::string_view(".-_:%").find(c) == std::string_view::npos) {
      return "has a character that no host name or address has";
    }
  }
  if (host.find(':') != std::string_view::npos) {
    in6_addr ignored;
    const std::string address(host.substr(0, host.find('%')));
    if (::inet_pton(AF_INET6, address.c_str(), &ignored) != 1) return "has a colon and is no IPv6 address";
  }
  return {};
}

endpoint parse_endpoint(std::string_view text, const std::string& what) {
  const auto fail = [&](const std::string& why) {
    throw invalid_argument(what + " is \"" + std::string(text.substr(0, 300)) + "\", which " + why +
                           "; it should read host:port, for example 10.0.0.1:29500 or [::1]:29500");
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) fail("has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') fail("has an unclosed bracket");
    host = host.substr(1, host.size() - 2);
    if (host.find(':') == std::string_view::npos) fail("has brackets around something that is no IPv6 address");
  } else if (host.find(':') != std::string_view::npos) {
    fail("has an IPv6 address without brackets");
  }
  if (const std::string problem = host_problem(host); !problem.empty()) fail("has a host that " + problem);
  unsigned port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0 || port > 65535) {
    fail("has a port that is no number from 1 to 65535");
  }
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

std::uint16_t socket_address::port() const noexcept {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                    : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void socket_address::set_port(std::uint16_t port) noexcept {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  }
}

std::string socket_address::host_text() const {
  char host[NI_MAXHOST];
  if (::getnameinfo(get(), length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  // How a socket for both families shows IPv4.
  constexpr std::string_view mapped = "::ffff:";
  const std::string_view text = host;
  const bool four = text.starts_with(mapped) && text.find('.') != std::string_view::npos;
  return std::string(four ? text.substr(mapped.size()) : text);
}

std::string socket_address::text() const {
  const std::string host = host_text();
  return host.empty() ? "an unknown address" : endpoint_text(host, port());
}

std::vector<socket_address> numeric_addresses(const std::string& host, std::uint16_t port) {
  look_up result = look_up_now(host, AI_NUMERICHOST);
  for (socket_address& address : result.addresses) address.set_port(port);
  return std::move(result.addresses);
}

std::vector<socket_address> resolve(const std::string& host, std::uint16_t port, const deadline& until,
                                    std::string& problem) {
  look_up result = look_up_now(host, AI_NUMERICHOST);
  if (!result.problem.empty()) {
    const auto answer = look_up_until(host, until);
    if (answer == nullptr) {
      problem = "the name server did not answer for \"" + host + "\" in time";
      return {};
    }
    result = *answer;
  }
  if (!result.problem.empty()) {
    problem = "cannot find the address of \"" + host + "\": " + result.problem;
    return {};
  }
  for (socket_address& address : result.addresses) address.set_port(port);
  return std::move(result.addresses);
}

std::uint16_t bound_port(int fd) {
  socket_address address;
  address.length = sizeof(address.storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throw system_error(std::string("getsockname failed: ") + std::strerror(errno));
  }
  return address.port();
}

std::string address_of_this_end(int fd) {
  socket_address address;
  address.length = sizeof(address.storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return {};
  return address.host_text();
}

unique_fd connect_to(const socket_address& address, const deadline& until, std::string& problem,
                     std::chrono::milliseconds silence) {
  unique_fd fd(::socket(address.family(), socket_type, 0));
  if (!fd) {
    problem = std::strerror(errno);
    return {};
  }
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  watch_peer(fd.get(), silence);
  if (::connect(fd.get(), address.get(), address.length) == 0) return fd;
  if (errno != EINPROGRESS && errno != EINTR) {
    problem = std::strerror(errno);
    return {};
  }
  if (!wait_for(fd.get(), POLLOUT, until, problem)) return {};
  int outcome = 0;
  socklen_t length = sizeof(outcome);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &outcome, &length) != 0) outcome = errno;
  if (outcome != 0) {
    problem = std::strerror(outcome);
    return {};
  }
  return fd;
}

unique_fd accept_from(int listener, std::string& peer, std::chrono::milliseconds silence) {
  socket_address address;
  address.length = sizeof(address.storage);
  unique_fd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&address.storage), &address.length,
                         SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) return fd;
  peer = address.text();
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  watch_peer(fd.get(), silence);
  return fd;
}

bool send_all(int fd, std::span<const std::byte> data, const deadline& until, std::string& problem) {
  while (!data.empty()) {
    const ssize_t count = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      data = data.subspan(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, until, problem)) return false;
    } else if (errno != EINTR) {
      problem = std::strerror(errno);
      return false;
    }
  }
  return true;
}

std::ptrdiff_t receive_some(int fd, std::span<std::byte> data, std::string& problem) {
  for (;;) {
    const ssize_t count = ::recv(fd, data.data(), data.size(), 0);
    if (count > 0) return count;
    if (count == 0) {
      problem = "the other side closed the connection";
      return -1;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno == EINTR) continue;
    problem = std::strerror(errno);
    return -1;
  }
}

bool receive_all(int fd, std::span<std::byte> data, const deadline& until, std::string& problem) {
  while (!data.empty()) {
    const std::ptrdiff_t count = receive_some(fd, data, problem);
    if (count < 0) return false;
    if (count == 0 && !wait_for(fd, POLLIN, until, problem)) return false;
    data = data.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace devcomm::host::detail
