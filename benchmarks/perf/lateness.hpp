/// \file lateness.hpp
/// How ranks come late, as they do in programs: one of them once, or each before every call.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace perf {

/// At most one of the two is not 0.
struct lateness {
  std::uint64_t late = 0;    ///< microseconds that the last rank starts each chain of calls after the others
  std::uint64_t jitter = 0;  ///< microseconds that a rank may be late for a call, each by a time of its own

  [[nodiscard]] bool any() const { return late != 0 || jitter != 0; }
};

/// ", 50 us late", ", jitter of 20 us", or nothing: behind what a row is.
inline std::string lateness_text(const lateness& how) {
  if (how.late != 0) return ", " + std::to_string(how.late) + " us late";
  return how.jitter != 0 ? ", jitter of " + std::to_string(how.jitter) + " us" : "";
}

/// Nanoseconds that `rank` is late for call `call`: uniform from 0 to `most`, and the same in all runs (SplitMix64).
inline std::uint64_t jitter_of(int rank, int call, std::uint64_t most) {
  std::uint64_t mixed =
      (static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(call)) + 0x9e3779b97f4a7c15u;
  for (int round = 0; round < 2; ++round) {
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
  }
  return mixed % (most + 1);
}

/// Microseconds that ranks which wait for each other in every call lose in each of `calls`, on the average: what the
/// latest rank is late.
inline double mean_lateness(const lateness& how, int ranks, int calls) {
  if (how.jitter == 0) return static_cast<double>(how.late) / calls;
  double nanoseconds = 0;
  for (int call = 0; call < calls; ++call) {
    std::uint64_t latest = 0;
    for (int rank = 0; rank < ranks; ++rank) latest = std::max(latest, jitter_of(rank, call, how.jitter * 1000));
    nanoseconds += static_cast<double>(latest);
  }
  return nanoseconds * 1e-3 / calls;
}

/// Microseconds a call that the spinning kernels of the rank with the most of them spin, on the average.
inline double max_spun(const lateness& how, int ranks, int calls) {
  double most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    double nanoseconds = 0;
    for (int call = 0; call < calls; ++call)
      nanoseconds += static_cast<double>(jitter_of(rank, call, how.jitter * 1000));
    most = std::max(most, nanoseconds * 1e-3 / calls);
  }
  return most;
}

/// Puts a kernel of one thread on the stream that spins for so long.
void spin(std::uint64_t nanoseconds, cudaStream_t stream);

}  // namespace perf
