#include "util/cpu_list.hpp"

#include "util/pci_place.hpp"

#include <sched.h>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <fstream>

namespace devcomm::host::detail {
namespace {

constexpr int max_cpus = CPU_SETSIZE;

/// The number that `text` begins with, which is taken off it.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0 || number >= max_cpus) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  do {
    const auto first = take_number(text);
    if (!first) return {};
    int last = *first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      const auto end = take_number(text);
      if (!end || *end < *first) return {};
      last = *end;
    }
    for (int cpu = *first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (text.empty()) return cpus;
    if (!text.starts_with(',')) return {};
    text.remove_prefix(1);
  } while (true);
}

std::vector<int> cpus_near(std::uint64_t place, const std::string& root) {
  std::ifstream file(pci_folder(place, root) / "local_cpulist");
  std::string line;
  if (!std::getline(file, line)) return {};
  return parse_cpu_list(line).value_or(std::vector<int>{});
}

std::vector<int> usable_cpus(const std::vector<int>& wanted) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return wanted;
  std::vector<int> usable;
  for (const int cpu : wanted) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) usable.push_back(cpu);
  }
  return usable;
}

std::size_t usable_cpu_count() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return static_cast<std::size_t>(CPU_COUNT(&allowed));
}

void stay_on(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) std::perror("devcomm: sched_setaffinity");
}

}  // namespace devcomm::host::detail
