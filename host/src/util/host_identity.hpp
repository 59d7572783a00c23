/// \file host_identity.hpp
/// What tells this host from others.
#pragma once

#include <devcomm/host/error.hpp>

#include <sys/stat.h>

#include <fstream>
#include <string>

namespace devcomm::host::detail {

/// Of the running system and its network: containers with networks of their own are hosts of their own.
[[nodiscard]] inline std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) throw system_error("/proc/sys/kernel/random/boot_id cannot be read; mount /proc");
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) != 0) throw system_error("/proc/self/ns/net cannot be read; mount /proc");
  return boot + "/" + std::to_string(space.st_ino);
}

}  // namespace devcomm::host::detail
