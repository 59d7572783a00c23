/// \file rank_harness.hpp
/// Runs a test's body on ranks that are threads or forked processes, and brings home how each ended.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include <devcomm/host/unique_id.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace devcomm_test {

using rank_body = std::function<void(std::shared_ptr<devcomm::host::bootstrap>)>;

/// How a rank ended: "ok", "<class of host error>: <text>", "error: <text>", "signal 9" or "exit 3".
using outcomes = std::vector<std::string>;

[[nodiscard]] outcomes on_threads(int ranks, const rank_body& body);

/// Forks; `inside` is left out for ranks of 1 process each, else the number of ranks (threads) in
/// each process. A process that takes longer than `limit_seconds` is killed.
[[nodiscard]] outcomes on_processes(int ranks, const rank_body& body, int inside = 1, int limit_seconds = 60);

/// The same in two halves, so that several jobs can run side by side. `body` makes its own bootstrap, at `id`.
class process_job {
 public:
  using job_body = std::function<void(const devcomm::host::unique_id& id, int rank)>;
  process_job(int ranks, const job_body& body, int limit_seconds = 60);
  [[nodiscard]] outcomes finish();

 private:
  struct child {
    int process;
    int pipe;
  };
  std::vector<child> children_;
  std::chrono::steady_clock::time_point end_;
};

/// Passes on what ranks say, but with the first byte of `forged` changed wherever it occurs: a rank that says it is
/// somewhere else. Nothing is changed where `forged` is empty.
class altered_bootstrap final : public devcomm::host::bootstrap {
 public:
  altered_bootstrap(std::shared_ptr<devcomm::host::bootstrap> ranks, std::string forged)
      : ranks_(std::move(ranks)), forged_(std::move(forged)) {}
  [[nodiscard]] int rank() const noexcept override { return ranks_->rank(); }
  [[nodiscard]] int size() const noexcept override { return ranks_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::chrono::milliseconds limit) override;
  [[nodiscard]] group_parts exchange(std::span<const std::byte> note, std::span<std::byte> notes,
                                     const group_name& group, std::span<const std::byte> mine,
                                     std::chrono::milliseconds limit) override;
  void interrupt(int culprit, const std::string& why) override { ranks_->interrupt(culprit, why); }

  /// Bytes so far.
  [[nodiscard]] std::size_t received() const noexcept { return received_; }

 private:
  [[nodiscard]] std::string altered(std::span<const std::byte> said) const;

  std::shared_ptr<devcomm::host::bootstrap> ranks_;
  std::string forged_;
  std::size_t received_ = 0;
};

/// A list of `ranks` times "ok".
[[nodiscard]] outcomes all_ok(int ranks);

/// Thrown by `require`; the text names the broken law.
class broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// For bodies: Catch2's macros are for the main thread only.
inline void require(bool holds, const std::string& law) {
  if (!holds) throw broken(law);
}

/// The same for each of many bytes: the text is made when it is needed.
template <std::invocable Law>
void require(bool holds, Law law) {
  if (!holds) throw broken(law());
}

/// What the `Error` says that `body` throws; another text where it throws none.
template <class Error, class Body>
std::string text_of(Body body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

/// What the running process holds.
struct holdings {
  std::size_t descriptors;
  std::size_t mappings;  ///< lines of /proc/self/maps that concern memory of windows or reservations
  std::size_t threads;

  friend bool operator==(const holdings&, const holdings&) = default;
};
[[nodiscard]] holdings count_holdings();

}  // namespace devcomm_test
