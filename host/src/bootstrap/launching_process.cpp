#include "bootstrap/launching_process.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace devcomm::host::detail {
namespace {

/// Nothing where the file cannot be read.
std::optional<std::string> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return std::nullopt;
  return text;
}

struct process_facts {
  pid_t parent = 0;
  std::string started;  ///< in clock ticks since the machine started
};

std::optional<process_facts> facts_of(pid_t pid) {
  const auto text = content_of("/proc/" + std::to_string(pid) + "/stat");
  // The name, in parentheses, may contain anything.
  const std::size_t name_end = text ? text->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text->substr(name_end + 1));
  process_facts facts;
  std::string skipped;
  fields >> skipped >> facts.parent;
  for (int field = 5; field <= 21; ++field) fields >> skipped;
  fields >> facts.started;
  if (!fields) return std::nullopt;
  return facts;
}

/// False also for processes of other users, which are daemons of launchers.
bool started_with(pid_t pid, const std::string& variable) {
  const auto text = content_of("/proc/" + std::to_string(pid) + "/environ");
  return text && (std::string(1, '\0') + *text).find(std::string(1, '\0') + variable + "=") != std::string::npos;
}

}  // namespace

std::optional<std::string> launching_process(const std::string& rank_variable) {
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) != 0) return std::nullopt;
  // Process 1 adopts ranks whose launcher is gone, and is a container's start.
  for (pid_t pid = ::getppid(); pid > 1;) {
    const auto facts = facts_of(pid);
    if (!facts) return std::nullopt;
    if (!started_with(pid, rank_variable)) {
      return std::to_string(space.st_ino) + "." + std::to_string(pid) + "." + facts->started;
    }
    pid = facts->parent;
  }
  return std::nullopt;
}

}  // namespace devcomm::host::detail
