/// \file rank_list.hpp
/// Ranks as people write them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// "rank 3", "ranks 1, 4-7 and 9", "no rank". `ranks` ascends. Names at most 16 runs, then counts.
[[nodiscard]] inline std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return "rank " + std::to_string(ranks.front());
  std::vector<std::string> runs;
  std::size_t named = 0;
  for (std::size_t i = 0; i < ranks.size() && runs.size() < 16;) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == i + 1) last = i;  // two neighbours read better apart
    runs.push_back(std::to_string(ranks[i]) + (last == i ? "" : "-" + std::to_string(ranks[last])));
    named += last - i + 1;
    i = last + 1;
  }
  if (named < ranks.size()) runs.push_back(std::to_string(ranks.size() - named) + " more");
  std::string text = "ranks ";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i != 0) text += i + 1 == runs.size() ? " and " : ", ";
    text += runs[i];
  }
  return text;
}

}  // namespace devcomm::host::detail
