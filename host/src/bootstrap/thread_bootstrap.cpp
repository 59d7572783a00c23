#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include "bootstrap/gather_arguments.hpp"
#include "util/deadline.hpp"
#include "util/number_list.hpp"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

namespace devcomm::host {
namespace {

/// One all-gather. Ranks that still read it keep it alive while the next one begins.
struct gather_round {
  explicit gather_round(std::size_t size) : parts(size), here(size, false) {}

  std::vector<std::vector<std::byte>> parts;
  std::vector<bool> here;
  std::size_t arrived = 0;
  bool over = false;

  std::string sizes_differ;  ///< set when over and the parts are not of one size
  int offender = -1;         ///< rank whose arguments made the call impossible
  std::string argument_problem;
  std::string timed_out;  ///< set when over because one rank's limit passed

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (!here[i]) ranks.push_back(static_cast<int>(i));
    }
    return ranks;
  }
};

/// What the ranks of one process share.
class thread_group {
 public:
  explicit thread_group(int size)
      : size_(static_cast<std::size_t>(size)), gone_(size_, false), current_(std::make_shared<gather_round>(size_)) {}

  [[nodiscard]] int size() const noexcept { return static_cast<int>(size_); }

  void leave(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

  /// Ends every round that is not over.
  void interrupt(int culprit, const std::string& why) {
    const std::lock_guard lock(mutex_);
    fail_for_good(culprit, why);
    changed_.notify_all();
  }

  void all_gather(int rank, std::span<const std::byte> mine, std::span<std::byte> all,
                  std::chrono::milliseconds limit) {
    const std::string call = "all_gather on rank " + std::to_string(rank) + " of " + std::to_string(size_);
    const detail::deadline until(limit);
    std::unique_lock lock(mutex_);
    if (broken_rank_ >= 0) throw remote_error(call + ": " + broken_, broken_rank_);

    const std::shared_ptr<gather_round> round = current_;
    const std::string bad_arguments = detail::problem_of_arguments(mine.size(), all.size(), size_);
    if (!bad_arguments.empty()) {
      round->offender = rank;
      round->argument_problem = bad_arguments;
    }
    arrive(*round, rank, mine);

    while (!round->over && broken_rank_ < 0) {
      if (const int gone = gone_and_missing(*round); gone >= 0) break;
      if (changed_.wait_until(lock, until.when()) == std::cv_status::timeout && until.passed() && !round->over &&
          broken_rank_ < 0 && gone_and_missing(*round) < 0) {
        time_out(*round, rank, until.limit_text());
      }
    }

    if (!bad_arguments.empty()) throw invalid_argument(call + ": " + bad_arguments);
    if (!round->over) {
      if (broken_rank_ < 0) {
        const int gone = gone_and_missing(*round);
        fail_for_good(gone, "rank " + std::to_string(gone) +
                                " has left before it took part: its thread ended, or destroyed its bootstrap; look for "
                                "an error of its own, and for calls that it does not make");
      }
      throw remote_error(call + ": " + broken_, broken_rank_);
    }
    if (!round->timed_out.empty()) throw timeout_error(call + ": " + round->timed_out);
    if (round->offender >= 0) {
      throw remote_error(call + ": rank " + std::to_string(round->offender) + " failed: " + round->argument_problem,
                         round->offender);
    }
    if (!round->sizes_differ.empty()) throw detail::unequal_sizes(call + ": " + round->sizes_differ);
    lock.unlock();

    // A finished round is not written to any more.
    for (std::size_t i = 0; i < size_ && !mine.empty(); ++i) {
      std::memcpy(all.data() + i * mine.size(), round->parts[i].data(), mine.size());
    }
  }

 private:
  void arrive(gather_round& round, int rank, std::span<const std::byte> mine) {
    const auto place = static_cast<std::size_t>(rank);
    round.parts[place].assign(mine.begin(), mine.end());
    round.here[place] = true;
    if (++round.arrived != size_) return;
    for (std::size_t i = 1; i < size_; ++i) {
      if (round.parts[i].size() == round.parts[0].size()) continue;
      round.sizes_differ = "rank 0 gave " + std::to_string(round.parts[0].size()) + " bytes and rank " +
                           std::to_string(i) + " gave " + std::to_string(round.parts[i].size()) +
                           "; all ranks must make the same calls with the same sizes";
      break;
    }
    finish(round);
  }

  void finish(gather_round& round) {
    round.over = true;
    current_ = std::make_shared<gather_round>(size_);
    changed_.notify_all();
  }

  /// The round can never be complete: ranks that wait for it get the error now, the others when they call.
  void time_out(gather_round& round, int rank, const std::string& after) {
    round.timed_out = "rank " + std::to_string(rank) + " timed out after " + after + " waiting for " +
                      detail::rank_list(round.missing()) + " to take part; see what holds them up, or raise the limit";
    fail_for_good(rank, round.timed_out);
    finish(round);
  }

  void fail_for_good(int rank, std::string text) {
    if (broken_rank_ >= 0) return;
    broken_rank_ = rank;
    broken_ = std::move(text);
  }

  [[nodiscard]] int gone_and_missing(const gather_round& round) const {
    for (std::size_t i = 0; i < size_; ++i) {
      if (gone_[i] && !round.here[i]) return static_cast<int>(i);
    }
    return -1;
  }

  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> gone_;
  std::shared_ptr<gather_round> current_;
  int broken_rank_ = -1;  ///< after a timeout or a loss no further round can be complete
  std::string broken_;
};

class thread_bootstrap final : public bootstrap {
 public:
  thread_bootstrap(std::shared_ptr<thread_group> shared, int rank) : group_(std::move(shared)), rank_(rank) {}
  ~thread_bootstrap() override { group_->leave(rank_); }
  thread_bootstrap(const thread_bootstrap&) = delete;
  thread_bootstrap& operator=(const thread_bootstrap&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return group_->size(); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::chrono::milliseconds limit) override {
    group_->all_gather(rank_, mine, all, limit);
  }
  void interrupt(int culprit, const std::string& why) override { group_->interrupt(culprit, why); }

 private:
  std::shared_ptr<thread_group> group_;
  int rank_;
};

}  // namespace

std::vector<std::shared_ptr<bootstrap>> thread_bootstraps(int size) {
  if (size < 1) throw invalid_argument("thread_bootstraps: size is " + std::to_string(size) + "; give at least 1");
  const auto shared = std::make_shared<thread_group>(size);
  std::vector<std::shared_ptr<bootstrap>> ranks;
  ranks.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_shared<thread_bootstrap>(shared, rank));
  return ranks;
}

}  // namespace devcomm::host
