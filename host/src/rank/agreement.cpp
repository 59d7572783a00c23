#include "rank/agreement.hpp"

#include <devcomm/host/error.hpp>

#include "bootstrap/gather_arguments.hpp"
#include "util/sha256.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>

namespace devcomm::host::detail {
namespace {

constexpr std::size_t longest_text = 504;

/// What the exception says.
std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

/// The error that `work` throws, if it does; those of this library with `start`, the call and the
/// rank, in front.
template <class Work>
std::exception_ptr failure_of(Work&& work, const std::string& start) {
  try {
    work();
  } catch (const remote_error& e) {
    return std::make_exception_ptr(remote_error(start + e.what(), e.rank()));
  } catch (const timeout_error& e) {
    return std::make_exception_ptr(timeout_error(start + e.what()));
  } catch (const unequal_sizes& e) {
    return std::make_exception_ptr(unequal_sizes(start + e.what()));
  } catch (const invalid_argument& e) {
    return std::make_exception_ptr(invalid_argument(start + e.what()));
  } catch (const not_supported& e) {
    return std::make_exception_ptr(not_supported(start + e.what()));
  } catch (const system_error& e) {
    return std::make_exception_ptr(system_error(start + e.what()));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

bool is_remote(const std::exception_ptr& failure) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const remote_error&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// The rank that ends sends the reason to its processes' peers, and the bootstrap reports that it is gone: which of the
/// two arrives first is left to chance.
constexpr std::chrono::milliseconds loss_limit(200);

/// For as long as it lives, the calling thread waits for other ranks.
class waiting_host {
 public:
  explicit waiting_host(observing_port& devices) : devices_(devices) { devices_.begin_waiting_for_ranks(); }
  ~waiting_host() { devices_.end_waiting_for_ranks(); }
  waiting_host(const waiting_host&) = delete;
  waiting_host& operator=(const waiting_host&) = delete;

 private:
  observing_port& devices_;
};

}  // namespace

bootstrap::group_name name_of_group(std::string_view text) {
  const digest whole = sha256::of(bytes_of(text));
  bootstrap::group_name name;
  std::copy_n(whole.begin(), name.size(), name.begin());
  return name;
}

/// Precedes each rank's part. The same bytes on all ranks that succeed in the same call.
struct agreement::verdict {
  /// Whether a failure began on the rank that reports it, or follows from another.
  enum class outcome : std::uint32_t { success = 0, own_failure = 1, consequence = 2 };

  outcome result = outcome::success;
  std::int32_t culprit = -1;
  std::uint32_t call = 0;  ///< of the function that the rank is in

  static verdict of(const std::exception_ptr& failure, int rank) noexcept {
    try {
      std::rethrow_exception(failure);
    } catch (const remote_error& e) {
      return {outcome::consequence, e.rank(), 0};
    } catch (const timeout_error&) {
      return {outcome::consequence, rank, 0};
    } catch (...) {
      return {outcome::own_failure, rank, 0};
    }
  }

  /// The rank to name: the first whose failure began with itself, else the first that failed; -1 when none did.
  static int reporter(std::span<const verdict> verdicts) noexcept {
    int found = -1;
    for (std::size_t i = 0; i < verdicts.size(); ++i) {
      if (verdicts[i].result == outcome::own_failure) return static_cast<int>(i);
      if (verdicts[i].result != outcome::success && found < 0) found = static_cast<int>(i);
    }
    return found;
  }
};

agreement::agreement(std::shared_ptr<bootstrap> ranks, observing_port& devices, std::chrono::milliseconds limit)
    : ranks_(std::move(ranks)), devices_(devices), limit_(limit), rank_(ranks_->rank()), size_(ranks_->size()) {}

void agreement::end_with(const std::shared_ptr<abort_state>& aborts) {
  aborts_ = aborts;
  aborts->when_lost([ranks = std::weak_ptr(ranks_)](const abort_state::loss& lost) {
    if (const auto here = ranks.lock()) here->interrupt(lost.rank, lost.text);
  });
}

void agreement::require_own_process(const std::string& start) const {
  if (made_in_.here()) return;
  throw invalid_argument(start + text_of_forked_child);
}

void agreement::watch(const std::shared_ptr<abort_state>& aborts, std::function<bool(int rank)> elsewhere) {
  ranks_->watch_aborts([here = std::weak_ptr(aborts)](int rank, const std::string& why) {
    if (const auto ranks = here.lock()) ranks->abort_by(rank, why);
  });
  ranks_->watch([here = std::weak_ptr(aborts), elsewhere = std::move(elsewhere)](int rank, const std::string& why) {
    const auto ranks = here.lock();
    if (ranks && elsewhere(rank)) ranks->lose(rank, why);
  });
}

std::exception_ptr agreement::note_loss(const std::exception_ptr& loss, const std::string& start) const {
  try {
    std::rethrow_exception(loss);
  } catch (const remote_error& e) {
    *lost_ = e.rank();
  } catch (...) {
    return loss;  // nobody is known to be gone
  }
  if (!aborts_ || !aborts_->wait_for_loss(loss_limit)) return loss;
  *lost_ = aborts_->lost_rank();
  return failure_of([&] { aborts_->require_peers(); }, start);
}

agreement::verdict agreement::judge(const std::string& call, const std::string& start, std::exception_ptr& failure,
                                    const std::function<void()>& work) const {
  failure = failure_of(
      [&] {
        if (aborts_) aborts_->require_peers();
        work();
      },
      start);
  verdict mine = failure ? verdict::of(failure, rank_) : verdict{};
  const group_name name = name_of_group(call);
  std::memcpy(&mine.call, name.data(), sizeof mine.call);
  return mine;
}

std::exception_ptr agreement::gather_texts(const std::string& start, const std::string& mine,
                                           std::vector<std::string>& all) const {
  using text = std::array<char, longest_text>;  // cut to this, with the zero behind it
  text sent{};
  std::copy_n(mine.begin(), std::min(mine.size(), sent.size() - 1), sent.begin());
  std::vector<text> received(static_cast<std::size_t>(size_));
  std::exception_ptr loss = in_round(start, [&] {
    ranks_->all_gather(std::as_bytes(std::span(sent)), std::as_writable_bytes(std::span(received)), limit_);
  });
  for (text& each : received) {
    each.back() = '\0';
    all.emplace_back(each.data());
  }
  return loss;
}

void agreement::require_one_call(const std::string& call, const std::string& start,
                                 const std::exception_ptr& loss) const {
  std::vector<std::string> all;
  if (const std::exception_ptr later = gather_texts(start, call, all)) std::rethrow_exception(later);
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    throw invalid_argument(start + "rank 0 is in " + all[0] + " and rank " + std::to_string(i) + " in " + all[i] +
                           "; make the same collective calls in the same order on every rank");
  }
  if (loss) std::rethrow_exception(loss);
}

void agreement::require_no_loss(const std::string& call, const std::string& start, const std::exception_ptr& failure,
                                const std::exception_ptr& loss) const {
  if (!loss) return;
  try {
    std::rethrow_exception(loss);
  } catch (const unequal_sizes&) {
    require_one_call(call, start, loss);
  } catch (...) {
    // That a peer has ended may itself follow from the loss of another.
    const bool follows = failure && is_remote(failure) && is_remote(loss);
    if (failure && !follows) std::rethrow_exception(failure);
    throw;
  }
}

std::exception_ptr agreement::in_round(const std::string& start, const std::function<void()>& exchange) const {
  const std::exception_ptr loss = failure_of(
      [&] {
        const waiting_host waits(devices_);
        exchange();
      },
      start);
  *failed_step_ = loss ? text_of(loss) : std::string();
  return loss ? note_loss(loss, start) : nullptr;
}

void agreement::require_success(const std::string& start, std::span<const verdict> verdicts,
                                const std::exception_ptr& failure) const {
  const int reporter = verdict::reporter(verdicts);
  if (reporter < 0) return;
  std::vector<std::string> all;
  const std::exception_ptr loss = gather_texts(start, reporter == rank_ ? text_of(failure) : std::string(), all);
  if (failure) std::rethrow_exception(failure);
  const auto place = static_cast<std::size_t>(reporter);
  const std::string text = loss ? "its own error did not arrive: " + text_of(loss) : all[place];
  throw remote_error(start + "rank " + std::to_string(reporter) + " failed: " + text, verdicts[place].culprit);
}

std::vector<std::byte> agreement::gather_plain(const std::string& call, std::span<const std::byte> mine) const {
  const std::string start = call_text(call, rank_, size_) + ": ";
  require_own_process(start);
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size_));
  const std::exception_ptr loss = in_round(start, [&] { ranks_->all_gather(mine, all, limit_); });
  if (loss) std::rethrow_exception(loss);
  return all;
}

std::vector<std::byte> agreement::gather_bytes(const std::string& call, std::size_t bytes,
                                               const std::function<void(std::span<std::byte>)>& work) const {
  const std::string start = call_text(call, rank_, size_) + ": ";
  require_own_process(start);
  const std::size_t part = sizeof(verdict) + bytes;
  std::vector<std::byte> mine(part);
  std::vector<std::byte> all(part * static_cast<std::size_t>(size_));
  std::exception_ptr failure;
  const verdict own = judge(call, start, failure, [&] { work(std::span(mine).subspan(sizeof(verdict))); });
  std::memcpy(mine.data(), &own, sizeof own);
  const std::exception_ptr loss = in_round(start, [&] { ranks_->all_gather(mine, all, limit_); });
  require_no_loss(call, start, failure, loss);
  return split_notes(call, start, all, bytes, failure);
}

agreement::notes_and_group agreement::gather_group_bytes(
    const std::string& call, std::size_t note_bytes, std::size_t bytes,
    const std::function<group_name(std::span<std::byte> note, std::span<std::byte> mine)>& work) const {
  const std::string start = call_text(call, rank_, size_) + ": ";
  require_own_process(start);
  const std::size_t note = sizeof(verdict) + note_bytes;
  group_name name;
  name.fill(std::byte{0xff});  // of ranks that fail
  std::vector<std::byte> said(note);
  std::vector<std::byte> mine(bytes);
  std::exception_ptr failure;
  const verdict own = judge(call, start, failure, [&] { name = work(std::span(said).subspan(sizeof(verdict)), mine); });
  std::memcpy(said.data(), &own, sizeof own);
  std::vector<std::byte> all(note * static_cast<std::size_t>(size_));
  bootstrap::group_parts found;
  const std::exception_ptr loss = in_round(start, [&] { found = ranks_->exchange(said, all, name, mine, limit_); });
  require_no_loss(call, start, failure, loss);
  return {split_notes(call, start, all, note_bytes, failure), std::move(found)};
}

std::vector<std::byte> agreement::split_notes(const std::string& call, const std::string& start,
                                              std::span<const std::byte> all, std::size_t bytes,
                                              const std::exception_ptr& failure) const {
  const auto count = static_cast<std::size_t>(size_);
  std::vector<verdict> verdicts(count);
  std::vector<std::byte> notes(bytes * count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto theirs = all.subspan(i * (sizeof(verdict) + bytes));
    std::memcpy(&verdicts[i], theirs.data(), sizeof(verdict));
    if (bytes != 0) std::memcpy(notes.data() + i * bytes, theirs.data() + sizeof(verdict), bytes);
  }
  const auto is_of_another_call = [&](const verdict& each) { return each.call != verdicts[0].call; };
  if (std::any_of(verdicts.begin(), verdicts.end(), is_of_another_call)) require_one_call(call, start, nullptr);
  require_success(start, verdicts, failure);
  return notes;
}

}  // namespace devcomm::host::detail
