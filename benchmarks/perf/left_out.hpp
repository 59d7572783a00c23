/// \file left_out.hpp
/// What was asked for and is not measured, for which sizes and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace perf {

class left_out {
 public:
  /// One algorithm at one size, sizes in rising order. An empty reason: it is measured.
  void add(const std::string& algorithm, std::uint64_t bytes, const std::string& reason);

  /// A line for each algorithm and reason, such as "one_shot_ll for 32M to 64M: too large for one_shot".
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  struct range {
    std::uint64_t first;
    std::uint64_t last;
  };
  struct entry {
    std::string algorithm;
    std::string reason;
    std::vector<range> sizes;
    bool goes_on;  ///< with the next size, if that is left out as well
  };

  std::vector<entry> entries_;
};

}  // namespace perf
