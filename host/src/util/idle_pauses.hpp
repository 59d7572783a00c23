/// \file idle_pauses.hpp
/// How a thread rests that nothing can wake: who has work for it stores to memory.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace devcomm::host::detail {

/// The thread looks again and again, at first without a pause, and later with pauses as long as what one who posts then
/// can bear.
class idle_pauses {
 public:
  /// After each look, with whether it found work.
  void after(bool worked) {
    constexpr std::chrono::microseconds spins(20);
    constexpr std::chrono::milliseconds yields(1);
    constexpr std::chrono::microseconds longest(50);
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
    std::this_thread::sleep_for(std::min<clock::duration>(idle / 100, longest));
  }

 private:
  using clock = std::chrono::steady_clock;

  clock::time_point since_{};
};

}  // namespace devcomm::host::detail
