#include "transport/fabric_proxy.hpp"

#include "util/deadline.hpp"
#include "util/quiet_thread.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace devcomm::host::detail {
namespace {

using clock = std::chrono::steady_clock;

std::vector<std::unique_ptr<network_queue>> make_queues(memory_port& memory, network_port& words, int device,
                                                        const network_request& asked) {
  std::vector<std::unique_ptr<network_queue>> made;
  for (std::uint32_t i = 0; i < asked.contexts; ++i) {
    made.push_back(std::make_unique<network_queue>(memory, words, device, asked));
  }
  return made;
}

/// How long a thread without work pauses. Nothing can wake it: kernels post by storing to memory. So it looks again and
/// again, at first without a pause, and later with pauses as long as what one who posts then can bear.
class rest {
 public:
  void after(bool worked) {
    constexpr std::chrono::microseconds spins(20);
    constexpr std::chrono::milliseconds yields(1);
    constexpr std::chrono::microseconds longest(50);
    if (worked) {
      since_ = {};
      return;
    }
    const clock::time_point now = clock::now();
    if (since_ == clock::time_point{}) since_ = now;
    const auto idle = now - since_;
    if (idle < spins) return;
    if (idle < yields) {
      ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(std::min<clock::duration>(idle / 100, longest));
  }

 private:
  clock::time_point since_{};
};

}  // namespace

fabric_proxy::fabric_proxy(memory_port& memory, settings given, std::shared_ptr<window_table> windows,
                           std::unique_ptr<fabric> reached)
    : given_(std::move(given)),
      windows_(std::move(windows)),
      queues_(make_queues(memory, words_, given_.device, given_.asked)),
      engine_({given_.rank, queues_, windows_, given_.fail,
               [rank = given_.rank](const std::string& text) {
                 std::fprintf(stderr, "devcomm: rank %d: %s\n", rank, text.c_str());
               },
               given_.limit},
              std::move(reached)) {}

fabric_proxy::~fabric_proxy() {
  order_ = order::finish;
  join();
}

void fabric_proxy::start() {
  windows_->add_watcher(*this);
  thread_ = quiet_thread([this] { run(); });
}

void fabric_proxy::abandon() noexcept {
  order_ = order::stop;
  join();
  for (const auto& queue : queues_) queue->abandon();
}

void fabric_proxy::join() noexcept {
  if (!thread_.joinable()) return;
  thread_.join();
  windows_->remove_watcher(*this);
}

void fabric_proxy::run() noexcept {
  constexpr unsigned long nanoseconds = 1000;
  ::prctl(PR_SET_NAME, "devcomm-network");
  ::prctl(PR_SET_TIMERSLACK, nanoseconds);
  try {
    rest pauses;
    for (bool over = false; !over;) {
      pauses.after(step(over));
      while (visitors_.load(std::memory_order_relaxed) != 0) ::sched_yield();
    }
  } catch (const std::exception& problem) {
    given_.fail("rank " + std::to_string(given_.rank) + ": the network's proxy failed: " + problem.what());
  }
}

bool fabric_proxy::step(bool& over) {
  // Of a peer that is gone nobody may know here. What ranks owe to each other takes microseconds.
  constexpr std::chrono::seconds farewell(1);
  const std::lock_guard lock(mutex_);
  const bool any = engine_.step();
  const order wanted = order_.load(std::memory_order_relaxed);
  if (wanted == order::run) return any;
  if (wanted == order::stop) {
    over = true;
    return any;
  }
  const clock::time_point now = clock::now();
  const bool nobody_waits = engine_.failed() || given_.ended();
  if (!said_farewell_ && (!nobody_waits || leaving_ == clock::time_point{})) leaving_ = now;
  const bool too_late = nobody_waits && now - leaving_ > farewell;
  if (!said_farewell_ && (too_late || engine_.idle())) {
    engine_.say_farewell();
    said_farewell_ = true;
    leaving_ = now;
    return true;
  }
  // From here on only to peers who may be gone.
  over = said_farewell_ && (engine_.idle() || now - leaving_ > farewell);
  return any;
}

void fabric_proxy::removed(std::uint32_t window) noexcept {
  if (!made_in_.here()) return;  // a forked child has no thread, and its mutex may be locked for ever
  const deadline limit(std::chrono::seconds(2));
  for (bool in_use = true; in_use;) {
    ++visitors_;
    {
      const std::lock_guard lock(mutex_);
      in_use = engine_.forget(window);
      if (in_use && limit.passed()) {
        engine_.take_away(window);
        in_use = false;
      }
    }
    --visitors_;
    if (in_use) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace devcomm::host::detail
