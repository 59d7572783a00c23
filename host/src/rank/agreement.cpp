#include "rank/agreement.hpp"

#include <devcomm/host/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>

namespace devcomm::host::detail {
namespace {

/// Whether a failure began on the rank that reports it, or follows from another.
enum class outcome : std::uint32_t { success = 0, own_failure = 1, consequence = 2 };

/// Precedes each rank's part.
struct verdict {
  outcome result = outcome::success;
  std::int32_t culprit = -1;
  std::array<char, 504> text{};

  void set(const std::exception_ptr& failure, int rank) noexcept {
    try {
      std::rethrow_exception(failure);
    } catch (const remote_error& e) {
      set(outcome::consequence, e.rank(), e.what());
    } catch (const timeout_error& e) {
      set(outcome::consequence, rank, e.what());
    } catch (const std::exception& e) {
      set(outcome::own_failure, rank, e.what());
    } catch (...) {
      set(outcome::own_failure, rank, "an exception that is not a std::exception");
    }
  }

  void set(outcome what, int who, const char* why) noexcept {
    result = what;
    culprit = who;
    const std::size_t length = std::min(std::strlen(why), text.size() - 1);
    std::memcpy(text.data(), why, length);
    text[length] = '\0';
  }
};

/// The rank to name: the first whose failure began with itself, else the first that failed.
const verdict* find_failure(const std::vector<verdict>& verdicts, int& reporter) {
  const verdict* found = nullptr;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const verdict& each = verdicts[i];
    if (each.result == outcome::success) continue;
    if (found == nullptr || (each.result == outcome::own_failure && found->result != outcome::own_failure)) {
      found = &each;
      reporter = static_cast<int>(i);
    }
  }
  return found;
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

/// The rank that ends tells its processes' peers why, and the bootstrap that it is gone: which of the two arrives first
/// is left to chance.
constexpr std::chrono::milliseconds reason_limit(200);

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

agreement::agreement(std::shared_ptr<bootstrap> ranks, observing_port& devices, std::chrono::milliseconds limit)
    : ranks_(std::move(ranks)), devices_(devices), limit_(limit), rank_(ranks_->rank()), size_(ranks_->size()) {}

void agreement::end_with(const std::shared_ptr<abort_state>& aborts) {
  aborts_ = aborts;
  aborts->when_lost([ranks = std::weak_ptr(ranks_)](const abort_state::loss& lost) {
    if (const auto here = ranks.lock()) here->interrupt(lost.rank, lost.text);
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
  if (!aborts_ || !aborts_->wait_for_loss(reason_limit)) return loss;
  *lost_ = aborts_->lost_rank();
  return failure_of([&] { aborts_->require_peers(); }, start);
}

std::vector<std::byte> agreement::gather_plain(const std::string& call, std::span<const std::byte> mine) const {
  const std::string start = call_text(call, rank_, size_) + ": ";
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size_));
  const std::exception_ptr loss = failure_of(
      [&] {
        const waiting_host waits(devices_);
        ranks_->all_gather(mine, all, limit_);
      },
      start);
  if (loss) std::rethrow_exception(note_loss(loss, start));
  return all;
}

std::vector<std::byte> agreement::gather_bytes(const std::string& call, std::size_t bytes,
                                               const std::function<void(std::span<std::byte>)>& work) const {
  const std::string start = call_text(call, rank_, size_) + ": ";
  const std::size_t part = sizeof(verdict) + bytes;
  const auto count = static_cast<std::size_t>(size_);
  std::vector<std::byte> mine(part);
  std::vector<std::byte> all(part * count);

  verdict own;
  const std::exception_ptr failure = failure_of(
      [&] {
        if (aborts_) aborts_->require_peers();
        work(std::span(mine).subspan(sizeof(verdict)));
      },
      start);
  if (failure) own.set(failure, rank_);
  std::memcpy(mine.data(), &own, sizeof own);

  std::exception_ptr loss = failure_of(
      [&] {
        const waiting_host waits(devices_);
        ranks_->all_gather(mine, all, limit_);
      },
      start);
  if (loss) loss = note_loss(loss, start);
  if (failure) std::rethrow_exception(failure);
  if (loss) std::rethrow_exception(loss);

  std::vector<verdict> verdicts(count);
  std::vector<std::byte> parts(bytes * count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&verdicts[i], all.data() + i * part, sizeof(verdict));
    verdicts[i].text.back() = '\0';
    if (bytes != 0) std::memcpy(parts.data() + i * bytes, all.data() + i * part + sizeof(verdict), bytes);
  }
  int reporter = -1;
  if (const verdict* found = find_failure(verdicts, reporter)) {
    throw remote_error(start + "rank " + std::to_string(reporter) + " failed: " + found->text.data(), found->culprit);
  }
  return parts;
}

}  // namespace devcomm::host::detail
