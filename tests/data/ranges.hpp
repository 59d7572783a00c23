/// \file ranges.hpp
/// Ranges that the tests of data movement fill, and what they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace test {

/// Elements before and after a range that must stay as they were.
inline constexpr std::size_t guard = 64;

template <class T>
T element(std::uint64_t i, int source = 0) {
  return static_cast<T>(static_cast<float>((i * 7 + static_cast<std::uint64_t>(source) * 3) % 11) - 5.0f);
}

inline const std::vector<std::size_t> counts = {0, 1, 2, 7, 15, 16, 17, 255, 1000, 4099};

}  // namespace test
