/// \file measurement.hpp
/// One rank's side of measuring and checking an algorithm.
#pragma once

#include "common/measure.hpp"
#include "perf/algorithm.hpp"
#include "perf/exchange.hpp"
#include "perf/lateness.hpp"
#include "perf/options.hpp"
#include "perf/row.hpp"
#include "perf/start_line.hpp"

#include <functional>
#include <vector>

namespace perf {

/// Calls captured into a graph, or launched one by one. *Collective*: every method.
class measurement {
 public:
  measurement(devcomm::host::communicator& comm, const rank_context& context, const options& settings)
      : comm_(comm), context_(context), settings_(settings), exchange_(comm), start_line_(exchange_) {}

  /// Checks the results of single calls and of many in a row, and takes the times with ranks that come late so.
  /// `launches` and `replays` of 0 are the options'.
  row measure(const operation& what, algorithm& how, work call, const lateness& late, int launches = 0,
              int replays = 0);

  [[nodiscard]] cudaStream_t stream() const { return watch_.stream(); }

 private:
  /// The memory of outputs, of the operation's `region`.
  std::byte* place(const operation& what, algorithm& how, work& call) const;
  std::uint64_t check(const operation& what, algorithm& how, const work& call, std::byte* outputs, std::uint64_t seed);
  void wait_for(algorithm& how, const char* what);
  struct timed {
    double us;   ///< of the slowest rank
    double lag;  ///< as `start_line::launch_lag`
  };
  /// Sorted microseconds of what `start` puts on the stream, as the slowest rank sees it from its own start on; the
  /// last rank starts `late` microseconds after the others. `check` throws what went wrong.
  std::vector<timed> times(const std::function<void(cudaStream_t)>& start, const std::function<void()>& check,
                           std::uint64_t late, int replays);

  devcomm::host::communicator& comm_;
  const rank_context& context_;
  const options& settings_;
  exchange exchange_;
  start_line start_line_;
  benchmark::stopwatch watch_;
};

}  // namespace perf
