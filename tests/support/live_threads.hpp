/// \file live_threads.hpp
/// Threads of the running process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace devcomm_test {

/// Threads that are not on their way out: the system lists a joined thread for a moment longer.
[[nodiscard]] inline std::size_t live_threads() {
  constexpr unsigned long exiting = 0x4;  // of the flags in /proc/PID/stat
  std::size_t live = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    // "ID (NAME) STATE PARENT GROUP SESSION TERMINAL FOREGROUND FLAGS ..."; a name may hold spaces.
    std::size_t at = text.rfind(')');
    for (int field = 0; field < 7 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
    if (at == std::string::npos || (std::stoul(text.substr(at + 1)) & exiting) == 0) ++live;
  }
  return live;
}

}  // namespace devcomm_test
