/// \file measurement.hpp
/// One rank's side of measuring and checking an algorithm.
#pragma once

#include "common/measure.hpp"
#include "perf/algorithm.hpp"
#include "perf/exchange.hpp"
#include "perf/options.hpp"
#include "perf/row.hpp"

namespace perf {

/// Calls captured into a graph, or launched one by one. *Collective*: every method.
class measurement {
 public:
  measurement(devcomm::host::communicator& comm, const rank_context& context, const options& settings)
      : comm_(comm), context_(context), settings_(settings), exchange_(comm) {}

  /// Checks the results of single calls and of many in a row, and takes the times. `launches` and `replays` of 0
  /// are the options'.
  row measure(const operation& what, algorithm& how, work call, int launches = 0, int replays = 0);

  [[nodiscard]] cudaStream_t stream() const { return watch_.stream(); }

 private:
  /// The memory of outputs, of the operation's `region`.
  std::byte* place(const operation& what, algorithm& how, work& call) const;
  std::uint64_t check(const operation& what, algorithm& how, const work& call, std::byte* outputs, std::uint64_t seed);
  void wait_for(algorithm& how, const char* what);

  devcomm::host::communicator& comm_;
  const rank_context& context_;
  const options& settings_;
  exchange exchange_;
  benchmark::stopwatch watch_;
};

}  // namespace perf
