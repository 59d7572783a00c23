/// \file engine.hpp
/// The simulation: one baton, passed among block threads and the dispatcher.
///
/// The holder of `lock` may access everything here. While kernels run, the lock stays taken and is passed on
/// with the baton; host threads that call the CUDA runtime queue for it and get it at the next scheduling
/// step.
#pragma once

#include "base/futex.hpp"
#include "base/random.hpp"
#include "engine/copies.hpp"
#include "engine/session_table.hpp"
#include "engine/settings.hpp"
#include "gpu/multiprocessors.hpp"
#include "schedule/exploration.hpp"
#include "schedule/schedule.hpp"

#include <device/network_step.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

class block;
class explorer;
struct fiber;
struct grid;
struct task;

/// What a host thread waits for.
class condition {
 public:
  virtual ~condition() = default;
  [[nodiscard]] virtual bool holds() = 0;
};

/// Work that goes on beside kernels; called with the lock.
class background_work {
 public:
  explicit background_work(int its_rank) : rank(its_rank) {}
  virtual ~background_work() = default;
  const int rank;  ///< in the order of ranks they take turns
  /// Does a part of it, chosen by `random`; whether there was any.
  [[nodiscard]] virtual bool step(random_choice& random) = 0;

  // In explorations.
  /// All that it could do next.
  [[nodiscard]] virtual std::vector<host::detail::network_step> possible() = 0;
  /// Does one of these; the memory shared with kernels that it touches.
  [[nodiscard]] virtual std::vector<memory_access> take(const host::detail::network_step& step) = 0;
  /// While it rests and no kernel runs: keeps its state, and puts it back. Whether that is possible.
  [[nodiscard]] virtual bool keep() = 0;
  virtual void restore() = 0;
  /// What it has done comes before what the calling thread does next.
  virtual void join() = 0;
};

class engine {
 public:
  ticket_lock lock;

  // --- threads of hosts ---

  /// Runs the simulation until `c` holds. The caller holds the lock, and holds it again afterwards.
  void host_wait(condition& c);
  /// Lets the simulation take about `steps` scheduling steps, or until `c` holds.
  void host_wait_steps(condition& c, uint64_t steps);
  /// Hands a task to the dispatcher, once all its predecessors are done.
  void add_ready(task& t);
  /// Starts the dispatcher, and wakes it.
  void poke();

  // --- block threads (scheduler.cpp) ---

  /// Yields the running fiber; returns when it is chosen again, which takes a `wake` if it is no longer runnable.
  void reschedule();
  /// Who runs next: a block, or null for the dispatcher.
  [[nodiscard]] block* choose();
  /// Gives the baton to `next` and waits for the turn of `self`.
  void hand_over(block& self, block* next);
  /// First fiber of a block's turn; the calling thread is on the block's root context.
  [[nodiscard]] fiber& choose_fiber(block& b);

  void add_ready_block(block& b);
  void remove_ready_block(block& b);

  // --- waiting fibers (watch.cpp) ---
  void add_waiting(fiber& f);
  void remove_waiting(fiber& f);
  /// Wakes every fiber whose polled words have changed or whose wake time has passed; whether there was one.
  bool peek();
  /// Wakes polling fibers whose loop may load something else in its next round; whether there was one.
  bool wake_pollers();
  /// How often a fiber that would otherwise wait for ever is woken before it counts as stuck.
  [[nodiscard]] uint32_t poll_retries() const;
  [[nodiscard]] bool may_see_change(const fiber& f) const;
  /// Of waits that only the communicator's own limit ends, those count that end by `end_of_limits`.
  [[nodiscard]] uint64_t next_wake_time(uint64_t end_of_limits) const;

  /// Advances time by the step that reading the clock takes; the new time.
  uint64_t read_clock();

  /// World ranks that communicators have put on a device.
  std::map<int, std::set<int>> ranks_of_device;

  // --- background tasks in explorations (network.cpp) ---
  /// Whether a step of theirs is next. The dispatcher then takes it before anything else happens.
  [[nodiscard]] bool network_is_next();
  /// Takes the step that is next, if one is.
  void step_network();
  /// While no kernel runs: takes all steps that are left.
  void finish_network();

  // --- failures (failure.cpp) ---
  void record_failure(const std::string& text, bool consequence);
  /// `text` tells what ends the launch of `rank`, or of -1, and of which `kind` it is. Of what several ranks do alike
  /// the first one is notified, and the others by `tell_of_others`, when no launch is left.
  void record_misuse(int rank, const std::string& text, const std::string& kind);
  void tell_of_others();
  [[nodiscard]] std::string failure_text() const { return failure_text_; }
  void forget_failures() {
    failure_text_.clear();
    see_failures();
  }
  /// The program has looked at what failed: devices are usable again, and so are streams for work that comes later.
  void see_failures() {
    faults.clear();
    ++error_checks;
  }
  uint64_t error_checks = 0;  ///< how often the program has asked for errors

  /// What broke a device. As on a GPU it stays, until the program takes it as seen.
  struct fault {
    int error = 0;          ///< of the first task that failed
    bool returned = false;  ///< a call has returned it; from then on every call does
    bool reset = false;     ///< calls succeed again, and nobody has looked at the failure
    std::string text;
  };
  std::map<int, fault> faults;  ///< by device, since failures were last taken as seen
  void note_fault(int device, int error) {
    fault& broken = faults[device];
    if (broken.error == 0 || broken.reset) broken = {error, false, false, failure_text_};
  }
  /// The error that every call on `device` returns; 0 for none.
  [[nodiscard]] int lasting_error(int device) const {
    const auto found = faults.find(device);
    return found != faults.end() && found->second.returned && !found->second.reset ? found->second.error : 0;
  }

  settings config;
  schedule order;
  explorer* explored_by = nullptr;  ///< of the exploration that runs, or null
  session_table sessions;
  multiprocessors gpus;
  copy_engine copies{*this};
  uint64_t unfinished_tasks = 0;
  uint64_t unfinished_launches = 0;  ///< of them
  std::map<int, uint64_t> unfinished_of_device;
  uint64_t trace = 0;
  uint64_t launches = 0;  ///< since the seed was set
  std::map<int, uint64_t> launches_of_device;
  uint64_t steps = 0;
  uint64_t progress = 0;  ///< steps but those of threads that run in loops without preemption points
  uint64_t switches = 0;
  uint64_t handoffs = 0;
  uint64_t now = 0;                ///< simulated nanoseconds
  uint64_t step_limit = never;     ///< the dispatcher gets the baton back at this step
  bool dispatcher_wanted = false;  ///< the dispatcher gets the baton back at the next step
  bool shared_with_processes = false;
  uint64_t real_offset = 0;  ///< simulated minus real time, while shared
  /// While memory is shared with other processes, simulated time is real.
  void follow_real_time() {
    if (shared_with_processes) now = now > real_time() + real_offset ? now : real_time() + real_offset;
  }
  turn dispatcher_turn;
  const block* running = nullptr;  ///< the block that has the baton
  bool hosts_moved = true;         ///< a host thread that waited when it was last inspected may run
  bool failed_since_idle = false;  ///< a launch failed and others still run: theirs follow from it

  std::vector<background_work*> background_tasks;  ///< by rank
  int waiting_frees = 0;  ///< threads of hosts that wait to free memory: background tasks rest meanwhile
  runnable_blocks ready_blocks;
  std::vector<fiber*> waiting;
  std::vector<grid*> grids;             ///< launches that run, oldest first
  uint32_t grid_count = 0;              ///< of them; read by threads without the lock
  std::vector<long> observers;          ///< host threads that only observe, and never act
  std::vector<long> awaiting_ranks;     ///< host threads that act again once all ranks have come
  std::vector<block*> ending_blocks;    ///< whose clusters have ended: they go with their next turn
  std::vector<block*> finished_blocks;  ///< to be joined by the dispatcher

  /// Nanoseconds of simulated time that one scheduling step takes.
  static constexpr uint64_t step_time = 20;

  /// `dispatch` is what the dispatcher's thread runs; started when there is something to do.
  engine(const settings& first, std::unique_ptr<schedule_log> log, void (*dispatch)(engine&));
  /// Restarts the sequence of choices.
  void restart();

 private:
  friend class dispatcher;

  struct waiter {
    condition* what;
    uint64_t until_step;
    long thread;
    turn satisfied;
  };
  void wait(condition& c, uint64_t until_step);

  std::vector<waiter*> waiters_;
  static constexpr int ended_kept = 64;
  long ended_threads_[ended_kept] = {};  ///< of the blocks joined last, which the system may still list
  uint32_t ended_ = 0;
  std::vector<task*> ready_tasks_;
  uint32_t returning_ = 0;  ///< host threads that are satisfied and not yet back
  uint32_t event_ = 0;      ///< futex: changes when the dispatcher has work
  uint64_t last_call_ = 0;  ///< real time of the latest poke
  uint64_t last_peek_ = 0;  ///< step
  void (*dispatch_)(engine&);
  bool dispatcher_started_ = false;
  std::string failure_text_;
  std::string misuse_;           // the latest that `record_misuse` recorded
  std::set<int> misused_alike_;  // other ranks that did the same
  /// A step of a background task that is to be taken.
  struct due_step {
    background_work* who = nullptr;  ///< null: none
    host::detail::network_step what{};
    thread_key key;
  };
  due_step due_;
  random_choice background_random_;
  uint64_t background_step_ = 0;  ///< when they are due
};

}  // namespace devcomm::simulator::detail
