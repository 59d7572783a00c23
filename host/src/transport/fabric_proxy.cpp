#include "transport/fabric_proxy.hpp"

#include "device/backend.hpp"
#include "transport/queue.hpp"
#include "util/cpu_list.hpp"
#include "util/deadline.hpp"
#include "util/idle_pauses.hpp"
#include "util/process_stamp.hpp"
#include "util/quiet_thread.hpp"
#include "util/window_number.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>

namespace devcomm::host::detail {
namespace {

using clock = std::chrono::steady_clock;

/// What ranks owe to each other takes microseconds. Of a peer that is gone nobody may know here.
constexpr std::chrono::seconds shutdown_limit(1);
/// For the notice itself, of a rank whose waits have ended for longer than `shutdown_limit`.
constexpr std::chrono::milliseconds last_word_limit(100);

std::vector<std::unique_ptr<network_queue>> make_queues(memory_port& memory, network_port& words, int device,
                                                        const network_request& asked) {
  std::vector<std::unique_ptr<network_queue>> made;
  for (std::uint32_t i = 0; i < asked.contexts; ++i) {
    made.push_back(std::make_unique<network_queue>(memory, words, device, asked));
  }
  return made;
}

}  // namespace

/// What the thread works on.
class fabric_proxy::worker final : public window_table::watcher {
 public:
  enum class order : std::uint8_t { run, finish, stop };

  worker(backend& devices, settings given, std::shared_ptr<window_table> windows, std::unique_ptr<fabric> reached)
      : devices_(devices),
        given_(std::move(given)),
        windows_(std::move(windows)),
        fabric_name_(reached->name()),
        queues_(make_queues(devices, words_, given_.device, given_.asked)),
        engine_({given_.rank,
                 queues_,
                 windows_,
                 [this](const std::string& text) { fail(text); },
                 [this](const std::string& text) { report(text); },
                 given_.limit,
                 given_.first_context,
                 {given_.fabric_reaches, &devices, given_.device, devices.traits(),
                  given_.on_device ? devices.open_copies_from_host(given_.device) : nullptr},
                 fabric_engine::carried_among(given_.asked.peers),
                 [this](int rank) {
                   if (!is_left_alone_ && given_.departed) given_.departed(rank);
                 }},
                std::move(reached)) {}

  [[nodiscard]] fabric_engine& engine() { return engine_; }
  [[nodiscard]] const std::vector<std::unique_ptr<network_queue>>& queues() const { return queues_; }
  [[nodiscard]] window_table& windows() { return *windows_; }
  void tell(order what) { order_ = what; }
  [[nodiscard]] bool has_ended() const { return ended_; }
  /// Whether the thread cannot be waited for: nobody needs it any more, and it has had time enough to end.
  [[nodiscard]] bool is_stuck(clock::time_point since) const {
    return given_.ended() && clock::now() - since > 3 * shutdown_limit;
  }
  /// From here on it belongs to the thread alone.
  void leave_alone() noexcept {
    report("the network's thread does not come back from " + fabric_name_ +
           "; it and what it uses are left to themselves until the process ends");
    part_with_thread();
  }

  void begin() noexcept {
    devices_.as_other_processes([this] { run(); });
    ended_ = true;
  }
  void added(std::uint32_t window) noexcept override;
  void removed(std::uint32_t window) noexcept override;

 private:
  void run() noexcept;
  /// Calls `use` while the thread lets the engine go; false where `gives_up(waited)` says that it does not.
  template <class GivesUp, class Use>
  bool visit(const GivesUp& gives_up, const Use& use);
  /// Does what there is to do now; whether there was anything. Sets `over` when nothing will come any more.
  [[nodiscard]] bool step(bool& over);
  /// When it comes back, it does nothing more for the rank.
  void part_with_thread() noexcept {
    is_left_alone_ = true;
    engine_.leave_alone();
  }
  void fail(const std::string& text) const {
    if (!is_left_alone_) given_.fail(text);
  }
  void report(const std::string& text) const {
    std::fprintf(stderr, "devcomm: rank %d: %s\n", given_.rank, text.c_str());
  }

  network_port& devices_;
  const settings given_;
  std::shared_ptr<window_table> windows_;
  const std::string fabric_name_;
  network_port words_;  // by ordinary atomic accesses
  std::vector<std::unique_ptr<network_queue>> queues_;
  std::mutex mutex_;  // guards the engine once the thread runs
  fabric_engine engine_;
  std::atomic<int> visitors_ = 0;  // who want the engine, which the thread lets go for them
  std::atomic<order> order_ = order::run;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> is_left_alone_ = false;
  clock::time_point ended_since_{};    // of the thread: when the rank's waits had ended, `given_.ended()`
  clock::time_point leaving_{};        // likewise: since when nobody waits
  bool sent_shutdown_notice_ = false;  // likewise
  process_stamp made_in_;
};

void fabric_proxy::worker::run() noexcept {
  constexpr unsigned long nanoseconds = 1000;
  ::prctl(PR_SET_NAME, "devcomm-network");
  ::prctl(PR_SET_TIMERSLACK, nanoseconds);
  stay_on(given_.cpus);
  try {
    idle_pauses pauses;
    for (bool over = false; !over;) {
      pauses.after(step(over));
      while (visitors_.load(std::memory_order_relaxed) != 0) ::sched_yield();
    }
  } catch (const std::exception& problem) {
    fail("rank " + std::to_string(given_.rank) + ": the network's proxy failed: " + problem.what());
    // Nobody serves peers any more, who would wait for their limits.
    const std::lock_guard lock(mutex_);
    engine_.close();
  }
}

bool fabric_proxy::worker::step(bool& over) {
  const std::lock_guard lock(mutex_);
  const bool any = engine_.step();
  if (is_left_alone_) {  // the rank's memory and its log are gone
    over = true;
    return any;
  }
  const bool ended = given_.ended();
  // Where a rank has several device communicators, the time runs for all of them at once.
  if (ended && ended_since_ == clock::time_point{}) ended_since_ = clock::now();
  const order wanted = order_.load(std::memory_order_relaxed);
  if (wanted == order::run) return any;
  if (wanted == order::stop) {
    over = true;
    return any;
  }
  const clock::time_point now = clock::now();
  // Of a rank with nothing under way only peers are owed something, who may be gone.
  const bool nobody_waits = engine_.failed() || ended || engine_.is_done_by_peers();
  if (!sent_shutdown_notice_ && (!nobody_waits || leaving_ == clock::time_point{}))
    leaving_ = ended ? ended_since_ : now;
  const bool too_late = nobody_waits && now - leaving_ > shutdown_limit;
  if (!sent_shutdown_notice_ && (too_late || engine_.idle())) {
    engine_.send_shutdown_notice();
    sent_shutdown_notice_ = true;
    leaving_ = ended ? now - shutdown_limit + last_word_limit : now;
    return true;
  }
  // From here on only to peers who may be gone, as they surely are when this rank's waits have ended.
  const bool parted = engine_.idle() && (engine_.has_parted() || ended);
  over = sent_shutdown_notice_ && (parted || now - leaving_ > shutdown_limit);
  return any;
}

template <class GivesUp, class Use>
bool fabric_proxy::worker::visit(const GivesUp& gives_up, const Use& use) {
  const clock::time_point since = clock::now();
  bool visited = false;
  for (++visitors_;; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
      use();
      visited = true;
    }
    if (visited || gives_up(clock::now() - since)) break;
  }
  --visitors_;
  return visited;
}

void fabric_proxy::worker::added(std::uint32_t window) noexcept {
  if (!made_in_.here()) return;
  constexpr std::chrono::milliseconds patience(100);
  // A thread that is away for longer registers the window when it is used.
  static_cast<void>(visit([&](clock::duration waited) { return waited > patience; },
                          [&] {
                            try {
                              if (!is_left_alone_) engine_.prepare(window);
                            } catch (const std::exception& problem) {
                              report("window " + std::to_string(window_number(window)) +
                                     " is not registered yet: " + problem.what());
                            }
                          }));
}

void fabric_proxy::worker::removed(std::uint32_t window) noexcept {
  if (!made_in_.here()) return;  // a forked child has no thread, and its mutex may be locked for ever
  constexpr std::chrono::seconds patience(2);
  const deadline limit(patience);
  // A provider that registers much memory is away for long.
  const std::chrono::milliseconds longest = std::max<std::chrono::milliseconds>(patience, given_.limit);
  for (bool in_use = true; in_use; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
    const bool visited = visit([&](clock::duration waited) { return waited > (given_.ended() ? patience : longest); },
                               [&] {
                                 in_use = engine_.forget(window);
                                 if (in_use && limit.passed()) {
                                   engine_.take_away(window);
                                   in_use = false;
                                 }
                               });
    if (visited) continue;
    fail("rank " + std::to_string(given_.rank) + ": window " + std::to_string(window_number(window)) +
         " is freed, and " + fabric_name_ + " has not come back from a call for " + std::to_string(longest.count()) +
         " ms: its device communicator is given up; destroy it, or set DEVCOMM_GIN_PROVIDER to another provider");
    part_with_thread();
    in_use = false;
  }
}

fabric_proxy::fabric_proxy(backend& devices, settings given, std::shared_ptr<window_table> windows,
                           std::unique_ptr<fabric> reached)
    : worker_(std::make_shared<worker>(devices, std::move(given), std::move(windows), std::move(reached))) {}

void fabric_proxy::finish() noexcept { worker_->tell(worker::order::finish); }

fabric_proxy::~fabric_proxy() {
  finish();
  join();
}

fabric_engine::card fabric_proxy::own_card() const { return worker_->engine().own_card(); }

void fabric_proxy::connect(const std::vector<fabric_engine::card>& cards) { worker_->engine().connect(cards); }

gin::context_record fabric_proxy::record(std::uint32_t index) const { return worker_->queues()[index]->record(); }

void fabric_proxy::start() {
  worker_->windows().add_watcher(*worker_);
  thread_ = quiet_thread([own = worker_] { own->begin(); });
}

void fabric_proxy::abandon() noexcept {
  worker_->tell(worker::order::stop);
  join();
  for (const auto& queue : worker_->queues()) queue->abandon();
}

void fabric_proxy::join() noexcept {
  if (!thread_.joinable()) {
    worker_->windows().remove_watcher(*worker_);  // of a thread that could not be made, too
    return;
  }
  // A provider that shares memory with a process that was killed may wait for its locks for ever (shm of
  // libfabric 1.17).
  const clock::time_point since = clock::now();
  while (!worker_->has_ended() && !worker_->is_stuck(since)) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  worker_->windows().remove_watcher(*worker_);
  if (worker_->has_ended()) {
    thread_.join();
  } else {
    worker_->leave_alone();
    thread_.detach();
  }
}

}  // namespace devcomm::host::detail
