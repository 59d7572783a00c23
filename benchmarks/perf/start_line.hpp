/// \file start_line.hpp
/// Ranks that start together, or late by a time that is known.
#pragma once

#include "perf/exchange.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace perf {

/// Starts what is measured on all ranks at one moment of the host's clock, which its processes share. Ranks leave a
/// barrier tens of microseconds apart, so they agree on a moment a little ahead, and spin until then. The host may
/// still take a rank's processor away before its launch: `launch_lag` tells.
class start_line {
 public:
  explicit start_line(exchange& between) : exchange_(between) {}

  /// The longest of the milliseconds that `take` returns on the ranks. This rank begins it `late` after the moment.
  /// Taken again where a rank came to the line too late. *Collective*.
  template <class Take>
  double slowest(std::chrono::microseconds late, const Take& take) {
    for (auto lead = usual_lead;; lead *= 2) {
      if (lead > max_lead) throw std::runtime_error("the ranks do not start together: this host is too busy");
      const clock::time_point start = exchange_.gather(clock::now()).front() + lead;
      lap mine;
      launched_ = start + late;
      mine.in_time = clock::now() <= start;
      while (clock::now() < start + late) {
      }
      mine.milliseconds = static_cast<double>(take());
      mine.lag = std::chrono::duration<double, std::micro>(launched_ - start - late).count();
      const auto laps = exchange_.gather(mine);
      if (!std::all_of(laps.begin(), laps.end(), [](const lap& each) { return each.in_time; })) continue;
      double longest = 0;
      lag_ = 0;
      for (const lap& each : laps) {
        longest = std::max(longest, each.milliseconds);
        lag_ = std::max(lag_, each.lag);
      }
      return longest;
    }
  }

  /// Called by `take` when it has put everything on the stream.
  void launched() { launched_ = clock::now(); }
  /// Microseconds from the moment at which a rank was to start until it had launched, the latest rank's last time.
  [[nodiscard]] double launch_lag() const { return lag_; }

 private:
  using clock = std::chrono::steady_clock;
  struct lap {
    double milliseconds = 0;
    double lag = 0;
    bool in_time = false;
  };
  static constexpr std::chrono::microseconds usual_lead{500};
  static constexpr std::chrono::microseconds max_lead = std::chrono::seconds(2);

  exchange& exchange_;
  clock::time_point launched_;
  double lag_ = 0;
};

}  // namespace perf
