/// \file number_list.hpp
/// Ranks, blocks and other numbered things as people write them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// "rank 3", "ranks 1, 4-7 and 9", "no rank". `numbers` is a range that ascends. Names at most 16 runs, then counts.
template <class Numbers>
[[nodiscard]] std::string number_list(const std::string& noun, const Numbers& numbers) {
  if (numbers.empty()) return "no " + noun;
  std::vector<std::string> runs;
  std::size_t named = 0;
  for (auto at = numbers.begin(); at != numbers.end() && runs.size() < 16;) {
    const auto first = *at;
    auto last = first;
    auto next = at;
    std::size_t length = 1;
    while (++next != numbers.end() && *next == last + 1) {
      last = *next;
      ++length;
    }
    if (length == 2) {  // two neighbors read better apart
      next = at;
      ++next;
      last = first;
      length = 1;
    }
    runs.push_back(std::to_string(first) + (last == first ? "" : "-" + std::to_string(last)));
    named += length;
    at = next;
  }
  if (named < numbers.size()) runs.push_back(std::to_string(numbers.size() - named) + " more");
  std::string text = noun + (numbers.size() == 1 ? " " : "s ");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i != 0) text += i + 1 == runs.size() ? " and " : ", ";
    text += runs[i];
  }
  return text;
}

/// `number_list` of ranks.
[[nodiscard]] inline std::string rank_list(const std::vector<int>& ranks) { return number_list("rank", ranks); }

}  // namespace devcomm::host::detail
