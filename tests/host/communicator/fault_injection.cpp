#include "fault_injection.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>

namespace devcomm_test {
namespace {

std::atomic<int> mode{-1};  // a `fault`; -1: none
std::atomic<int> calls_left{0};
std::atomic<bool> happened{false};

/// Comes before each call. Whether the call must fail.
bool fails(bool makes_descriptor) {
  const int now = mode.load();
  if (now < 0) return false;
  const bool death = now == static_cast<int>(fault::death);
  if (!death && !makes_descriptor) return false;
  if (calls_left.fetch_sub(1) > 0) return false;
  happened = true;
  if (death) {
    ::raise(SIGKILL);
    return false;
  }
  errno = EMFILE;
  return true;
}

}  // namespace

void arm(fault what, int at) {
  calls_left = at;
  happened = false;
  mode = static_cast<int>(what);
}

bool disarm() {
  mode = -1;
  return happened;
}

}  // namespace devcomm_test

// The linker sends the libraries' calls here, and what the calls of `__real_*` name is the system's.
using devcomm_test::fails;

#define DEVCOMM_WRAP(makes_descriptor, type, name, parameters, arguments)             \
  extern "C" type __real_##name parameters;                                           \
  extern "C" type __wrap_##name parameters;                                           \
  extern "C" type __wrap_##name parameters {                                          \
    return fails(makes_descriptor) ? static_cast<type>(-1) : __real_##name arguments; \
  }

DEVCOMM_WRAP(true, int, socket, (int domain, int kind, int protocol), (domain, kind, protocol))
DEVCOMM_WRAP(true, int, accept4, (int fd, sockaddr* to, socklen_t* size, int flags), (fd, to, size, flags))
DEVCOMM_WRAP(true, int, eventfd, (unsigned first, int flags), (first, flags))
DEVCOMM_WRAP(true, int, memfd_create, (const char* name, unsigned flags), (name, flags))
DEVCOMM_WRAP(false, int, bind, (int fd, const sockaddr* to, socklen_t size), (fd, to, size))
DEVCOMM_WRAP(false, int, listen, (int fd, int backlog), (fd, backlog))
DEVCOMM_WRAP(false, int, connect, (int fd, const sockaddr* to, socklen_t size), (fd, to, size))
DEVCOMM_WRAP(false, int, poll, (pollfd * entries, nfds_t count, int limit), (entries, count, limit))
DEVCOMM_WRAP(false, ssize_t, send, (int fd, const void* data, size_t size, int flags), (fd, data, size, flags))
DEVCOMM_WRAP(false, ssize_t, recv, (int fd, void* data, size_t size, int flags), (fd, data, size, flags))
DEVCOMM_WRAP(false, ssize_t, sendmsg, (int fd, const msghdr* what, int flags), (fd, what, flags))
DEVCOMM_WRAP(false, ssize_t, recvmsg, (int fd, msghdr* what, int flags), (fd, what, flags))
DEVCOMM_WRAP(false, int, shutdown, (int fd, int how), (fd, how))

// Of variadic calls, those that make descriptors.
extern "C" int __real_fcntl(int fd, int command, ...);
extern "C" int __wrap_fcntl(int fd, int command, ...);
extern "C" int __wrap_fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  if (fails(command == F_DUPFD_CLOEXEC)) return -1;
  return __real_fcntl(fd, command, argument);
}
