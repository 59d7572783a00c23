#include "bootstrap/tcp/reserved_port.hpp"

#include "bootstrap/tcp/listener.hpp"
#include "bootstrap/tcp/socket.hpp"

#include <unistd.h>

#include <deque>
#include <mutex>
#include <utility>

namespace devcomm::host::detail {
namespace {

struct reservation {
  job_secret secret;
  pid_t owner;  ///< a forked child shares the socket, and must not make it listen in its parent too
  unique_fd socket;
};

struct registry {
  std::mutex mutex;
  std::deque<reservation> kept;
};

registry& reservations() {
  static registry all;
  return all;
}

}  // namespace

std::uint16_t reserve_port(const std::string& host, const job_secret& secret, const std::optional<port_range>& ports) {
  const std::string call = "unique_id::create";
  unique_fd socket = ports ? bind_in(host, *ports, call) : bind_for(host, 0, call);
  const std::uint16_t port = bound_port(socket.get());
  registry& all = reservations();
  const std::lock_guard lock(all.mutex);
  if (all.kept.size() == 16) all.kept.pop_front();
  all.kept.push_back({secret, ::getpid(), std::move(socket)});
  return port;
}

unique_fd take_reserved_port(const job_secret& secret) {
  registry& all = reservations();
  const std::lock_guard lock(all.mutex);
  for (auto i = all.kept.begin(); i != all.kept.end(); ++i) {
    if (i->secret != secret) continue;
    unique_fd socket = i->owner == ::getpid() ? std::move(i->socket) : unique_fd();
    all.kept.erase(i);
    return socket;
  }
  return {};
}

}  // namespace devcomm::host::detail
