/// \file skewed_counts.hpp
/// How much each rank sends to each in an all-to-all with counts.
#pragma once

#include <cstdint>

namespace perf {

/// Counts as a router makes them: uneven, and known to their senders. Each rank sends `total` elements, or a few less.
/// To the receivers after it in turn a rank sends 1, 2, 3, 4 parts and so on.
struct skewed_counts {
  std::uint64_t total;
  int ranks;

  /// Elements from rank `from` to rank `to`.
  [[nodiscard]] constexpr std::uint64_t of(int from, int to) const {
    const auto parts = static_cast<std::uint64_t>(ranks) * (static_cast<std::uint64_t>(ranks) + 1) / 2;
    return total / parts * (static_cast<std::uint64_t>((to - from + ranks - 1) % ranks) + 1);
  }
  /// Elements of `from`'s input before those for `to`.
  [[nodiscard]] constexpr std::uint64_t before_receiver(int from, int to) const {
    std::uint64_t sum = 0;
    for (int r = 0; r < to; ++r) sum += of(from, r);
    return sum;
  }
  /// Elements of `to`'s output before those of `from`.
  [[nodiscard]] constexpr std::uint64_t before_sender(int from, int to) const {
    std::uint64_t sum = 0;
    for (int r = 0; r < from; ++r) sum += of(r, to);
    return sum;
  }
};

}  // namespace perf
