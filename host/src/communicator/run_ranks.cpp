#include <devcomm/host/run_ranks.hpp>

#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include "communicator/ended_rank.hpp"
#include "device/backend.hpp"
#include "rank/settings.hpp"
#include "util/quiet_thread.hpp"

#include <cxxabi.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace devcomm::host {
namespace {

/// "out of memory", of the exception that is being handled.
std::string text_of_exception() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "it is not a std::exception";
  }
}

/// The first error of all threads that does not follow from another.
class first_error {
 public:
  /// Call it in an exception handler; `failed` is null for a rank without a communicator.
  void add(int rank, const communicator* failed) {
    const bool heard = failed != nullptr && detail::ended_rank::follows_another(*failed);
    const std::lock_guard lock(mutex_);
    const bool follows = follows_from_another(heard);
    if (error_ && (follows || !follows_)) return;
    if (error_) replaced_.push_back(error_);
    error_ = std::current_exception();
    rank_ = rank;
    follows_ = follows;
  }

  [[nodiscard]] std::exception_ptr error() const { return error_; }
  [[nodiscard]] int rank() const { return rank_; }

 private:
  /// `heard`: another rank's failure was known to this one, whose kernels may have ended because of it.
  [[nodiscard]] bool follows_from_another(bool heard) const {
    try {
      throw;
    } catch (const remote_error&) {
      return true;
    } catch (const kernel_error&) {
      return heard || error_ != nullptr;
    } catch (const host::error&) {
      return false;
    } catch (...) {
      return heard;
    }
  }

  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::exception_ptr> replaced_;  // other threads may still read their texts
  int rank_ = -1;
  bool follows_ = false;
};

/// Errors of this library name their rank; others get it in front.
[[noreturn]] void rethrow_with_rank(const std::exception_ptr& error, int rank) {
  try {
    std::rethrow_exception(error);
  } catch (const host::error&) {
    throw;
  } catch (const std::exception& e) {
    std::throw_with_nested(remote_error("run_ranks: rank " + std::to_string(rank) + " failed: " + e.what(), rank));
  }
}

/// Aborts ranks whose threads have been unwinding for long: a destructor there may wait for a kernel that waits for
/// ranks which this one keeps from going on. With CUDA, `cudaFree` also holds up the launches of all other threads.
class unwinding_monitor {
 public:
  explicit unwinding_monitor(detail::backend& devices) : devices_(devices) {}
  unwinding_monitor(const unwinding_monitor&) = delete;
  unwinding_monitor& operator=(const unwinding_monitor&) = delete;
  ~unwinding_monitor() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  /// The calling thread's rank; the communicator lives until `forget`.
  void watch(communicator& rank) {
    const std::lock_guard lock(mutex_);
    watched_.push_back({&rank, &uncaught_of_this_thread(), {}});
    if (!thread_.joinable()) thread_ = detail::quiet_thread([this] { run(); });
  }
  void forget(const communicator& rank) {
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [&](const watched& each) { return each.rank == &rank; });
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds limit{1000};
  static constexpr std::chrono::milliseconds interval{100};

  struct watched {
    communicator* rank;
    const unsigned* uncaught;  ///< exceptions of its thread
    clock::time_point since;   ///< when it was first seen unwinding; zero where it is not
  };

  /// The layout is that of the Itanium C++ ABI, 2.2.2.
  static const unsigned& uncaught_of_this_thread() {
    struct exceptions {
      void* caught;
      unsigned uncaught;
    };
    return reinterpret_cast<const exceptions*>(abi::__cxa_get_globals())->uncaught;
  }

  void run() {
    devices_.begin_observing();
    for (std::unique_lock lock(mutex_); !changed_.wait_for(lock, interval, [&] { return stop_; });)
      for (watched& each : watched_) poll(each);
    devices_.end_observing();
  }
  static void poll(watched& each) {
    const clock::time_point now = clock::now();
    if (__atomic_load_n(each.uncaught, __ATOMIC_RELAXED) == 0) {
      each.since = {};
    } else if (each.since == clock::time_point{}) {
      each.since = now;
    } else if (now - each.since >= limit && !each.rank->aborted()) {
      each.rank->abort();
    }
  }

  detail::backend& devices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<watched> watched_;
  std::thread thread_;
};

/// Runs the body on the calling thread, watched by `monitor`.
void run_watched(unwinding_monitor& monitor, communicator& rank, const std::function<void(communicator&)>& body) {
  monitor.watch(rank);
  try {
    body(rank);
  } catch (...) {
    monitor.forget(rank);
    throw;
  }
  monitor.forget(rank);
}

void run_one(const communicator_options& options, const std::function<void(communicator&)>& body) {
  std::shared_ptr<bootstrap> ranks = environment_bootstrap(options.limit);
  const int rank = ranks->rank();
  std::optional<communicator> c;
  unwinding_monitor monitor(options.devices != nullptr ? *options.devices : detail::current_backend());
  try {
    c.emplace(std::move(ranks), options);
    run_watched(monitor, *c, body);
    detail::ended_rank::finish(*c);
  } catch (...) {
    if (c) detail::ended_rank::leave(*c, text_of_exception());
    rethrow_with_rank(std::current_exception(), rank);
  }
}

void run_thread(first_error& error, unwinding_monitor& monitor, std::shared_ptr<bootstrap> ranks,
                const communicator_options& options, const std::function<void(communicator&)>& body) {
  const int rank = ranks->rank();
  std::optional<communicator> c;
  try {
    c.emplace(std::move(ranks), options);
    run_watched(monitor, *c, body);
    detail::ended_rank::finish(*c);
  } catch (...) {
    error.add(rank, c ? &*c : nullptr);  // before the others are notified, so that their errors come second
    if (c) detail::ended_rank::leave(*c, text_of_exception());
  }
}

}  // namespace

void run_ranks(const run_options& options, const std::function<void(communicator&)>& body) {
  if (launched_by_environment()) return run_one(options.communicator, body);

  detail::backend* const given = options.communicator.devices;
  detail::backend& devices = given != nullptr ? *given : detail::current_backend();
  int count = detail::wanted_ranks(detail::process_variables(), options.ranks);
  if (count == 0) count = devices.device_count();
  devices.provide_devices(count);

  auto bootstraps = thread_bootstraps(count);
  first_error error;
  unwinding_monitor monitor(devices);
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(count));
    for (auto& ranks : bootstraps) {
      threads.emplace_back([&error, &monitor, &options, &body, own = std::move(ranks)]() mutable {
        run_thread(error, monitor, std::move(own), options.communicator, body);
      });
    }
  }
  if (error.error()) rethrow_with_rank(error.error(), error.rank());
}

}  // namespace devcomm::host
