/// \file random.hpp
/// The generator behind every scheduling choice.
#pragma once

#include <cstdint>

namespace devcomm::simulator::detail {

/// SplitMix64: one 64-bit state, so that equal seeds give equal schedules on every machine.
class random_choice {
 public:
  explicit random_choice(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// A number below `limit`, which is at least 1.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(((next() >> 32) * limit) >> 32); }

 private:
  uint64_t state_;
};

}  // namespace devcomm::simulator::detail
