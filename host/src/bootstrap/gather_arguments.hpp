/// \file gather_arguments.hpp
/// Checks of the arguments of `bootstrap::all_gather`.
#pragma once

#include <devcomm/host/error.hpp>

#include <cstddef>
#include <string>

namespace devcomm::host::detail {

/// All ranks of a round throw it when their parts differ in size; the next round can succeed.
class unequal_sizes : public invalid_argument {
 public:
  using invalid_argument::invalid_argument;
};

/// Largest contribution of one rank to an all-gather.
inline constexpr std::size_t longest_part = std::size_t{16} << 20;

/// What is wrong with the sizes, and what to pass; empty when they are right.
[[nodiscard]] inline std::string problem_of_arguments(std::size_t mine, std::size_t all, std::size_t ranks) {
  if (mine > longest_part) {
    return std::to_string(mine) + " bytes are more than the " + std::to_string(longest_part) +
           " that one call takes; gather them in pieces";
  }
  if (all != ranks * mine) {
    return "room for " + std::to_string(all) + " bytes is not " + std::to_string(ranks) + " times " +
           std::to_string(mine) + "; pass size() * mine.size() bytes";
  }
  return {};
}

}  // namespace devcomm::host::detail
