/// \file explorer.hpp
/// Runs an exploration: reports to it what the simulation's threads do, and runs the threads that it chooses.
#pragma once

#include "base/sanitizer.hpp"
#include "schedule/exploration.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::simulator::detail {

class block;
struct fiber;
struct task;

/// Lanes of a warp that wait together, in lockstep, count as one thread from their first poll on, under the number of
/// lane 0: they poll all of their words in one step, or without success. The step ends with a store by one of them or
/// with the wait, and the rest of the warp continues when all have left the wait.
///
/// All but `begin`, `end` and the results are called with the baton.
class explorer final : public chooser {
 public:
  explorer(bool reduction, uint64_t most_steps) : search_(reduction, most_steps) {}

  void begin();
  /// Ends an execution; whether there is another one to run.
  [[nodiscard]] bool end();
  [[nodiscard]] const exploration& search() const { return search_; }
  /// Writes the schedule of the latest execution; whether that was possible.
  [[nodiscard]] bool write_schedule(const std::string& path) const;

  // --- the running thread ---
  void touches(const fiber& f, const void* address, size_t bytes, bool writes, uint64_t value);
  /// Its poll was unsuccessful: it sleeps until one of its words changes.
  void poll_failed(const fiber& f);
  /// It is at a preemption point.
  void stopped(scheduled_thread& t) override;
  /// It has ended.
  void ended(fiber& f);
  /// It wakes `f` from a barrier or warp operation that is now complete.
  void meets(fiber& f);
  /// A launch has failed: what follows is of no interest.
  void failed();

  // --- who is next ---
  [[nodiscard]] scheduled_block& choose_block(const runnable_blocks& ready) override;
  [[nodiscard]] scheduled_thread& choose_thread(scheduled_block& b) override;
  void record(const stop_point& from, const thread_key& to) override {
    const sanitizer::unobserved hidden;
    schedule_.emplace_back(from, to);
  }

  // --- what orders launches ---
  void submitted(task& t) const;
  void begins(task& t) const;
  /// A host thread has waited for `t`.
  void awaited(const task& t) const;

 private:
  /// Threads that meet in one barrier or warp operation.
  struct meeting {
    const block* home;
    const void* call_site;
    uint64_t number;
    std::vector<int> threads;
  };

  [[nodiscard]] int number_of(const thread_key& key, const block& home);
  [[nodiscard]] int number_of(fiber& f);
  void end_step(fiber& f);
  /// A lane of the polling warp has stopped: another one continues, or the poll is over.
  void continue_polling();

  exploration search_;
  std::map<thread_key, int> numbers_;  ///< the same in all executions
  std::vector<bool> introduced_;       ///< threads of this execution
  std::vector<memory_access> pending_;
  std::vector<memory_access> unsuccessful_;  ///< what the latest unsuccessful poll depends on
  bool awaits_ = false;
  bool polls_ = false;   ///< the warp of `running_` does, in one step
  bool stored_ = false;  ///< one of its lanes has
  std::vector<meeting> meetings_;
  const fiber* running_ = nullptr;  ///< whose step is not over
  thread_key next_;
  std::vector<std::pair<stop_point, thread_key>> schedule_;
};

}  // namespace devcomm::simulator::detail
