/// \file launcher_values.hpp
/// Values of launchers' variables; what is wrong with them is an `invalid_argument` that names the variable.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include "util/environment.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace devcomm::host::detail {

inline constexpr int max_launched_ranks = 1 << 20;

[[noreturn]] void reject_launched(const std::string& variable, std::string_view value, const std::string& expected);

/// Decimal digits only.
[[nodiscard]] std::optional<int> decimal_number(std::string_view text);

/// The variable must be set, and be a number from `least` to `most`.
[[nodiscard]] int launched_number(const environment& variables, const std::string& name, int least, int most);

/// The first of `names` that is set to something.
[[nodiscard]] std::optional<std::string> first_set(const environment& variables,
                                                   std::initializer_list<const char*> names);

/// Rank and size from two variables that belong together.
[[nodiscard]] process_environment placed(const environment& variables, const char* launcher, const char* rank,
                                         const char* size);

/// Local rank and size from two variables; where they are missing, the process counts as the only one of its host.
void place_locally(process_environment& process, const environment& variables, const char* rank, const char* size);

/// `DEVCOMM_ROOT` where set.
[[nodiscard]] bool take_given_root(process_environment& process, const environment& variables);

/// Throws where `DEVCOMM_ROOT`, which the launcher hands to all ranks alike, is a loopback address that those on other
/// hosts cannot reach.
void refuse_loopback_root(const process_environment& process);

}  // namespace devcomm::host::detail
