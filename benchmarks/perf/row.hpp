/// \file row.hpp
/// One line of results.
#pragma once

#include "perf/algorithm.hpp"

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
  double median = 0;  ///< microseconds a call, the slowest rank's
  double p99 = 0;     ///< of the measurements
  double least = 0;
  double bus_factor = 1;
  std::uint64_t wrong = 0;  ///< elements, on all ranks

  [[nodiscard]] double algorithm_bandwidth() const { return static_cast<double>(bytes) / median * 1e-3; }  ///< GB/s
  [[nodiscard]] double bus_bandwidth() const { return algorithm_bandwidth() * bus_factor; }                ///< GB/s
};

}  // namespace perf
