/// \file exploration.hpp
/// Which interleavings there are: dynamic partial-order reduction.
///
/// Source-DPOR with sleep sets (Abdulla, Aronis, Jonsson, Sagonas, "Optimal Dynamic Partial Order Reduction", POPL
/// 2014). Two executions are equal when they order all conflicting steps alike; of equal ones at least one is run.
/// Steps are known once they have been taken. Happens-before is kept by vector clocks: the steps of one thread, steps
/// that conflict, and what `comes_after` defines for barriers, launches and the host.
///
/// An unsuccessful poll is not a step: the thread is disabled until the polled memory changes. So a successful poll may
/// be enabled by an earlier store than the one it last conflicts with, and each store that does not happen before it by
/// other means is a candidate for reversal. What a thread does is a function of the steps that happen before and of the
/// values that its poll reads; so an unsuccessful poll need not be tried again where it would read the same values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace devcomm::simulator::detail {

/// Memory that a step touches.
struct memory_access {
  uintptr_t address;
  uint32_t bytes;
  bool writes;
  uint64_t value;  ///< that was found or stored
  /// The step was possible only once earlier ones had written it.
  bool follows = false;
  /// Of several such, the order makes no difference to what is there after all of them.
  bool commutes = false;

  [[nodiscard]] bool same_range(const memory_access& other) const {
    return address == other.address && bytes == other.bytes;
  }
  /// Values may differ, as epochs do.
  bool operator==(const memory_access& other) const { return same_range(other) && writes == other.writes; }
};

/// Of each thread, how many of its steps come before.
using step_clock = std::vector<uint32_t>;
void join(step_clock& into, const step_clock& other);

class exploration {
 public:
  /// Without `reduction` every interleaving is run.
  exploration(bool reduction, uint64_t max_steps) : reduction_(reduction), max_steps_(max_steps) {}

  /// The first execution, or the next one.
  void begin();
  /// Who runs: one of `runnable`, which has one at least.
  [[nodiscard]] int choose(const std::vector<int>& runnable);
  /// The poll of the chosen thread was unsuccessful, and it sleeps. `found`: all that the poll depends on; empty when
  /// not known.
  void waits(int thread, const std::vector<memory_access>& found);
  /// The chosen thread has taken a step; `awaits`: it polled until it found what it waits for.
  void steps(int thread, const std::vector<memory_access>& accesses, bool awaits);
  /// What `thread` does next comes after `earlier`.
  void comes_after(int thread, const step_clock& earlier);
  [[nodiscard]] const step_clock& clock_of(int thread);
  /// The rest of this execution is of no interest.
  void run_free() { free_ = true; }
  /// Ends the execution; whether there is another one to run.
  [[nodiscard]] bool advance();

  [[nodiscard]] uint64_t executions() const { return executions_; }
  [[nodiscard]] uint64_t redundant() const { return redundant_; }
  [[nodiscard]] uint64_t longest() const { return longest_; }
  [[nodiscard]] bool complete() const { return complete_; }
  /// An execution was longer than is allowed.
  [[nodiscard]] bool too_long() const { return too_long_; }
  /// An execution did not repeat the beginning of an earlier one.
  [[nodiscard]] bool irregular() const { return irregular_; }

 private:
  struct taken_step {
    int thread;
    std::vector<memory_access> accesses;
  };
  /// A state that the current execution comes through, and the step that it takes there.
  struct node {
    std::vector<int> enabled;        ///< that can run as far as is known
    std::vector<int> waiting;        ///< that poll without success here
    std::vector<int> wanted;         ///< that are to be tried here (the paper's backtrack set)
    std::vector<taken_step> asleep;  ///< whose steps here lead to nothing new
    std::vector<taken_step> done;    ///< that have been tried here
    int chosen = -1;
    bool taken = false;  ///< the step is over
    std::vector<memory_access> accesses;
    uint32_t number = 0;  ///< of the step among those of its thread, from 1
    step_clock clock;     ///< of the step, itself included
    uint64_t past = 0;    ///< names what its thread comes after, without the step
  };
  struct thread_state {
    step_clock clock;
    std::vector<uint64_t> history;  ///< after each step, a hash of its values so far
  };

  [[nodiscard]] bool replays() const { return depth_ + 1 < prefix_; }
  [[nodiscard]] thread_state& state_of(int thread);
  void add_node();
  void order(node& n, bool awaits);
  void join_writes(const memory_access& found, step_clock& into) const;
  [[nodiscard]] static bool is_before(const node& step, const step_clock& clock);
  [[nodiscard]] uint64_t past_of(int thread);
  void note_initial(const std::vector<memory_access>& found);
  /// Whether the poll of the current node is known to be unsuccessful without the step of node `first` and the steps
  /// that come after that.
  [[nodiscard]] bool fails_without(size_t first) const;
  /// Sees to it that the step of the current node is tried before that of node `first`.
  void reverse(size_t first);
  [[nodiscard]] static int untried(const node& n);

  bool reduction_;
  uint64_t max_steps_;
  std::vector<node> path_;
  size_t depth_ = 0;
  size_t prefix_ = 0;  ///< nodes whose choice is made as this execution begins
  std::vector<thread_state> threads_;
  std::unordered_map<uint64_t, std::vector<std::vector<memory_access>>> unsuccessful_;  ///< polls, by their past
  std::map<std::pair<uintptr_t, uint32_t>, uint64_t> initial_;                          ///< values before any step
  int last_ = -1;

  bool free_ = false;
  bool cut_short_ = false;  ///< this execution turned out to be redundant
  bool too_long_ = false;
  bool irregular_ = false;
  bool complete_ = false;
  uint64_t executions_ = 0;
  uint64_t redundant_ = 0;
  uint64_t longest_ = 0;
};

}  // namespace devcomm::simulator::detail
