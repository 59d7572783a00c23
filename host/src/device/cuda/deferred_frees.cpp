#include "device/cuda/deferred_frees.hpp"

#include "device/cuda/context.hpp"
#include "util/quiet_thread.hpp"

#include <devcomm/host/error.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace devcomm::host::cuda {
namespace {

/// How long a destructor waits itself.
constexpr std::chrono::milliseconds patience(100);

/// After a kernel's error nothing runs any more. Any other failure, as to start a thread, says nothing.
bool are_idle(const std::vector<int>& devices) noexcept {
  try {
    return std::all_of(devices.begin(), devices.end(), [](int device) { return wait_until_idle(device, patience); });
  } catch (const error&) {
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void wait_for(int device) noexcept {
  for (;;) {
    try {
      const on_device scope(device);
      return check(driver().ctx_synchronize(), "cuCtxSynchronize");
    } catch (const error&) {
      return;  // a kernel failed, and what it used may go
    } catch (const std::exception&) {
      std::this_thread::sleep_for(patience);  // out of memory
    }
  }
}

class free_queue {
 public:
  [[nodiscard]] bool empty() {
    const std::lock_guard lock(mutex_);
    return left_.empty();
  }

  /// Puts it behind what is there already; false where nothing is.
  bool follow(const std::vector<int>& devices, const std::function<void()>& work) {
    const std::lock_guard lock(mutex_);
    if (left_.empty()) return false;
    left_.push_back({devices, work});
    return true;
  }

  void leave_to_thread(const std::vector<int>& devices, const std::function<void()>& work) {
    const std::lock_guard lock(mutex_);
    left_.push_back({devices, work});
    if (left_.size() > 1) return;  // the thread runs
    try {
      detail::quiet_thread([this] { run(); }).detach();
    } catch (...) {
      left_.clear();
      throw;
    }
  }

  bool wait(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return emptied_.wait_for(lock, limit, [&] { return left_.empty(); });
  }

 private:
  struct pending {
    std::vector<int> devices;
    std::function<void()> work;
  };

  /// What is being freed stays in the list, so that others follow it.
  void run() noexcept {
    std::unique_lock lock(mutex_);
    while (!left_.empty()) {
      const pending& next = left_.front();  // elements of a deque stay where they are
      lock.unlock();
      for (const int device : next.devices) wait_for(device);
      next.work();
      lock.lock();
      left_.pop_front();
    }
    emptied_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable emptied_;
  std::deque<pending> left_;
};

free_queue& the_queue() {
  // Never destroyed: owners may be static objects, and its thread may outlive them.
  static auto& only = *new free_queue;
  return only;
}

}  // namespace

void free_when_idle(const std::vector<int>& devices, const std::function<void()>& work) noexcept {
  try {
    if (the_queue().follow(devices, work)) return;
    if (are_idle(devices)) return work();
    the_queue().leave_to_thread(devices, work);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "devcomm: memory is not freed, as kernels use its device: %s\n", problem.what());
  }
}

void free_in_order(const std::function<void()>& work) noexcept { free_when_idle({}, work); }

bool frees_are_pending() { return !the_queue().empty(); }

bool wait_for_frees(std::chrono::milliseconds limit) { return the_queue().wait(limit); }

}  // namespace devcomm::host::cuda
