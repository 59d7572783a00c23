/// Quiescence: every thread of every launch waits.
///
/// First, all words that threads poll are checked again, and threads that poll outside devcomm's waits are woken to
/// poll further words. Then time: if no other thread of the process can act, simulated time jumps to the next deadline
/// or end of a sleep; if there is none, the launches are deadlocked. As long as another thread of the process may still
/// launch, abort or write, simulated time follows real time, and a deadlock is declared only after the grace period. Of
/// threads that wait for other ranks it is known that they cannot, and the period passes in simulated time. While
/// memory is shared with other processes, it never is.
#include "engine/dispatcher.hpp"
#include "engine/explorer.hpp"
#include "engine/take_snapshot.hpp"
#include "report/deadlock.hpp"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace devcomm::simulator::detail {
namespace {

/// Threads that existed before `main`, such as a sanitizer's own.
struct early_threads {
  early_threads();
  static constexpr int capacity = 16;
  long ids[capacity];
  int count = 0;
};

template <class Visit>
void for_each_thread(Visit visit) {
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    const long id = std::strtol(entry->d_name, nullptr, 10);
    if (id > 0) visit(id);
  }
  closedir(folder);
}

void* nothing(void*) { return nullptr; }

early_threads::early_threads() {
  if (sanitizer::thread()) {  // which starts a thread of its own with the program's first
    pthread_t first;
    if (pthread_create(&first, nullptr, &nothing, nullptr) == 0) pthread_join(first, nullptr);
  }
  for_each_thread([&](long id) {
    if (id != getpid() && count < capacity) ids[count++] = id;
  });
}

const early_threads early;

/// Reads a small file of /proc about a thread; false if it is empty or gone.
template <size_t Size>
bool read_about(long id, const char* name, char (&text)[Size]) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%ld/%s", id, name);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t bytes = read(file, text, sizeof text - 1);
  close(file);
  if (bytes <= 0) return false;
  text[bytes] = '\0';
  return true;
}

/// Whether the thread is in a futex wait, with a limit only where `limit_allowed`.
bool waits_for_others(long id, bool limit_allowed) {
  char text[256];
  if (!read_about(id, "syscall", text)) return false;
  long number = -1;
  unsigned long arguments[4] = {};
  const int found =
      std::sscanf(text, "%ld %lx %lx %lx %lx", &number, &arguments[0], &arguments[1], &arguments[2], &arguments[3]);
  if (found != 5 || number != SYS_futex) return false;
  const unsigned long command = arguments[1] & static_cast<unsigned long>(FUTEX_CMD_MASK);
  return (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) && (limit_allowed || arguments[3] == 0);
}

/// Whether the thread is in a system call that waits for something.
bool sleeps_now(long id) {
  char text[256];
  if (!read_about(id, "stat", text)) return true;  // it has ended
  const char* const name_end = std::strrchr(text, ')');
  return name_end != nullptr && name_end[1] == ' ' && name_end[2] == 'S';
}

uint64_t processor_time(clockid_t clock) {
  timespec used{};
  clock_gettime(clock, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1000000000u + static_cast<uint64_t>(used.tv_nsec);
}

/// A number that changes whenever the thread runs: how often it was given a processor, or else how often it has gone to
/// sleep.
uint64_t runs_of(long id) {
  char text[4096];
  if (read_about(id, "schedstat", text)) {
    const char* const last = std::strrchr(text, ' ');
    if (last != nullptr) return std::strtoull(last, nullptr, 10);
  }
  if (!read_about(id, "status", text)) return 0;
  const char* line = std::strstr(text, "\nvoluntary_ctxt_switches:");
  return line == nullptr ? 0 : std::strtoull(line + 25, nullptr, 10);
}

}  // namespace

/// Threads that may still be on their way into a wait: those of blocks, which have all given the baton
/// away, and of hosts that wait for what the simulation does.
std::vector<long> dispatcher::known_threads() const {
  std::vector<long> known(early.ids, early.ids + early.count);
  known.push_back(static_cast<long>(syscall(SYS_gettid)));
  for (const engine::waiter* w : engine_.waiters_) known.push_back(w->thread);
  for (const grid* g : engine_.grids) {
    for (const block* b : g->running) known.push_back(b->thread_id);
  }
  known.insert(known.end(), std::begin(engine_.ended_threads_), std::end(engine_.ended_threads_));
  std::sort(known.begin(), known.end());
  return known;
}

/// A thread seen waiting may be woken by one that is inspected later, and that then waits too. So all are asked whether
/// they wait between two counts of how often they have run: those that have not run between the counts wait all the
/// time. The list of threads is read again after the first count, since a thread that is on it may have started another
/// and then begun to wait.
///
/// With many ranks most inspections find a thread that does not wait, soon after the one that the latest inspection
/// found: they begin there.
template <class Skips, class Waits>
bool dispatcher::others_stay(Skips skips, Waits waits) {
  const std::vector<long> known = known_threads();
  const auto list_others = [&] {
    std::vector<long> found;
    for_each_thread([&](long id) {
      if (!std::binary_search(known.begin(), known.end(), id)) found.push_back(id);
    });
    return found;
  };
  std::vector<long> others = list_others();
  const auto latest = std::find(others.begin(), others.end(), moved_latest_);
  if (latest != others.end()) std::rotate(others.begin(), latest, others.end());
  const auto all_wait = [&] {
    const auto moves = std::find_if(others.begin(), others.end(), [&](long id) { return !skips(id) && !waits(id); });
    if (moves == others.end()) return true;
    moved_latest_ = *moves;
    return false;
  };
  const auto all_runs = [&] {
    uint64_t sum = 0;
    for (const long id : others) {
      if (!skips(id)) sum += (runs_of(id) + 1) * static_cast<uint64_t>(id);
    }
    return sum;
  };
  if (!all_wait()) return false;
  const uint64_t runs = all_runs();
  const std::vector<long> listed = list_others();
  if (!std::is_permutation(others.begin(), others.end(), listed.begin(), listed.end())) return false;
  // The lock last, since a thread that queues for it appears to wait for others.
  return all_wait() && all_runs() == runs && !engine_.lock.contended();
}

bool dispatcher::others_may_act() {
  const auto is_one_of = [](const std::vector<long>& threads, long id) {
    return std::find(threads.begin(), threads.end(), id) != threads.end();
  };
  // Observers do nothing by themselves, but one that runs may hold a lock for which a host waits.
  const auto waits = [&](long id) {
    if (is_one_of(engine_.observers, id)) return sleeps_now(id);
    return waits_for_others(id, is_one_of(engine_.awaiting_ranks, id));
  };
  return !others_stay([](long) { return false; }, waits);
}

void dispatcher::quiescence() {
  engine& e = engine_;
  if (e.peek() || e.wake_pollers() || step_background_tasks()) return;
  const uint64_t now = real_time();
  if (idle_since_ == 0 || idle_step_ != e.steps) {
    idle_since_ = real_base_ = now;
    idle_step_ = e.steps;
    idle_checked_ = 0;
  }
  // A host thread that only asked whether something is done continues, and may act.
  bool asked = false;
  for (engine::waiter* w : e.waiters_) {
    if (w->until_step == never) continue;
    w->until_step = e.steps;
    asked = true;
  }
  if (!e.shared_with_processes) {
    if (idle_checked_ == 0 || now - idle_checked_ > 5000000) {
      idle_checked_ = now;
      others_may_act_ = e.returning_ > 0 || asked || others_may_act();
    }
    if (!others_may_act_ || now - idle_since_ > e.config.grace) {
      // As long as hosts wait for other ranks, a limit of the communicator that is shorter than the grace period ends
      // waits.
      const uint64_t next = e.next_wake_time(e.awaiting_ranks.empty() ? 0 : e.now + e.config.grace);
      if (next == never) {
        report_deadlock();
      } else {
        e.now = std::max(e.now, next);
        e.peek();
      }
      return;
    }
  }
  wait_for_others();
}

/// It is enough that they sleep: a thread that wakes by time does so at a different step in every run anyway.
bool dispatcher::hosts_rest() {
  const auto still_runs = [&](long id) {
    const auto busy = std::find(busy_hosts_.begin(), busy_hosts_.end(), id);
    if (busy == busy_hosts_.end()) return false;
    if (!sleeps_now(id)) return true;
    busy_hosts_.erase(busy);
    return false;
  };
  return others_stay(still_runs, &sleeps_now);
}

bool dispatcher::hosts_settle() {
  constexpr uint64_t limit = 500000000;
  engine& e = engine_;
  if (!e.hosts_moved || in_background_ || e.shared_with_processes) return true;
  // Processor time, so that a busy machine makes no difference; sampled, since a virtual machine that stands still
  // charges the time to the threads that were running.
  const uint64_t used = processor_time(CLOCK_PROCESS_CPUTIME_ID) - processor_time(CLOCK_THREAD_CPUTIME_ID);
  if (inspected_since_ == 0) hosts_busy_.restart(used);
  hosts_busy_.sample(used, limit / 32);
  const bool patient = hosts_busy_.total() <= limit;
  if (patient && (e.returning_ > 0 || !hosts_rest())) {
    // Not woken by each host that begins to wait: with many of them, that would be an inspection of all for each one.
    const uint64_t now = real_time();
    if (inspected_since_ == 0) inspected_since_ = now;
    const timespec pause = to_timespec(std::clamp<uint64_t>((now - inspected_since_) / 4, 50000, 1000000));
    e.lock.unlock();
    nanosleep(&pause, nullptr);
    e.lock.lock();
    return false;
  }
  inspected_since_ = 0;
  if (!patient) {
    busy_hosts_.clear();
    const std::vector<long> known = known_threads();
    for_each_thread([&](long id) {
      if (!std::binary_search(known.begin(), known.end(), id) && !sleeps_now(id)) busy_hosts_.push_back(id);
    });
  }
  e.hosts_moved = false;
  return true;
}

void dispatcher::wait_for_others() {
  engine& e = engine_;
  const uint32_t seen = __atomic_load_n(&e.event_, __ATOMIC_RELAXED);
  // Short waits at first: a rank of another process is often about to arrive.
  const uint64_t idle = real_time() - idle_since_;
  const timespec limit = to_timespec(idle < 200000 ? 1000 : std::min<uint64_t>(idle / 4, 1000000));
  e.lock.unlock();
  futex_wait(&e.event_, seen, &limit);
  e.lock.lock();
  const uint64_t now = real_time();
  if (!e.shared_with_processes) e.now += now - real_base_;
  e.follow_real_time();
  real_base_ = now;
}

void dispatcher::report_deadlock() {
  engine& e = engine_;
  e.record_failure(describe_deadlock(take_snapshot(e), e.config.deadlock_picture),
                   !e.failure_text().empty() && e.failed_since_idle);
  for (grid* g : e.grids) fail_grid(*g, 702);  // cudaErrorLaunchTimeout
}

void fail_grid(grid& g, int error) {
  if (g.failed) return;
  g.failed = true;
  g.error = error;
  engine& e = g.simulation;
  e.failed_since_idle = true;
  e.note_fault(g.device, error);  // while its text is the latest
  if (e.explored_by != nullptr) e.explored_by->failed();
  e.dispatcher_wanted = true;
}

}  // namespace devcomm::simulator::detail
