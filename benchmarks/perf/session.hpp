/// \file session.hpp
/// One run of devcomm-perf over its sizes and algorithms, on one rank.
#pragma once

#include "perf/measurement.hpp"
#include "perf/options.hpp"
#include "perf/report.hpp"

#include <optional>

namespace perf {

class session {
 public:
  /// Throws `usage_error` for an unknown operation or algorithm.
  session(devcomm::host::communicator& comm, const options& settings);

  /// *Collective*. Whether every result was right. Throws `usage_error` where nothing of what was asked for can be
  /// measured.
  bool run();

 private:
  struct chosen_algorithm {
    algorithm* how;
    bool is_named;  ///< not only by "all"
  };
  struct planned {
    algorithm* how;
    choice as;
  };

  void choose_algorithms();
  void choose_algorithm(algorithm& how, bool is_named);
  /// Of calls, as they are asked for.
  [[nodiscard]] std::vector<std::uint64_t> sizes() const;
  /// What was asked for by name and is left out, a line each. Throws `usage_error` where nothing is measured.
  [[nodiscard]] std::vector<std::string> look_ahead(const std::vector<std::uint64_t>& sizes) const;
  /// What `auto` runs. Throws `std::runtime_error` for a plan of other algorithms.
  [[nodiscard]] planned plan(const work& call) const;
  /// Why an algorithm is left out of a call, or nothing.
  [[nodiscard]] std::string why_not(const algorithm& how, const work& call) const;
  void run_size(std::uint64_t bytes);
  void run_algorithm(algorithm& how, std::uint64_t bytes, launch_shape shape);
  void run_algorithm(algorithm& how, std::uint64_t bytes, launch_shape shape, const lateness& late);
  void run_plan(std::uint64_t bytes);
  /// The shapes of an algorithm that are worth a full measurement: the fastest for each budget of blocks.
  std::vector<launch_shape> sweep(algorithm& how, work call, const lateness& late);
  void write_plan() const;
  /// Bytes of the inputs of the largest call, or of its outputs.
  [[nodiscard]] std::uint64_t region() const;
  [[nodiscard]] work call_of(std::uint64_t bytes) const;
  [[nodiscard]] bool is_first() const { return comm_.rank() == 0; }

  devcomm::host::communicator& comm_;
  options settings_;
  const operation* operation_;
  devcomm::host::symmetric_memory window_;
  rank_context context_;
  algorithms own_;
  algorithms peers_;
  std::vector<chosen_algorithm> chosen_;
  bool follows_plan_ = false;
  measurement measurement_;
  std::optional<report> report_;
};

}  // namespace perf
