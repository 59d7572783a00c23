/// \file abort_state.hpp
/// Abort word and failed waits of one rank of a communicator.
#pragma once

#include <devcomm/diagnostics/failure.hpp>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// One per rank of a communicator. An abort is stored in the failure logs of its device communicators, which kernels
/// poll: in those that exist and in those made later. Every member may be called from any thread.
class abort_state {
 public:
  explicit abort_state(int rank, int size) : rank_(rank), size_(size) {}

  /// Ends all waits: the caller's `communicator::abort`.
  void abort() noexcept;
  /// Ends all waits because `rank` is gone; `text` says why. Only the first loss is kept.
  void lose(int rank, const std::string& text) noexcept;

  /// Until `detach`, an abort is stored in `log` too.
  void attach(failure_log* log);
  /// `check` still throws the failures that `log` holds now.
  void detach(failure_log* log) noexcept;

  [[nodiscard]] bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  /// World rank of the first lost peer, or -1.
  [[nodiscard]] int lost_rank() const noexcept { return lost_rank_.load(std::memory_order_acquire); }
  /// Throws `remote_error` when a peer is lost.
  void require_peers() const;
  /// Throws `remote_error` when a peer is lost, `kernel_error` when a wait failed or `abort` was called.
  void check() const;

 private:
  void store_abort() noexcept;
  /// Of all device communicators, past and present. Called with `mutex_`.
  [[nodiscard]] std::string all_sentences() const;

  const int rank_;
  const int size_;
  std::atomic<bool> aborted_{false};
  std::atomic<int> lost_rank_{-1};
  mutable std::mutex mutex_;
  std::string lost_text_;           // guarded by mutex_
  std::vector<failure_log*> logs_;  // guarded by mutex_
  std::string past_failures_;       // of detached logs, a sentence a line; guarded by mutex_
  bool past_incomplete_ = false;    // guarded by mutex_
};

/// The complete records of `log`, oldest first; safe while kernels write it.
[[nodiscard]] std::vector<failure_record> read_failures(failure_log& log);

/// A line for each record of `log`.
[[nodiscard]] std::string sentences(failure_log& log);

/// Throws `kernel_error` with `sentences`, if there are any.
void throw_failures(const std::string& call, const std::string& sentences);

}  // namespace devcomm::host::detail
