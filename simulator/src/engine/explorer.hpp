/// \file explorer.hpp
/// Carries out an exploration: tells it what the simulation's threads do, and lets run whom it chooses.
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

/// Lanes of a warp that wait together, in step, are one thread from their first look on, under the number of lane 0:
/// they look at all of their memory in one step, or in vain. A step ends with what one of them stores or with the
/// wait, and the rest of the warp goes on when all have left that.
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
  /// What it has read since it last stopped was not what it waits for: it sleeps until what it watches changes.
  void found_nothing(const fiber& f);
  /// It has come to a place where another may go on.
  void stopped(scheduled_thread& t) override;
  /// It has ended.
  void ended(fiber& f);
  /// It wakes `f`, which is at a barrier or in a warp operation that all have come to.
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
  /// A lane of the warp that looks has stopped: another goes on, or the look is over.
  void go_on_looking();

  exploration search_;
  std::map<thread_key, int> numbers_;  ///< the same in all executions
  std::vector<bool> introduced_;       ///< threads of this execution
  std::vector<memory_access> pending_;
  std::vector<memory_access> vain_;  ///< what the latest look in vain depends on
  bool awaits_ = false;
  bool looks_ = false;   ///< the warp of `running_`, in one step
  bool stored_ = false;  ///< one of its lanes has
  std::vector<meeting> meetings_;
  const fiber* running_ = nullptr;  ///< whose step is not over
  thread_key next_;
  std::vector<std::pair<stop_point, thread_key>> schedule_;
};

}  // namespace devcomm::simulator::detail
