/// \file retry_pauses.hpp
/// How long a rank waits before it tries again to reach rank 0.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <utility>

namespace devcomm::host::detail {

/// Pauses that double, up to a longest one that grows with the job. Each is cut at random to between its half and its
/// whole, so that ranks that were started together do not come together again and again.
class retry_pauses {
 public:
  retry_pauses(int ranks, std::uint64_t seed) : random_(seed), longest_(std::clamp(ranks / 8, 200, 2000)) {}

  [[nodiscard]] std::chrono::milliseconds next() {
    const int whole = std::exchange(pause_, std::min(2 * pause_, longest_));
    return std::chrono::milliseconds(std::uniform_int_distribution(whole / 2, whole)(random_));
  }

 private:
  std::mt19937_64 random_;
  int longest_;
  int pause_ = 10;
};

}  // namespace devcomm::host::detail
