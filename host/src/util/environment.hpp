/// \file environment.hpp
/// Environment variables: the only place that reads the process's own, and how their values are parsed.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace devcomm::host::detail {

/// Value of an environment variable, or nothing when it is unset. Tests pass their own.
using environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The process's own environment. The first call warns on stderr of misspelt variables. Asking for a variable of
/// devcomm that known_variables.hpp lacks is a `std::logic_error`.
[[nodiscard]] environment process_variables();

/// A line for each of `settings` ("NAME=value") whose name starts with DEVCOMM_ and is no known variable, with the
/// known name next to it, if one is near.
[[nodiscard]] std::string misspelt_variables(const char* const* settings);

/// Each returns nothing when the variable is unset, and throws `invalid_argument` naming the variable, its value and
/// `expected` when it is something else: "a number of ranks from 1".
[[nodiscard]] std::optional<int> integer_variable(const environment& variables, const std::string& name, int least,
                                                  int most, const std::string& expected);
/// "0" or "1".
[[nodiscard]] std::optional<bool> flag_variable(const environment& variables, const std::string& name);

/// Seconds, rounded up to milliseconds; above 0, or from 0 where `zero_allowed`, up to `most`.
struct seconds_range {
  double most = 1e9;
  bool zero_allowed = false;
};
[[nodiscard]] std::optional<std::chrono::milliseconds> seconds_variable(const environment& variables,
                                                                        const std::string& name, seconds_range range,
                                                                        const std::string& expected);

/// Throws `invalid_argument`: "NAME is "value"; set it to EXPECTED, or unset it".
[[noreturn]] void reject_variable(const std::string& name, const std::string& value, const std::string& expected);

}  // namespace devcomm::host::detail
