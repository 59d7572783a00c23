/// \file variable_table.hpp
/// Environments that tests make up.
#pragma once

#include "bootstrap/launcher.hpp"
#include "job_harness.hpp"

#include <map>
#include <optional>
#include <string>

namespace devcomm_test {

using table = std::map<std::string, std::string>;

inline devcomm::host::detail::environment from(const table& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

inline table with(table base, const table& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}
inline table without(table base, const std::string& name) {
  base.erase(name);
  return base;
}

inline devcomm::host::detail::launched_process read(const table& variables) {
  return devcomm::host::detail::read_launcher(from(variables)).value();
}

inline std::string why_refused(const table& variables) {
  const outcome o = outcome_of([&] { static_cast<void>(devcomm::host::detail::read_launcher(from(variables))); });
  return o.kind == "invalid_argument" ? o.text : "accepted or " + o.kind;
}

inline bool refuses(const table& variables, const std::string& name, const std::string& value) {
  return why_refused(with(variables, {{name, value}})).starts_with(name + " is \"" + value + "\"");
}

}  // namespace devcomm_test
