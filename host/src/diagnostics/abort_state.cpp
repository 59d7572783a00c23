#include "diagnostics/abort_state.hpp"

#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "util/call_text.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// Limit of the text kept of destroyed device communicators.
constexpr std::size_t max_past_bytes = std::size_t{1} << 16;
/// Device communicators that peers abandoned: those made longest ago are forgotten first.
constexpr std::size_t max_given_up = 64;
/// A rank that aborts a device communicator because of an exception sends the reason a moment later, when it leaves;
/// and where the network fails since a peer has freed its windows, that peer may have left because of another's end.
constexpr std::chrono::milliseconds reason_limit(300);

void end_waits(failure_log& log) noexcept {
  std::atomic_ref(log.abort).store(abort_by_host, std::memory_order_relaxed);
}

void set_departed(failure_log& log, int rank) noexcept {
  std::atomic_ref(*log.departed_word(rank)).fetch_or(1u << rank % 32, std::memory_order_release);
  std::atomic_ref(log.departures).fetch_add(1, std::memory_order_release);
}

bool has_timed_out(failure_log& log) {
  const std::vector<failure_record> records = read_failures(log);
  return std::any_of(records.begin(), records.end(),
                     [](const failure_record& record) { return record.outcome == status::timeout; });
}

bool has_cause(failure_log& log) {
  const std::vector<failure_record> records = read_failures(log);
  return std::any_of(records.begin(), records.end(),
                     [](const failure_record& record) { return record.outcome != status::aborted; });
}

/// The peer for which a wait of `log` waited when it had left, or -1.
int departed_peer(failure_log& log) {
  for (const failure_record& record : read_failures(log)) {
    if (record.outcome == status::departed) return record.peer;
  }
  return -1;
}

struct every_state {
  std::mutex mutex;
  std::set<const abort_state*> states;
};

/// Never destroyed: communicators may be left when the process ends.
every_state& all_states() {
  static auto& only = *new every_state;
  return only;
}

/// Of the first failure that no call has returned.
const process_stamp& failed_process() {
  static const process_stamp only;
  return only;
}

/// Ends a program as failed that would end well. Handlers that are left then get this status: glibc allows a handler to
/// call `exit`, and goes on with the next one.
void end_as_failed(int status, void* /*unused*/) {
  constexpr int unseen_status = 65;
  if (status == 0 && failed_process().here()) std::exit(unseen_status);
}

void expect_failed_end() noexcept {
  static const int once = (static_cast<void>(failed_process()), on_exit(&end_as_failed, nullptr));
  static_cast<void>(once);
}

}  // namespace

abort_state::abort_state(int rank, int size) : rank_(rank), size_(size) {
  const std::lock_guard lock(all_states().mutex);
  all_states().states.insert(this);
}

abort_state::~abort_state() {
  {
    const std::lock_guard lock(all_states().mutex);
    all_states().states.erase(this);
  }
  if (report_unseen()) expect_failed_end();
}

bool abort_state::report_all_unseen() noexcept {
  const std::lock_guard lock(all_states().mutex);
  bool any = false;
  for (const abort_state* each : all_states().states) any = each->report_unseen() || any;
  return any;
}

bool abort_state::report_unseen() const noexcept {
  if (!made_in_.here()) return false;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_by_ && !has_unseen(true)) return false;
    }
    check_unseen();
  } catch (const std::exception& unseen) {
    std::fprintf(stderr,
                 "devcomm: the program does not end well, as no call has returned this failure; call check() when the "
                 "kernels are over: %s\n",
                 unseen.what());
    return true;
  }
  return false;
}

bool abort_state::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  began_here_ = began_here_ || !heard_of_another_;
  store_abort();
  return !std::exchange(aborted_here_, true);
}

void abort_state::abort_by(int rank, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  heard_of_another_ = true;
  try {
    if (!aborted_by_ && lost_rank() < 0) aborted_by_ = loss{rank, text};
  } catch (const std::exception&) {
    // Out of memory: the waits end without the text.
  }
  aborted_.store(true, std::memory_order_release);
  store_abort();
}

void abort_state::lose(int rank, const std::string& text) noexcept {
  std::function<void(const loss&)> handler;
  {
    const std::lock_guard lock(mutex_);
    if (lost_rank_.load(std::memory_order_relaxed) >= 0) return;
    heard_of_another_ = true;
    try {
      lost_text_ = text;
      handler = when_lost_;
    } catch (...) {
      lost_text_.clear();  // out of memory: the rank without its text
    }
    lost_rank_.store(rank, std::memory_order_release);
    aborted_.store(true, std::memory_order_release);
    store_abort();
    lost_.notify_all();
  }
  if (!handler) return;
  try {
    handler({rank, text});
  } catch (...) {
    return;  // out of memory: waits of the host end at their limit
  }
}

void abort_state::when_lost(std::function<void(const loss&)> handler) {
  const std::lock_guard lock(mutex_);
  when_lost_ = std::move(handler);
}

void abort_state::lose_device_communicator(std::uint64_t number, int rank, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  heard_of_another_ = true;
  try {
    abandoned_.try_emplace(number, loss{rank, text});
    if (abandoned_.size() > max_given_up) abandoned_.erase(abandoned_.begin());
  } catch (const std::exception&) {
    // Out of memory: the waits end without the text.
  }
  for (const attached& each : logs_) {
    if (each.number == number) end_waits(*each.log);
  }
}

void abort_state::note_departure(std::uint64_t number, int rank) noexcept {
  const std::lock_guard lock(mutex_);
  for (const attached& each : logs_) {
    if (each.number == number) set_departed(*each.log, rank);
  }
  if (number <= last_attached_) return;
  try {
    departed_early_[number].push_back(rank);
  } catch (const std::exception&) {
    // Out of memory: what waits for that rank ends at its limit.
  }
}

void abort_state::abandon(failure_log* log) noexcept {
  const std::lock_guard lock(mutex_);
  began_here_ = began_here_ || !heard_of_another_;
  for (attached& each : logs_) each.given_up = each.given_up || each.log == log;
  end_waits(*log);
}

void abort_state::fail(failure_log* log, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  began_here_ = began_here_ || !heard_of_another_;
  try {
    for (attached& each : logs_) {
      if (each.log == log && each.network_failure.empty()) each.network_failure = text;
    }
  } catch (const std::exception&) {
    // Out of memory: the waits end without the text.
  }
  end_waits(*log);
}

void abort_state::attach(failure_log* log, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  logs_.push_back({log, number, 0, false, {}, false});
  last_attached_ = std::max(last_attached_, number);
  if (const auto early = departed_early_.find(number); early != departed_early_.end()) {
    for (const int rank : early->second) set_departed(*log, rank);
  }
  departed_early_.erase(departed_early_.begin(), departed_early_.upper_bound(number));
  if (aborted() || abandoned_.contains(number)) end_waits(*log);
}

void abort_state::detach(failure_log* log) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    for (const attached& each : logs_) {
      if (each.log != log || each.given_up) continue;
      past_unseen_ = past_unseen_ || is_unseen(each, false);
      past_unseen_cause_ = past_unseen_cause_ || is_unseen(each, true);
    }
    past_timed_out_ = past_timed_out_ || has_timed_out(*log);
    if (past_departed_ < 0) past_departed_ = departed_peer(*log);
    std::string text = sentences(*log);
    for (const attached& each : logs_) {
      if (each.log == log && !each.network_failure.empty()) text += "\n  " + each.network_failure;
    }
    const bool room = past_failures_.size() < max_past_bytes;
    if (room) past_failures_ += text;
    past_incomplete_ = past_incomplete_ || (!room && !text.empty());
  } catch (...) {
    past_incomplete_ = true;  // out of memory
  }
  std::erase_if(logs_, [&](const attached& each) { return each.log == log; });
}

void abort_state::store_abort() noexcept {
  for (const attached& each : logs_) end_waits(*each.log);
}

std::string abort_state::reason_of_loss() const {
  const std::lock_guard lock(mutex_);
  return lost_text_;
}

bool abort_state::wait_for_loss(std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  return lost_.wait_for(lock, limit, [&] { return lost_rank() >= 0; });
}

bool abort_state::follows_another() const {
  const std::lock_guard lock(mutex_);
  return heard_of_another_ && !began_here_;
}

std::optional<abort_state::loss> abort_state::aborter() const {
  const std::lock_guard lock(mutex_);
  return aborted_here_ ? std::nullopt : aborted_by_;
}

void abort_state::require_peers() const {
  const std::lock_guard lock(mutex_);
  const int lost = lost_rank_.load(std::memory_order_relaxed);
  if (lost >= 0) throw remote_error(lost_text_, lost);
}

const abort_state::loss* abort_state::given_up(const failure_log* only) const {
  for (const auto& [number, gone] : abandoned_) {
    const auto concerned = [&, number = number](const attached& each) {
      return each.number == number && (only == nullptr || each.log == only);
    };
    if (std::any_of(logs_.begin(), logs_.end(), concerned)) return &gone;
  }
  return nullptr;
}

void abort_state::require_own_process(const char* call) const {
  if (!made_in_.here()) throw invalid_argument(call_text(call, rank_, size_) + ": " + text_of_forked_child);
}

void abort_state::check(const failure_log* only) const {
  require_own_process("check");
  throw_first(only, kernel_failure_ ? kernel_failure_() : std::string());
}

void abort_state::throw_first(const failure_log* only, const std::string& broken) const {
  std::unique_lock lock(mutex_);
  const std::string call = call_text("check", rank_, size_);
  if (given_up(only) != nullptr || log_with_network_failure(only) != nullptr)
    lost_.wait_for(lock, reason_limit, [&] { return lost_rank() >= 0; });
  const loss* const aborter = aborted_by_ && !aborted_here_ ? &*aborted_by_ : nullptr;
  const int lost = lost_rank();
  // Who leaves after another rank's abort leaves because of it.
  if (lost >= 0 && (aborter == nullptr || aborter->rank == lost)) {
    const std::string failed = fetch_network_failure(only);  // because of that
    throw remote_error(call + ": " + lost_text_ + "; destroy this communicator and start again without that rank" +
                           (failed.empty() ? "" : "\n  " + failed) + fetch_sentences(only),
                       lost);
  }
  if (const loss* const gone = given_up(only); gone != nullptr && lost < 0) {
    throw remote_error(call + ": " + gone->text + "; destroy it here too" + fetch_sentences(only), gone->rank);
  }
  if (aborter != nullptr) {
    throw remote_error(
        call + ": " + aborter->text + "; destroy this communicator and make a new one to go on" + fetch_sentences(only),
        aborter->rank);
  }
  if (const std::string failed = fetch_network_failure(only); !failed.empty()) {
    throw kernel_error(call + ": " + failed + fetch_sentences(only));
  }
  if (const int gone = departed(only); gone >= 0) {
    throw remote_error(call + ": rank " + std::to_string(gone) +
                           " has destroyed its device communicator, and a kernel of this rank still waited for it: "
                           "it returned early, or made fewer calls than this rank" +
                           fetch_sentences(only),
                       gone);
  }
  throw_failures(call, fetch_sentences(only));
  if (!broken.empty()) throw kernel_error(call + ": a kernel failed: " + broken);
  if (aborted()) {
    throw kernel_error(call + ": abort() was called; destroy this communicator and make a new one to go on");
  }
}

int abort_state::departed(const failure_log* only) const {
  if (only == nullptr && past_departed_ >= 0) return past_departed_;
  for (const attached& each : logs_) {
    if (only != nullptr && each.log != only) continue;
    if (const int rank = departed_peer(*each.log); rank >= 0) return rank;
  }
  return -1;
}

abort_state::attached* abort_state::log_with_network_failure(const failure_log* only) const {
  const auto found = std::find_if(logs_.begin(), logs_.end(), [only](const attached& each) {
    return !each.network_failure.empty() && (only == nullptr || each.log == only);
  });
  return found != logs_.end() ? &*found : nullptr;
}

std::string abort_state::fetch_network_failure(const failure_log* only) const {
  attached* const found = log_with_network_failure(only);
  if (found == nullptr) return {};
  found->network_seen = true;
  return found->network_failure;
}

std::string abort_state::fetch_sentences(const failure_log* only) const {
  std::string text;
  bool timed_out = false;
  if (only == nullptr) {
    text = past_failures_;
    timed_out = past_timed_out_;
    if (past_incomplete_) text += "\n  (of destroyed device communicators, later failures were not kept)";
    past_unseen_ = false;
    past_unseen_cause_ = false;
  }
  for (attached& each : logs_) {
    if (only != nullptr && each.log != only) continue;
    each.seen =
        read_failures(*each.log).size();  // before they are reported: one that comes meanwhile is reported twice
    timed_out = timed_out || has_timed_out(*each.log);
    text += sentences(*each.log);
  }
  if (timed_out && !timeouts_explained_.empty()) text += "\n  (" + timeouts_explained_ + ")";
  return text;
}

void abort_state::explain_timeouts(std::string text) {
  const std::lock_guard lock(mutex_);
  timeouts_explained_ = std::move(text);
}

void abort_state::note_seen(const failure_log* log, std::size_t records) const {
  require_own_process("failures");
  const std::lock_guard lock(mutex_);
  for (attached& each : logs_) {
    if (each.log == log) each.seen = std::max(each.seen, records);
  }
}

bool abort_state::is_unseen(const attached& each, bool causes_only) {
  if (!each.network_failure.empty() && !each.network_seen) return true;
  return read_failures(*each.log).size() > each.seen && (!causes_only || has_cause(*each.log));
}

bool abort_state::has_unseen(bool causes_only) const {
  return (causes_only ? past_unseen_cause_ : past_unseen_) ||
         std::any_of(logs_.begin(), logs_.end(), [&](const attached& each) { return is_unseen(each, causes_only); });
}

void abort_state::check_unseen() const {
  {
    const std::lock_guard lock(mutex_);
    if (!has_unseen(false) || aborted_here_) return;
  }
  throw_first(nullptr, {});
}

bool has_departed(failure_log& log, int rank) {
  return rank >= 0 && std::atomic_ref(log.departures).load(std::memory_order_acquire) != 0 &&
         (std::atomic_ref(*log.departed_word(rank)).load(std::memory_order_acquire) >> rank % 32 & 1) != 0;
}

std::vector<failure_record> read_failures(failure_log& log) {
  std::vector<failure_record> records;
  for (failure_record& record : log.records) {
    if (std::atomic_ref(record.ready).load(std::memory_order_acquire) == 0) continue;
    records.push_back(record);
    // The end of one peer ends waits for others too.
    if (record.outcome == status::departed && !has_departed(log, record.peer)) records.back().outcome = status::aborted;
  }
  return records;
}

std::string sentences(failure_log& log) {
  std::string text;
  const auto records = read_failures(log);
  std::vector<std::pair<std::string, int>> lines;  // those of the threads of a group are alike
  for (const failure_record& record : records) {
    const std::string line = describe(record);
    const auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& each) { return each.first == line; });
    if (known == lines.end()) {
      lines.emplace_back(line, 1);
    } else {
      ++known->second;
    }
  }
  for (const auto& [line, threads] : lines) {
    text += "\n  " + line;
    if (threads > 1) text += " (" + std::to_string(threads) + " threads)";
  }
  if (records.size() == failure_log::capacity) text += "\n  (the log is full; later failures were not kept)";
  return text;
}

void throw_failures(const std::string& call, const std::string& sentences) {
  if (!sentences.empty()) throw kernel_error(call + ": a kernel's wait failed:" + sentences);
}

}  // namespace devcomm::host::detail
