/// \file shared_file.hpp
/// The files in /dev/shm by which libfabric's provider shm connects processes.
#pragma once

#include "util/host_identity.hpp"
#include "util/random.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace devcomm::host::detail {

/// "devcomm-4026531836-": process ids have a meaning in one PID namespace only, and containers may share /dev/shm.
[[nodiscard]] inline std::string start_of_shared_files() {
  return "devcomm-" + std::to_string(pid_space_identity()) + "-";
}

/// With the process's id, so that `sweep_shared_files` knows whose it is, and a random number, as ids come again.
[[nodiscard]] inline std::string name_of_shared_file() {
  return start_of_shared_files() + std::to_string(::getpid()) + "-" + std::to_string(random_value<std::uint64_t>());
}

/// Deletes what processes of this PID namespace that were killed have left, 17 MiB for each. What belongs to another
/// user, or cannot be read, stays.
inline void sweep_shared_files(const std::filesystem::path& folder) {
  const std::string start = start_of_shared_files();
  std::error_code unreadable;
  for (std::filesystem::directory_iterator each(folder, unreadable), end; each != end; each.increment(unreadable)) {
    const std::string name = each->path().filename().string();
    if (!name.starts_with(start)) continue;
    const long owner = std::strtol(name.c_str() + start.size(), nullptr, 10);
    const bool is_gone = owner > 0 && ::kill(static_cast<pid_t>(owner), 0) != 0 && errno == ESRCH;
    std::error_code not_ours;
    if (is_gone) std::filesystem::remove(each->path(), not_ours);
  }
}

}  // namespace devcomm::host::detail
