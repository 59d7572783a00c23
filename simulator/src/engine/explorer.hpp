/// \file explorer.hpp
/// Runs an exploration: reports to it what the simulation's threads do, and runs the threads that it chooses.
#pragma once

#include "base/sanitizer.hpp"
#include "engine/network_order.hpp"
#include "schedule/exploration.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <map>
#include <optional>
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
  using network_step = host::detail::network_step;

  explorer(bool reduction, uint64_t max_steps) : search_(reduction, max_steps) {}

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
  void synchronizes(fiber& f);
  /// A launch has failed: what follows is of no interest.
  void failed();

  // --- who is next ---
  [[nodiscard]] std::optional<size_t> choose_network(const runnable_blocks& ready,
                                                     const std::vector<thread_key>& steps) override;
  [[nodiscard]] scheduled_block& choose_block(const runnable_blocks& ready) override;
  [[nodiscard]] scheduled_thread& choose_thread(scheduled_block& b) override;
  void record(const stop_point& from, const thread_key& to) override {
    const sanitizer::unobserved hidden;
    schedule_.emplace_back(from, to);
  }

  // --- the network's proxies ---
  /// The step of `key.block` on behalf of `what.context`.
  void network_stepped(const thread_key& key, const network_step& what, const std::vector<memory_access>& accesses);
  /// Operations of this execution that have begun and do not end.
  [[nodiscard]] uint64_t unfinished_operations() const { return network_.under_way(); }
  /// Whether so much was under way in an execution that a proxy may have held something back.
  [[nodiscard]] bool too_much_under_way() const { return too_much_under_way_; }

  // --- what orders launches ---
  void submitted(task& t) const;
  void begins(task& t) const;
  /// A host thread has waited for `t`.
  void awaited(const task& t) const;

 private:
  /// Threads of one barrier or warp operation.
  struct rendezvous {
    const block* home;
    const void* call_site;
    uint64_t number;
    std::vector<int> threads;
  };

  /// Threads that can go on: their numbers, and `candidates_`.
  [[nodiscard]] std::vector<int> list(const runnable_blocks& ready);
  /// The index of the one that the search chooses.
  [[nodiscard]] size_t choose(const std::vector<int>& runnable);
  [[nodiscard]] int number_of(const thread_key& key);
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
  std::vector<rendezvous> rendezvous_;
  const fiber* running_ = nullptr;  ///< whose step is not over
  thread_key next_;
  scheduled_block* next_block_ = nullptr;  ///< chosen already
  std::vector<std::pair<block*, thread_key>> candidates_;
  network_order<step_clock> network_;
  bool too_much_under_way_ = false;
  std::vector<std::pair<stop_point, thread_key>> schedule_;
};

}  // namespace devcomm::simulator::detail
