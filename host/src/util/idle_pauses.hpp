/// \file idle_pauses.hpp
/// How a thread rests that nothing can wake: who has work for it stores to memory.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace devcomm::host::detail {

/// The thread polls without a pause at first. Later it sleeps for a hundredth of the time for which it has found
/// nothing, up to 50 us, and after that for a five hundredth, up to 10 ms: who posts then waits for that long at most,
/// and a thread that is idle for five seconds takes less than 1 % of a processor.
class idle_pauses {
 public:
  /// After each poll, with whether it found work.
  void after(bool worked) {
    constexpr std::chrono::microseconds spins(20);
    constexpr std::chrono::milliseconds yields(1);
    if (worked) {
      since_ = {};
      return;
    }
    const clock::time_point now = clock::now();
    if (since_ == clock::time_point{}) since_ = now;
    const auto idle = now - since_;
    if (idle < spins) return;
    if (idle < yields) {
      ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(pause_after(idle));
  }

  [[nodiscard]] static constexpr std::chrono::nanoseconds pause_after(std::chrono::nanoseconds idle) {
    constexpr std::chrono::nanoseconds shortly = std::chrono::microseconds(50);
    constexpr std::chrono::nanoseconds longest = std::chrono::milliseconds(10);
    return std::max(std::min(idle / 100, shortly), std::min(idle / 500, longest));
  }

 private:
  using clock = std::chrono::steady_clock;

  clock::time_point since_{};
};

}  // namespace devcomm::host::detail
