/// \file sent_bytes.hpp
/// What this process has sent over TCP, as the kernel counts it.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace devcomm_test {

/// Of all TCP connections that are open now: payload, without the headers of packets.
[[nodiscard]] inline std::uint64_t sent_bytes() {
  std::uint64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info about{};
    socklen_t bytes = sizeof about;
    const int fd = std::stoi(entry.path().filename().string());
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &about, &bytes) != 0) continue;  // no TCP connection
    if (bytes < offsetof(tcp_info, tcpi_bytes_retrans) + sizeof about.tcpi_bytes_retrans) {
      throw std::runtime_error("this kernel does not count the bytes of connections");
    }
    sum += about.tcpi_bytes_sent - about.tcpi_bytes_retrans;
  }
  return sum;
}

}  // namespace devcomm_test
