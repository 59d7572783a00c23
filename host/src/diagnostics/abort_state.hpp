/// \file abort_state.hpp
/// Abort word and failed waits of one rank of a communicator.
#pragma once

#include <devcomm/diagnostics/failure.hpp>

#include "util/process_stamp.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// One per rank of a communicator. An abort is stored in the failure logs of its device communicators, which kernels
/// poll: in those that exist and in those made later. Every member may be called from any thread.
class abort_state {
 public:
  /// A rank that is gone, and why: "rank 1 left because of an exception: out of cheese".
  struct loss {
    int rank;
    std::string text;
  };

  explicit abort_state(int rank, int size);
  /// What `check_unseen` would throw ends the program as failed.
  ~abort_state();
  abort_state(const abort_state&) = delete;
  abort_state& operator=(const abort_state&) = delete;

  /// Ends all waits: the caller's `communicator::abort`. Returns whether this is the first call.
  bool abort() noexcept;
  /// Ends all waits because another rank called `communicator::abort`, as `text` says. Nobody is lost.
  void abort_by(int rank, const std::string& text) noexcept;
  /// Ends all waits because `rank` is gone; `text` says why. Only the first loss is kept.
  void lose(int rank, const std::string& text) noexcept;
  /// Called with the first loss, on the thread that reports it: ends waits of the host.
  void when_lost(std::function<void(const loss&)> handler);

  /// Ends the waits of device communicator `number`, which `rank` abandoned, as `text` says.
  void lose_device_communicator(std::uint64_t number, int rank, const std::string& text) noexcept;
  /// `rank` has destroyed device communicator `number`: what waits for it, and for no other, ends.
  void note_departure(std::uint64_t number, int rank) noexcept;
  /// This rank aborts device communicator `log`: ends its waits.
  void abandon(failure_log* log) noexcept;

  /// What `check` adds where a wait has timed out, as such a wait may have this cause on this machine.
  void explain_timeouts(std::string text);

  /// `check` also throws what `read` returns unless that is empty: how a kernel has failed. Called without a lock held,
  /// before any other thread can see this.
  void set_kernel_failure_source(std::function<std::string()> read) { kernel_failure_ = std::move(read); }

  /// An operation of the network that kernels with `log` posted cannot be done, as `text` says: ends their waits.
  void fail(failure_log* log, const std::string& text) noexcept;

  /// Until `detach`, an abort is stored in `log`, that of device communicator `number`, too.
  void attach(failure_log* log, std::uint64_t number);
  /// `check` still throws the failures that `log` holds now.
  void detach(failure_log* log) noexcept;

  [[nodiscard]] bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  /// The first other rank that aborted, unless a rank was lost before or this one aborted, too.
  [[nodiscard]] std::optional<loss> aborter() const;
  /// World rank of the first lost peer, or -1.
  [[nodiscard]] int lost_rank() const noexcept { return lost_rank_.load(std::memory_order_acquire); }
  /// Why that one is lost, or empty.
  [[nodiscard]] std::string reason_of_loss() const;
  /// Waits at most `limit` for a loss: another connection to that rank may tell of its end first, without the reason.
  [[nodiscard]] bool wait_for_loss(std::chrono::milliseconds limit) const;
  /// Whether another rank's failure was known here before this rank aborted anything of its own.
  [[nodiscard]] bool follows_another() const;
  /// Throws `remote_error` when a peer is lost.
  void require_peers() const;
  /// Throws `remote_error` when a peer is lost, abandoned a device communicator or aborted, `kernel_error` when a wait
  /// or a kernel failed or `abort` was called. With `only`, as far as that device communicator is concerned. In a
  /// forked child, whose copy of the mutex nobody may ever unlock, throws `invalid_argument`; so does `note_seen`.
  void check(const failure_log* only = nullptr) const;
  /// The caller got so many of the failures that `log` holds.
  void note_seen(const failure_log* log, std::size_t records) const;
  /// Throws as `check` does, but only failures that neither `check` has thrown nor `note_seen` has noted. Nothing after
  /// `abort`, whose caller knows.
  void check_unseen() const;
  /// At the end of the program: writes to stderr what `check_unseen` would throw of each rank of this process that is
  /// left; returns whether there was anything.
  [[nodiscard]] static bool report_all_unseen() noexcept;

 private:
  struct attached {
    failure_log* log;
    std::uint64_t number;
    std::size_t seen = 0;   ///< failures that the caller knows
    bool given_up = false;  ///< here, by an exception, which the caller knows
    std::string network_failure;
    bool network_seen = false;  ///< the caller knows it
  };
  /// Whether `each` has failures that the caller does not know. With `causes_only`, logs that hold aborted waits alone
  /// have none.
  [[nodiscard]] static bool is_unseen(const attached& each, bool causes_only);
  /// The same of all device communicators, past and present. Call it with `mutex_`.
  [[nodiscard]] bool has_unseen(bool causes_only) const;
  /// What `check` does; `broken` says how a kernel has failed.
  void throw_first(const failure_log* only, const std::string& broken) const;
  /// Writes to stderr what `check_unseen` would throw, unless it is only that another rank aborted; returns whether
  /// there was anything.
  [[nodiscard]] bool report_unseen() const noexcept;
  /// Call it with `mutex_`.
  void store_abort() noexcept;
  /// The peer for which a wait of `only`, or of any device communicator, waited when it had left; -1: none. Call it
  /// with `mutex_`.
  [[nodiscard]] int departed(const failure_log* only) const;
  /// Of the first device communicator that a peer abandoned, `only` or any; null if there is none. Call it with
  /// `mutex_`.
  [[nodiscard]] const loss* given_up(const failure_log* only) const;
  /// Of `only` or any: the first for which the network could not do something; null if there is none. Call it with
  /// `mutex_`.
  [[nodiscard]] attached* log_with_network_failure(const failure_log* only) const;
  /// Of `only` or any: what the network could not do, which is seen then; empty for nothing. Call it with
  /// `mutex_`.
  [[nodiscard]] std::string fetch_network_failure(const failure_log* only) const;
  /// Of all device communicators, past and present, or of `only`; they are seen then. Call it with `mutex_`.
  [[nodiscard]] std::string fetch_sentences(const failure_log* only) const;

  /// Throws in a forked child.
  void require_own_process(const char* call) const;

  const int rank_;
  const int size_;
  const process_stamp made_in_;
  std::function<std::string()> kernel_failure_;  ///< null where only the driver's calls tell
  std::atomic<bool> aborted_{false};
  std::atomic<int> lost_rank_{-1};
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable lost_;
  std::function<void(const loss&)> when_lost_;
  std::string lost_text_;
  mutable std::vector<attached> logs_;
  std::map<std::uint64_t, loss> abandoned_;                   // device communicators that a peer abandoned
  std::uint64_t last_attached_ = 0;                           // number of a device communicator; they ascend
  std::map<std::uint64_t, std::vector<int>> departed_early_;  // of later ones: peers that have done with them
  bool aborted_here_ = false;                                 // by `abort`
  std::optional<loss> aborted_by_;  // the first other rank that called `abort` before any was lost
  bool heard_of_another_ = false;   // of a peer's failure
  bool began_here_ = false;         // this rank gave something up before it heard of a peer's failure
  std::string past_failures_;       // of detached logs, a sentence a line
  bool past_incomplete_ = false;
  bool past_timed_out_ = false;
  int past_departed_ = -1;                  // the peer that had left when a wait for it ended
  std::string timeouts_explained_;          // empty where there is nothing to say
  mutable bool past_unseen_ = false;        // some of them are known to nobody
  mutable bool past_unseen_cause_ = false;  // and they are no aborted waits alone
};

/// The complete records of `log`, oldest first; safe while kernels write it.
[[nodiscard]] std::vector<failure_record> read_failures(failure_log& log);

/// Whether `rank` has destroyed its device communicator; false for none, a negative one.
[[nodiscard]] bool has_departed(failure_log& log, int rank);

/// A line for each record of `log`.
[[nodiscard]] std::string sentences(failure_log& log);

/// Throws `kernel_error` with `sentences`, if there are any.
void throw_failures(const std::string& call, const std::string& sentences);

}  // namespace devcomm::host::detail
