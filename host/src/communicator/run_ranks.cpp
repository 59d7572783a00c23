#include <devcomm/host/run_ranks.hpp>

#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include "device/backend.hpp"
#include "rank/settings.hpp"

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

/// The communicators of all threads; the first error aborts them.
class rank_threads {
 public:
  explicit rank_threads(int size) : communicators_(static_cast<std::size_t>(size), nullptr) {}

  void enter(communicator& c) {
    const std::lock_guard lock(mutex_);
    communicators_[static_cast<std::size_t>(c.rank())] = &c;
    if (failed_) c.abort();
  }

  void leave(const communicator& c) {
    const std::lock_guard lock(mutex_);
    communicators_[static_cast<std::size_t>(c.rank())] = nullptr;
  }

  /// Keeps the first error that does not follow from another, and aborts all. Call it in an exception handler.
  void fail(int rank) {
    const std::lock_guard lock(mutex_);
    const bool consequence = follows_from_another();
    failed_ = true;
    if (!error_ || (consequence_ && !consequence)) {
      error_ = std::current_exception();
      rank_ = rank;
      consequence_ = consequence;
    }
    for (communicator* c : communicators_) {
      if (c != nullptr) c->abort();
    }
  }

  [[nodiscard]] std::exception_ptr error() const { return error_; }
  [[nodiscard]] int rank() const { return rank_; }

 private:
  [[nodiscard]] bool follows_from_another() const {
    try {
      throw;
    } catch (const remote_error&) {
      return true;
    } catch (const kernel_error&) {
      return failed_;  // waits that the abort below ended
    } catch (...) {
      return false;
    }
  }

  std::mutex mutex_;
  std::vector<communicator*> communicators_;
  std::exception_ptr error_;
  int rank_ = -1;
  bool consequence_ = false;
  bool failed_ = false;
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

void run_one(const communicator_options& options, const std::function<void(communicator&)>& body) {
  std::shared_ptr<bootstrap> ranks = environment_bootstrap(options.limit);
  const int rank = ranks->rank();
  std::optional<communicator> c;
  try {
    c.emplace(std::move(ranks), options);
    body(*c);
  } catch (...) {
    if (c) c->abort();  // its destruction then sends the failure to the other processes
    rethrow_with_rank(std::current_exception(), rank);
  }
}

void run_thread(rank_threads& all, std::shared_ptr<bootstrap> ranks, const communicator_options& options,
                const std::function<void(communicator&)>& body) {
  const int rank = ranks->rank();
  std::optional<communicator> c;
  try {
    c.emplace(std::move(ranks), options);
    all.enter(*c);
    body(*c);
  } catch (...) {
    all.fail(rank);  // before the communicator is destroyed, so that errors of its peers come second
  }
  if (c) all.leave(*c);
}

}  // namespace

void run_ranks(const run_options& options, const std::function<void(communicator&)>& body) {
  if (launched_by_environment()) return run_one(options.communicator, body);

  detail::backend* const given = options.communicator.devices;
  detail::backend& devices = given != nullptr ? *given : detail::current_backend();
  int count = detail::wanted_ranks(detail::process_variables(), options.ranks);
  if (count < 0) {
    throw invalid_argument("run_ranks: ranks is " + std::to_string(count) + "; give 0 (one a device) or more");
  }
  if (count == 0) count = devices.device_count();
  devices.provide_devices(count);

  auto bootstraps = thread_bootstraps(count);
  rank_threads all(count);
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(count));
    for (auto& ranks : bootstraps) {
      threads.emplace_back([&all, &options, &body, own = std::move(ranks)]() mutable {
        run_thread(all, std::move(own), options.communicator, body);
      });
    }
  }
  if (all.error()) rethrow_with_rank(all.error(), all.rank());
}

}  // namespace devcomm::host
