/// \file dispatcher.hpp
/// The OS thread that starts launches and copies, ends them, and decides what a standstill means.
#pragma once

#include "engine/block.hpp"
#include "engine/engine.hpp"
#include "engine/task.hpp"

#include <cstdint>
#include <vector>

namespace devcomm::simulator::detail {

class dispatcher {
 public:
  explicit dispatcher(engine& e) : engine_(e) {}
  /// Never returns.
  void run();

 private:
  void start_tasks();
  void start_blocks();
  void start_blocks(grid& g);
  void join_blocks();
  void end_grids();
  void wake_hosts();
  [[nodiscard]] bool wanted();
  void sleep();
  void run_blocks();
  void standstill();
  /// Whether some thread of the process other than the simulator's runs, or may wake by itself: all
  /// others wait in the CUDA runtime or, without a limit, for each other.
  [[nodiscard]] bool others_may_help() const;
  /// Whether `waits` holds, and goes on to, for all threads of the process but the simulator's and those that `skips`
  /// leaves out.
  template <class Skips, class Waits>
  [[nodiscard]] bool others_stay(Skips skips, Waits waits) const;
  [[nodiscard]] bool is_known(long thread) const;
  void wait_for_help();
  /// Whether all threads of hosts wait, or have computed for long: so that launches come at the same step in
  /// every run.
  [[nodiscard]] bool hosts_settle();
  /// Whether no thread of a host is running but those that have kept doing so.
  [[nodiscard]] bool hosts_rest();
  void report_deadlock();

  engine& engine_;
  uint64_t idle_since_ = 0;    ///< real time; 0: not idle
  uint64_t idle_checked_ = 0;  ///< real time of the latest look at the other threads
  uint64_t idle_step_ = 0;
  uint64_t real_base_ = 0;
  bool in_background_ = false;
  bool help_possible_ = false;
  uint64_t unsettled_since_ = 0;  ///< processor time of hosts; 0: no look at them is under way
  std::vector<long> restless_;    ///< threads of hosts that ran all the time that they had
};

}  // namespace devcomm::simulator::detail
