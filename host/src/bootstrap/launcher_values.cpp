#include "bootstrap/launcher_values.hpp"

#include "bootstrap/tcp/socket.hpp"
#include "util/interfaces.hpp"

#include <devcomm/host/error.hpp>

#include <algorithm>
#include <charconv>

namespace devcomm::host::detail {

void reject_launched(const std::string& variable, std::string_view value, const std::string& expected) {
  throw invalid_argument(variable + " is \"" + std::string(value.substr(0, 200)) + "\"; expected " + expected);
}

std::optional<int> decimal_number(std::string_view text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || text.front() == '-') return std::nullopt;
  return value;
}

int launched_number(const environment& variables, const std::string& name, int least, int most) {
  const auto value = variables(name);
  if (!value) {
    throw invalid_argument(name + " is not set, but variables of the same launcher are; expected a number from " +
                           std::to_string(least) + " to " + std::to_string(most));
  }
  const auto parsed = decimal_number(*value);
  if (!parsed || *parsed < least || *parsed > most) {
    reject_launched(name, *value, "a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *parsed;
}

std::optional<std::string> first_set(const environment& variables, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    auto value = variables(name);
    if (value && !value->empty()) return value;
  }
  return std::nullopt;
}

process_environment placed(const environment& variables, const char* launcher, const char* rank, const char* size) {
  process_environment process;
  process.launcher = launcher;
  process.size = launched_number(variables, size, 1, max_launched_ranks);
  process.rank = launched_number(variables, rank, 0, process.size - 1);
  return process;
}

void place_locally(process_environment& process, const environment& variables, const char* rank, const char* size) {
  if (variables(size)) process.local_size = launched_number(variables, size, 1, process.size);
  if (!variables(rank)) return;
  const int most = variables(size) ? process.local_size - 1 : process.size - 1;
  process.local_rank = launched_number(variables, rank, 0, most);
  process.local_size = std::max(process.local_size, process.local_rank + 1);
}

bool take_given_root(process_environment& process, const environment& variables) {
  const auto value = variables("DEVCOMM_ROOT");
  if (!value) return false;
  const endpoint where = parse_endpoint(*value, "DEVCOMM_ROOT");
  process.root = endpoint_text(where.host, where.port);
  return true;
}

void refuse_loopback_root(const process_environment& process) {
  if (process.local_size == process.size || !is_loopback(parse_endpoint(process.root, "DEVCOMM_ROOT").host)) return;
  reject_launched("DEVCOMM_ROOT", process.root,
                  "the name or address of rank 0's host by which other hosts reach it: " + process.launcher +
                      " started " + std::to_string(process.size) + " ranks on more than one host (" +
                      std::to_string(process.local_size) + " here)");
}

}  // namespace devcomm::host::detail
