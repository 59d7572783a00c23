/// \file stand_in.hpp
/// Runs ranks on the stand-in for the CUDA driver, and on nothing else.
#pragma once

#include "../communicator/rank_harness.hpp"
#include "control.hpp"

#include <string>
#include <utility>
#include <vector>

namespace devcomm_test {

/// The stand-in's functions for tests.
struct stand_in_driver {
  decltype(&stand_in_count_held) held;
  decltype(&stand_in_fail) fail;
  decltype(&stand_in_count_calls) calls;
  decltype(&stand_in_keep_busy) keep_busy;
  decltype(&stand_in_delay_copies) delay_copies;
  decltype(&stand_in_complaints) complaints;
  /// A function of the driver, by its name; null where the driver lacks it.
  void* (*find)(const char* name);
};

/// Throws unless `libcuda.so.1` is the stand-in.
[[nodiscard]] const stand_in_driver& stand_in();

using variables = std::vector<std::pair<std::string, std::string>>;

/// Runs `body` on ranks in processes of their own, `inside` in each, with a driver that starts anew under `set`, and
/// with multicast allowed where `set` does not forbid it. A rank that broke a rule of the driver has not ended well.
[[nodiscard]] outcomes on_stand_in(int ranks, int inside, const rank_body& body, const variables& set = {});

/// Throws a sentence about what the process still holds.
void require_nothing_held(const std::string& when);

}  // namespace devcomm_test
