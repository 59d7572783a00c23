#include "health.hpp"

#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "agreement.hpp"

#include <vector>

namespace devcomm::host::detail {
namespace {

/// Sentences of all failed waits in `logs`, one a line; empty when there is none.
std::string sentences(const std::vector<failure_log*>& logs) {
  std::string text;
  for (failure_log* log : logs) {
    const auto records = read_failures(*log);
    for (const failure_record& record : records) text += "\n  " + describe(record);
    if (records.size() == failure_log::capacity) text += "\n  (the log is full; later failures were not kept)";
  }
  return text;
}

}  // namespace

void health::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  store_abort();
}

void health::lose(int rank, const std::string& text) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (lost_rank_.load(std::memory_order_relaxed) >= 0) return;
    try {
      lost_text_ = text;
    } catch (...) {
      lost_text_.clear();  // the rank alone must do when there is no memory for its story
    }
    lost_rank_.store(rank, std::memory_order_release);
  }
  aborted_.store(true, std::memory_order_release);
  store_abort();
}

void health::attach(failure_log* log) {
  const std::lock_guard lock(mutex_);
  logs_.push_back(log);
  if (aborted()) std::atomic_ref(log->abort).store(abort_by_host, std::memory_order_release);
}

void health::detach(failure_log* log) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(logs_, log);
}

void health::store_abort() noexcept {
  const std::lock_guard lock(mutex_);
  for (failure_log* log : logs_) {
    std::uint32_t none = 0;  // an abort by a failed wait stays what it is
    std::atomic_ref(log->abort).compare_exchange_strong(none, abort_by_host, std::memory_order_acq_rel);
  }
}

void health::require_peers() const {
  const std::lock_guard lock(mutex_);
  const int lost = lost_rank_.load(std::memory_order_relaxed);
  if (lost >= 0) throw remote_error(lost_text_, lost);
}

void health::check() const {
  const std::lock_guard lock(mutex_);
  const int lost = lost_rank_.load(std::memory_order_relaxed);
  if (lost >= 0) {
    throw remote_error(call_text("check", rank_, size_) + ": " + lost_text_ +
                           "; destroy this communicator and start again without that rank" + sentences(logs_),
                       lost);
  }
  throw_failures(call_text("check", rank_, size_), logs_);
  if (aborted()) {
    throw kernel_error(call_text("check", rank_, size_) +
                       ": abort() was called; destroy this communicator and make a new one to go on");
  }
}

std::vector<failure_record> read_failures(failure_log& log) {
  std::vector<failure_record> records;
  for (failure_record& record : log.records) {
    if (std::atomic_ref(record.ready).load(std::memory_order_acquire) != 0) records.push_back(record);
  }
  return records;
}

void throw_failures(const std::string& call, const std::vector<failure_log*>& logs) {
  const std::string text = sentences(logs);
  if (!text.empty()) throw kernel_error(call + ": a kernel's wait failed:" + text);
}

}  // namespace devcomm::host::detail
