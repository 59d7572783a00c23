/// \file peer_groups.hpp
/// Which simulated GPUs load and store each other's memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::simulator::detail {

/// All, or those of a group: "0-2/3-6" is two groups, "0,2/1,3" as well. A GPU that no group names reaches itself
/// alone.
class peer_groups {
 public:
  static constexpr const char* forms = "groups of GPUs that reach each other: 0-2/3-6 or 0,2/1,3";

  /// Every GPU reaches every other.
  peer_groups() = default;
  /// Nothing where the text is malformed or names a GPU twice. Empty text is one group of all.
  [[nodiscard]] static std::optional<peer_groups> parse(std::string_view text);

  [[nodiscard]] bool joins(int a, int b) const;
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  [[nodiscard]] int group_of(int device) const;

  std::string text_;
  std::vector<int> groups_;  // by device; -1: none
};

}  // namespace devcomm::simulator::detail
