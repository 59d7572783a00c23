/// \file job_harness.hpp
/// Runs one function per rank, as threads or as forked processes, and brings home how each ended.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace devcomm_test {

using namespace std::chrono_literals;
using shared_bootstrap = std::shared_ptr<devcomm::host::bootstrap>;

struct outcome {
  std::string kind;  ///< "ok", the name of a class of host errors, "other", "signal" or "late"
  int culprit = -1;  ///< for "remote_error"
  std::string text;
  std::chrono::milliseconds took{0};

  [[nodiscard]] bool ok() const { return kind == "ok"; }
  [[nodiscard]] bool says(const std::string& what) const { return text.find(what) != std::string::npos; }
};

/// How `body` ended.
[[nodiscard]] outcome outcome_of(const std::function<void()>& body);

using rank_body = std::function<void(int rank)>;
[[nodiscard]] std::vector<outcome> on_threads(int ranks, const rank_body& body);
/// A process that takes longer than 30 s is killed and ends as "late".
[[nodiscard]] std::vector<outcome> on_processes(int ranks, const rank_body& body);

/// Ways to make the bootstraps of a job.
enum class way { threads, tcp_threads, tcp_processes };
[[nodiscard]] std::string to_string(way w);

/// A whole job: each rank gets its bootstrap and runs `body`. `limit` is for joining.
using job_body = std::function<void(shared_bootstrap)>;
[[nodiscard]] std::vector<outcome> run_job(way w, int ranks, const job_body& body,
                                           std::chrono::milliseconds limit = 20s);

/// All-gathers `bytes` bytes that depend on rank, place and `seed`, and throws unless every byte of
/// every rank is right.
void gather_and_check(devcomm::host::bootstrap& ranks, std::size_t bytes, unsigned seed,
                      std::chrono::milliseconds limit = 20s);
void barrier(devcomm::host::bootstrap& ranks, std::chrono::milliseconds limit = 20s);

/// "" when all are "ok", else what the first other one says.
[[nodiscard]] std::string first_failure(const std::vector<outcome>& outcomes);

[[nodiscard]] std::size_t open_descriptors();

}  // namespace devcomm_test
