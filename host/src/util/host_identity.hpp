/// \file host_identity.hpp
/// Identity of this host and of the process ids on it.
#pragma once

#include <devcomm/host/error.hpp>

#include <sys/stat.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace devcomm::host::detail {

/// Of a namespace of this process: "net", "pid".
[[nodiscard]] inline std::uint64_t namespace_identity(const std::string& kind) {
  const std::string file = "/proc/self/ns/" + kind;
  struct stat space {};
  if (::stat(file.c_str(), &space) != 0) throw system_error(file + " cannot be read; mount /proc");
  return space.st_ino;
}

/// Process ids have a meaning where this is the same.
[[nodiscard]] inline std::uint64_t pid_space_identity() { return namespace_identity("pid"); }

/// Of the running system and its network: containers with networks of their own are hosts of their own.
[[nodiscard]] inline std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) throw system_error("/proc/sys/kernel/random/boot_id cannot be read; mount /proc");
  return boot + "/" + std::to_string(namespace_identity("net"));
}

}  // namespace devcomm::host::detail
