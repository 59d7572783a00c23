/// \file table.hpp
/// Tables of what is measured beside what is expected; the first rank prints them.
#pragma once

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

namespace late_peer {

inline constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

class table {
 public:
  table(int rank, const char* title) : prints_(rank == 0) {
    if (prints_) std::printf("%-64s %10s %10s %10s\n", title, "expected", "measured", "difference");
  }

  /// Prints a row; returns `measured`.
  double row(const std::string& name, double expected, double measured) const {
    if (!prints_) return measured;
    if (std::isnan(expected)) {
      std::printf("  %-62s %10s %10.2f\n", name.c_str(), "", measured);
    } else {
      std::printf("  %-62s %10.2f %10.2f %+10.2f\n", name.c_str(), expected, measured, measured - expected);
    }
    std::fflush(stdout);
    return measured;
  }
  void left_out(const std::string& why) const {
    if (prints_) std::printf("  left out: %s\n", why.c_str());
  }

 private:
  bool prints_;
};

}  // namespace late_peer
