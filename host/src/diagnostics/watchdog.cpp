#include "diagnostics/watched_waits.hpp"

#include <devcomm/host/error.hpp>

#include "diagnostics/watchdog_settings.hpp"
#include "util/environment.hpp"
#include "util/quiet_thread.hpp"

#include <semaphore.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace devcomm::host {
namespace detail {
namespace {

using clock = std::chrono::steady_clock;

/// All that the signal handler uses; no lock guards it.
struct signal_state {
  sem_t wake{};                    ///< wakes the watchdog's thread
  std::atomic<bool> asked{false};  ///< for a report
  struct sigaction before {};      ///< the previous handler
  std::atomic<bool> installed{false};

  signal_state() { ::sem_init(&wake, 0, 0); }
};

/// Never destroyed: a signal may come while the program ends.
signal_state& signals() {
  static auto* const state = new signal_state;
  return *state;
}

extern "C" void devcomm_watchdog_signal(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  signal_state& state = signals();
  state.asked.store(true);
  ::sem_post(&state.wake);
  if ((state.before.sa_flags & SA_SIGINFO) != 0) {
    state.before.sa_sigaction(number, info, context);
  } else if (state.before.sa_handler != SIG_DFL && state.before.sa_handler != SIG_IGN) {
    state.before.sa_handler(number);
  }
  errno = saved;
}

void install_handler() {
  signal_state& state = signals();
  if (state.installed.exchange(true)) return;
  ::sigaction(SIGUSR1, nullptr, &state.before);  // known before the new handler can run
  struct sigaction mine {};
  mine.sa_sigaction = devcomm_watchdog_signal;
  mine.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&mine.sa_mask);
  ::sigaction(SIGUSR1, &mine, nullptr);
}

/// One rank's table and when each of its waits was first seen.
struct watched_table {
  struct sighting {
    std::uint32_t number = 0;
    clock::time_point first;
  };

  wait_table* table;
  watched_name name;
  observing_port* devices;
  std::vector<sighting> sightings = std::vector<sighting>(wait_table::capacity);

  observed_rank observe(clock::time_point now) {
    observed_rank seen;
    seen.rank = name.rank;
    if (!devices->may_run_kernels()) return seen;  // the table holds what a failed kernel left
    for (std::size_t i = 0; i < wait_table::capacity; ++i) {
      const wait_record record = read_wait(table->records[i]);
      if (record.number == 0) continue;
      if (sightings[i].number != record.number) sightings[i] = {record.number, now};
      seen.waits.push_back(
          {record, std::chrono::nanoseconds(record.noted - record.since) + (now - sightings[i].first)});
    }
    seen.full = std::atomic_ref(table->full).load(std::memory_order_relaxed) != 0 && !seen.waits.empty();
    return seen;
  }
};

class watchdog {
 public:
  void attach(watched_table table) {
    const std::lock_guard lock(mutex_);
    load_options();
    tables_.push_back(std::move(table));
    if (tables_.size() > 1) return;
    try {
      start(*tables_.front().devices);
    } catch (...) {
      tables_.clear();  // its memory goes with the error
      throw;
    }
  }

  void detach(const wait_table* table) {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(tables_, [&](const watched_table& known) { return known.table == table; });
      if (!tables_.empty()) return;
      stop_ = true;
      ended = std::move(thread_);
    }
    ::sem_post(&signals().wake);
    if (!ended.joinable()) return;
    if (ended.get_id() == std::this_thread::get_id()) {
      ended.detach();  // the program's print destroys the last table: this thread ends when print has returned
    } else {
      ended.join();
    }
  }

  void set(watchdog_options options) {
    const std::lock_guard lock(mutex_);
    options_ = std::move(options);
    if (options_->on_signal) install_handler();
    next_ = options_->after;
    ::sem_post(&signals().wake);
  }

  /// Nothing when another thread holds the lock for long, as one does that a debugger has stopped.
  std::optional<std::string> describe(bool may_block) {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (may_block) {
      lock.lock();
    } else {
      for (int tries = 0; !lock.try_lock(); ++tries) {
        if (tries == 100) return std::nullopt;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return report_waits(observe());
  }

 private:
  /// The functions below are called with `mutex_`.
  void load_options() {
    if (options_) return;
    options_ = watchdog_options_from(process_variables());
    if (options_->on_signal) install_handler();
    next_ = options_->after;
  }

  void start(observing_port& devices) {
    stop_ = false;
    signals().asked.store(false);
    thread_ = quiet_thread([this, &devices, turn = ++turn_] { run(devices, turn); });
  }

  std::vector<observed_comm> observe() {
    const clock::time_point now = clock::now();
    std::sort(tables_.begin(), tables_.end(), [](const watched_table& a, const watched_table& b) {
      return std::tie(a.name.communicator, a.name.number, a.name.rank) <
             std::tie(b.name.communicator, b.name.number, b.name.rank);
    });
    std::vector<observed_comm> comms;
    const watched_name* last = nullptr;
    for (watched_table& table : tables_) {
      const watched_name& name = table.name;
      if (last == nullptr || last->communicator != name.communicator || last->number != name.number) {
        comms.push_back({"device communicator " + std::to_string(name.number) + " of a communicator of " +
                             std::to_string(name.size) + " ranks",
                         {}});
      }
      comms.back().ranks.push_back(table.observe(now));
      last = &name;
    }
    return comms;
  }

  static std::chrono::nanoseconds longest(const std::vector<observed_comm>& comms) {
    std::chrono::nanoseconds most{0};
    for (const observed_comm& comm : comms) {
      for (const observed_rank& one : comm.ranks) {
        for (const observed_wait& wait : one.waits) most = std::max(most, wait.age);
      }
    }
    return most;
  }

  /// A report that is due, or nothing.
  std::string due(bool asked) {
    const std::vector<observed_comm> comms = observe();
    const std::chrono::nanoseconds age = longest(comms);
    const bool late = options_->after.count() > 0 && age >= next_;
    if (late) {
      next_ = 2 * age;
    } else if (age < options_->after) {
      next_ = options_->after;
    }
    if (!late && !asked) return {};
    const std::string text = report_waits(comms);
    if (text.empty()) return "devcomm watchdog: nothing waits\n";
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f", std::chrono::duration<double>(age).count());
    return "devcomm watchdog: who waits for whom, the longest for " + std::string(seconds) + " s\n" + text + "\n";
  }

  void run(observing_port& devices, std::uint64_t turn) {
    devices.begin_observing();
    for (;;) {
      std::string text;
      std::function<void(const std::string&)> print;
      std::chrono::nanoseconds interval = std::chrono::milliseconds(250);
      {
        const std::lock_guard lock(mutex_);
        if (stop_ || turn != turn_) break;
        text = due(signals().asked.exchange(false));
        print = options_->print;
        if (options_->after.count() > 0) interval = std::min<std::chrono::nanoseconds>(interval, options_->after / 4);
      }
      if (!text.empty()) write(print, text);
      sleep(std::max<std::chrono::nanoseconds>(interval, std::chrono::milliseconds(1)));
    }
    devices.end_observing();
  }

  static void write(const std::function<void(const std::string&)>& print, const std::string& text) {
    try {
      if (print) return print(text);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "devcomm watchdog: the program's print threw %s\n", problem.what());
    }
    std::fputs(text.c_str(), stderr);
  }

  static void sleep(std::chrono::nanoseconds time) {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    const auto nanoseconds = until.tv_nsec + time.count() % 1000000000;
    until.tv_sec += time.count() / 1000000000 + nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    ::sem_timedwait(&signals().wake, &until);  // a signal or a post ends it earlier
  }

  std::mutex mutex_;
  std::optional<watchdog_options> options_;
  std::chrono::nanoseconds next_{0};  // age at which the next report is due
  std::vector<watched_table> tables_;
  std::thread thread_;
  std::uint64_t turn_ = 0;  // number of the current thread; an older one ends
  bool stop_ = false;
};

/// Never destroyed: device communicators may be static objects.
watchdog& the_watchdog() {
  static auto* const one = new watchdog;
  return *one;
}

/// Relaxed loads of words that a kernel may be writing.
template <class T>
T read_word(T& word) {
  return std::atomic_ref(word).load(std::memory_order_relaxed);
}

}  // namespace

wait_record read_wait(wait_record& record) {
  wait_record copy{};
  const std::uint32_t before = std::atomic_ref(record.number).load(std::memory_order_acquire);
  if (before == 0) return copy;
  copy.what = read_word(record.what);
  copy.index = read_word(record.index);
  copy.peer = read_word(record.peer);
  copy.block = read_word(record.block);
  copy.thread = read_word(record.thread);
  copy.expected = read_word(record.expected);
  copy.seen = read_word(record.seen);
  copy.since = read_word(record.since);
  copy.noted = read_word(record.noted);
  copy.peer_index = read_word(record.peer_index);
  copy.groups = read_word(record.groups);
  copy.condition = read_word(record.condition);
  copy.window = read_word(record.window);
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::uint32_t after = read_word(record.number);
  copy.number = before == after ? before : 0;
  return copy;
}

watched_waits::watched_waits(memory_port& memory, observing_port& devices, int device, watched_name name)
    : memory_(memory.allocate_host(device, sizeof(wait_table))) {
  new (memory_->data()) wait_table{};
  the_watchdog().attach({table(), name, &devices});
}

watched_waits::~watched_waits() { the_watchdog().detach(table()); }

}  // namespace detail

void set_watchdog(watchdog_options options) {
  if (options.after.count() < 0) {
    throw invalid_argument("set_watchdog: after is " + std::to_string(options.after.count()) +
                           " ms; give 0 (only when asked) or more");
  }
  detail::the_watchdog().set(std::move(options));
}

std::string describe_waits() { return *detail::the_watchdog().describe(true); }

}  // namespace devcomm::host

extern "C" __attribute__((used)) void devcomm_print_waits() noexcept {
  try {
    const auto text = devcomm::host::detail::the_watchdog().describe(false);
    std::fprintf(stderr, "%s\n",
                 !text           ? "devcomm: another thread is at the tables of waits; let it go on, and ask again"
                 : text->empty() ? "devcomm: nothing waits"
                                 : text->c_str());
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "devcomm: the waits could not be written: %s\n", problem.what());
  }
}
