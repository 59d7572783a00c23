/// \file dispatcher.hpp
/// The OS thread that starts launches and copies, ends them, and decides what to do at quiescence.
#pragma once

#include "engine/block.hpp"
#include "engine/engine.hpp"
#include "engine/task.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace devcomm::simulator::detail {

/// The time that a clock has counted since `restart`, of each interval between samples no more than a part: while the
/// process or its machine stands still, clocks go on and threads do not.
class sampled_clock {
 public:
  void restart(uint64_t now) {
    latest_ = now;
    total_ = 0;
  }
  void sample(uint64_t now, uint64_t most) {
    total_ += std::min(now - std::min(now, latest_), most);
    latest_ = now;
  }
  [[nodiscard]] uint64_t total() const { return total_; }

 private:
  uint64_t latest_ = 0;
  uint64_t total_ = 0;
};

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
  void end_beside(const task& t, int error);
  void wake_hosts();
  [[nodiscard]] bool wakes_later();
  [[nodiscard]] bool wanted();
  void sleep();
  void run_blocks();
  /// Whether there was something to do.
  bool step_background_tasks();
  [[nodiscard]] bool network_goes_on();
  void quiescence();
  /// Whether some thread of the process other than the simulator's runs, or may wake by itself: all
  /// others wait in the CUDA runtime or, without a limit, for each other.
  [[nodiscard]] bool others_may_act();
  /// Whether `waits` holds, and continues to hold, for all threads of the process except the simulator's and those for
  /// which `skips` holds.
  template <class Skips, class Waits>
  [[nodiscard]] bool others_stay(Skips skips, Waits waits);
  /// Sorted.
  [[nodiscard]] std::vector<long> known_threads() const;
  void wait_for_others();
  /// Whether all host threads wait, or have computed for long, so that launches come at the same step in every run.
  [[nodiscard]] bool hosts_settle();
  /// Whether no host thread runs, apart from those that never stop.
  [[nodiscard]] bool hosts_rest();
  void report_deadlock();

  engine& engine_;
  uint64_t wake_step_ = never;  ///< when hosts whose launches have ended are woken
  uint64_t idle_since_ = 0;     ///< real time; 0: not idle
  uint64_t idle_checked_ = 0;   ///< real time when the other threads were last inspected
  uint64_t idle_step_ = 0;
  uint64_t real_base_ = 0;
  bool in_background_ = false;
  bool others_may_act_ = false;
  long moved_latest_ = 0;         ///< the thread that did not wait in the latest inspection that found one
  uint64_t inspected_since_ = 0;  ///< real time; 0: hosts are not being inspected
  sampled_clock hosts_busy_;      ///< processor time of hosts, since `inspected_since_`
  uint64_t unwaited_call_ = 0;    ///< real time of the latest poke, after which no host has waited
  sampled_clock unwaited_;        ///< real time since
  std::vector<long> busy_hosts_;  ///< host threads that kept running all the time
};

}  // namespace devcomm::simulator::detail
