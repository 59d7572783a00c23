#include "diagnostics/abort_state.hpp"

#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "util/call_text.hpp"

#include <vector>

namespace devcomm::host::detail {
namespace {

/// Limit of the text kept of destroyed device communicators.
constexpr std::size_t most_past_bytes = std::size_t{1} << 16;

}  // namespace

void abort_state::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  store_abort();
}

void abort_state::lose(int rank, const std::string& text) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (lost_rank_.load(std::memory_order_relaxed) >= 0) return;
    try {
      lost_text_ = text;
    } catch (...) {
      lost_text_.clear();  // out of memory: the rank without its text
    }
    lost_rank_.store(rank, std::memory_order_release);
  }
  aborted_.store(true, std::memory_order_release);
  store_abort();
}

void abort_state::attach(failure_log* log) {
  const std::lock_guard lock(mutex_);
  logs_.push_back(log);
  if (aborted()) std::atomic_ref(log->abort).store(abort_by_host, std::memory_order_relaxed);
}

void abort_state::detach(failure_log* log) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(logs_, log);
  try {
    const std::string text = sentences(*log);
    const bool room = past_failures_.size() < most_past_bytes;
    if (room) past_failures_ += text;
    past_incomplete_ = past_incomplete_ || (!room && !text.empty());
  } catch (...) {
    past_incomplete_ = true;  // out of memory
  }
}

void abort_state::store_abort() noexcept {
  const std::lock_guard lock(mutex_);
  for (failure_log* log : logs_) std::atomic_ref(log->abort).store(abort_by_host, std::memory_order_relaxed);
}

void abort_state::require_peers() const {
  const std::lock_guard lock(mutex_);
  const int lost = lost_rank_.load(std::memory_order_relaxed);
  if (lost >= 0) throw remote_error(lost_text_, lost);
}

void abort_state::check() const {
  const std::lock_guard lock(mutex_);
  const int lost = lost_rank_.load(std::memory_order_relaxed);
  if (lost >= 0) {
    throw remote_error(call_text("check", rank_, size_) + ": " + lost_text_ +
                           "; destroy this communicator and start again without that rank" + all_sentences(),
                       lost);
  }
  throw_failures(call_text("check", rank_, size_), all_sentences());
  if (aborted()) {
    throw kernel_error(call_text("check", rank_, size_) +
                       ": abort() was called; destroy this communicator and make a new one to go on");
  }
}

std::string abort_state::all_sentences() const {
  std::string text = past_failures_;
  if (past_incomplete_) text += "\n  (of destroyed device communicators, later failures were not kept)";
  for (failure_log* log : logs_) text += sentences(*log);
  return text;
}

std::vector<failure_record> read_failures(failure_log& log) {
  std::vector<failure_record> records;
  for (failure_record& record : log.records) {
    if (std::atomic_ref(record.ready).load(std::memory_order_acquire) != 0) records.push_back(record);
  }
  return records;
}

std::string sentences(failure_log& log) {
  std::string text;
  const auto records = read_failures(log);
  for (const failure_record& record : records) text += "\n  " + describe(record);
  if (records.size() == failure_log::capacity) text += "\n  (the log is full; later failures were not kept)";
  return text;
}

void throw_failures(const std::string& call, const std::string& sentences) {
  if (!sentences.empty()) throw kernel_error(call + ": a kernel's wait failed:" + sentences);
}

}  // namespace devcomm::host::detail
