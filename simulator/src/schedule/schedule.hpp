/// \file schedule.hpp
/// Who runs next: the kinds of schedule, each a function of the seed.
#pragma once

#include "base/random.hpp"
#include "schedule/runnable.hpp"
#include "schedule/schedule_log.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::simulator::detail {

enum class schedule_kind : uint8_t {
  random,       ///< any runnable thread, with equal probability
  pct,          ///< by priorities, with few changes of them
  slow_rank,    ///< random; all blocks of one device are repeatedly held back
  slow_block,   ///< the same with one block
  starve_warp,  ///< the same with one warp
};

/// A value of `DEVCOMM_SIM_SCHEDULE`.
struct schedule_choice {
  std::optional<schedule_kind> kind = schedule_kind::random;  ///< none: mixed, the seed chooses
  uint32_t depth = 3;                                         ///< of pct
  uint32_t length = 0;                                        ///< of pct, in preemption points; 0: drawn

  /// None when `text` is not such a value.
  [[nodiscard]] static std::optional<schedule_choice> parse(std::string_view text);
  /// What `parse` takes.
  [[nodiscard]] std::string text() const;
  static constexpr const char* forms = "random, pct[:DEPTH[:LENGTH]], slow_rank, slow_block, starve_warp or mixed";
};

/// Chooses instead of the schedule, as an exploration does.
class chooser {
 public:
  virtual ~chooser() = default;
  /// Whether one of `steps` of the network is next, by its index; else a thread of `ready`, or none where there is
  /// none.
  [[nodiscard]] virtual std::optional<size_t> choose_network(const runnable_blocks& ready,
                                                             const std::vector<thread_key>& steps) = 0;
  /// The running thread has stopped at a preemption point.
  virtual void stopped(scheduled_thread& t) = 0;
  [[nodiscard]] virtual scheduled_block& choose_block(const runnable_blocks& ready) = 0;
  [[nodiscard]] virtual scheduled_thread& choose_thread(scheduled_block& b) = 0;
  /// What was chosen at `from`.
  virtual void record(const stop_point& from, const thread_key& to) = 0;
};

/// The choices of one seed. Called with the baton.
///
/// *pct* is Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs"
/// (ASPLOS 2010): each thread has a random priority, the runnable one of highest priority runs, and at DEPTH - 1 points
/// of LENGTH, drawn at random, the running thread drops below all others. Longer programs continue with the
/// next LENGTH points. A thread that runs for `spin_limit` points without having to wait may be spinning on
/// another thread, so its priority drops as well.
class schedule {
 public:
  schedule(const schedule_choice& choice, uint64_t seed, std::unique_ptr<schedule_log> log);

  [[nodiscard]] schedule_kind kind() const { return kind_; }

  /// A number for a block that is the same in every run of a seed.
  [[nodiscard]] static uint64_t block_hash(uint64_t launch, int device, uint64_t block);

  /// The threads of `b` are there, and none has run.
  void started(scheduled_block& b);
  /// `t` can run from now on; `running` (or null) has the baton.
  void woken(scheduled_thread& t, scheduled_thread* running);
  /// `t` cannot run any more.
  static void suspended(scheduled_thread& t);
  /// The running thread has stopped at a preemption point.
  void stopped(scheduled_thread& t);
  /// No thread runs, and the next one is to be chosen.
  void begins();

  [[nodiscard]] bool replays() const { return log_ != nullptr && log_->replays(); }
  /// While `explore` runs: threads stop at each strong operation, also in devcomm's waits. `who` (or null, where a file
  /// is repeated under the same rules) chooses.
  void begin_exploring(chooser* who) {
    exploring_ = true;
    chooser_ = who;
  }
  void end_exploring() {
    exploring_ = false;
    chooser_ = nullptr;
  }
  [[nodiscard]] bool explores() const { return exploring_; }
  /// Restarts the count of such choices, as if the program began.
  void count_from_start() {
    begun_ = 0;
    after_network_ = false;
  }
  /// Takes over the files of an earlier schedule.
  void take_log(schedule& earlier);

  /// Whether polled words are to be checked, `steps` choices after they last were.
  [[nodiscard]] bool poll_due(uint64_t steps, size_t waiting) const;
  /// Whether another block than `b`, which has runnable threads, is to be chosen.
  [[nodiscard]] bool leaves(scheduled_block& b, const runnable_blocks& ready, uint64_t step);
  [[nodiscard]] scheduled_block& choose_block(const runnable_blocks& ready, uint64_t step);
  [[nodiscard]] scheduled_thread& choose_thread(scheduled_block& b);
  /// In explorations: which of `steps` of the network, at least one, is next; none where a thread of `ready` is. The
  /// step is then taken before anything else is chosen.
  [[nodiscard]] std::optional<size_t> choose_network(const runnable_blocks& ready,
                                                     const std::vector<thread_key>& steps);

 private:
  static constexpr uint32_t points_at_once = 16;  ///< of pct, until polled words are checked
  static constexpr uint32_t spin_limit = 4096;
  static constexpr uint32_t points_per_yield = 64;  ///< what a yield without effect counts as

  [[nodiscard]] scheduled_block& replayed_block(const runnable_blocks& ready);
  [[nodiscard]] scheduled_thread& replayed_thread(scheduled_block& b);
  [[nodiscard]] scheduled_thread& chosen_thread(scheduled_block& b);

  // Priorities.
  void begin_window();
  void drop_priority(scheduled_thread& t);
  [[nodiscard]] static scheduled_thread& top(scheduled_block& b);

  // Holding back.
  void hold_or_free(uint64_t step);
  [[nodiscard]] bool holds(const scheduled_block& b) const;
  [[nodiscard]] bool holds(const scheduled_thread& t) const;
  [[nodiscard]] bool holds_all(const scheduled_block& b) const;

  std::unique_ptr<schedule_log> log_;
  chooser* chooser_ = nullptr;
  bool exploring_ = false;
  stop_point stop_;                      ///< of the choice that is to be made
  scheduled_thread* stopped_ = nullptr;  ///< the thread that stopped there, or null
  uint64_t begun_ = 0;                   ///< choices when no thread ran
  bool after_network_ = false;           ///< `stop_` is a step of the network
  thread_key next_;                      ///< who was chosen, once a block is

  schedule_choice choice_;
  schedule_kind kind_;
  uint64_t seed_;
  random_choice random_;

  uint64_t points_ = 0;            ///< preemption points so far
  uint64_t window_end_ = 0;        ///< points
  std::vector<uint64_t> changes_;  ///< points, the next one last
  uint64_t lowest_ = uint64_t{1} << 62;

  bool holding_ = false;
  uint64_t phase_end_ = 0;  ///< step
  uint64_t victim_hash_ = ~uint64_t{0};
  int victim_device_ = -1;
  uint64_t victim_block_ = 0;
  uint32_t victim_warp_ = 0;
};

}  // namespace devcomm::simulator::detail
