/// \file side_channel.hpp
/// Two processes of this host that are measured against each other.
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

namespace benchmark {

/// Bytes between the two processes before there is a fabric.
class side_channel {
 public:
  explicit side_channel(int socket) : socket_(socket) {}
  side_channel(const side_channel&) = delete;
  side_channel& operator=(const side_channel&) = delete;
  ~side_channel() { ::close(socket_); }

  template <class T>
  T swap(const T& mine) const {
    T theirs;
    if (::send(socket_, &mine, sizeof mine, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof mine) ||
        ::recv(socket_, &theirs, sizeof theirs, MSG_WAITALL) != static_cast<ssize_t>(sizeof theirs))
      throw std::runtime_error("the other process has ended");
    return theirs;
  }
  /// Until both have come here. Meanwhile calls `poll`: the other's last write may need this process.
  template <class Poll>
  void meet(const Poll& poll) const {
    char word = 0;
    if (::send(socket_, &word, 1, MSG_NOSIGNAL) != 1) throw std::runtime_error("the other process has ended");
    ssize_t got = -1;
    while ((got = ::recv(socket_, &word, 1, MSG_DONTWAIT)) < 0) poll();
    if (got == 0) throw std::runtime_error("the other process has ended");
  }

 private:
  int socket_;
};

/// Runs `mine(beside, is_first)` in this process and in a child; the exit status of both.
template <class Run>
int run_two_processes(const Run& mine) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()) != 0) throw std::runtime_error(std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  ::close(sockets[child == 0 ? 0 : 1]);
  mine(side_channel(sockets[child == 0 ? 1 : 0]), child != 0);
  if (child == 0) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace benchmark
