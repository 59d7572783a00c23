/// \file row.hpp
/// One line of results.
#pragma once

#include "perf/algorithm.hpp"
#include "perf/lateness.hpp"

#include <cstdint>
#include <string>

namespace perf {

struct row {
  std::string operation;
  std::string implementation;
  std::string algorithm;
  std::string protocol;
  int ranks = 0;
  std::uint64_t bytes = 0;
  data_type type = data_type::bf16;
  bool in_place = false;
  bool graph = true;
  bool dependent = false;
  launch_shape shape;
  int calls = 1;  ///< of a measurement, its chain
  lateness late;
  double mean_late = 0;  ///< microseconds a call that the latest rank is late, as it was drawn
  double spin = 0;       ///< microseconds a call that the spinning kernels take without the calls, the median
  double spun = 0;       ///< microseconds a call that those kernels were asked to spin on that rank
  double median = 0;     ///< microseconds a call, the slowest rank's, lateness included
  double p99 = 0;        ///< of the measurements
  double most = 0;
  double lag_of_most = 0;  ///< microseconds that the host of a rank took to launch the slowest measurement
  double least = 0;
  double bus_factor = 1;
  std::uint64_t wrong = 0;  ///< elements, on all ranks

  /// The median less the lateness of the latest rank and, with jitter, less what the spinning kernels take beyond their
  /// spinning: what the calls themselves cost.
  [[nodiscard]] double net() const { return median - mean_late - (spin - spun); }
  [[nodiscard]] double algorithm_bandwidth() const { return static_cast<double>(bytes) / median * 1e-3; }  ///< GB/s
  [[nodiscard]] double bus_bandwidth() const { return algorithm_bandwidth() * bus_factor; }                ///< GB/s
};

}  // namespace perf
