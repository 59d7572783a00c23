#include <devcomm/host/error.hpp>
#include <devcomm/host/mpi_bootstrap.hpp>

#include "bootstrap/gather_arguments.hpp"
#include "bootstrap/interruption.hpp"
#include "util/deadline.hpp"
#include "util/number_list.hpp"
#include "util/process_stamp.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace devcomm::host {
namespace {

constexpr int tag_announcement = 1;
constexpr int tag_end = 2;

void check(int code, const std::string& call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw system_error(call + ": MPI failed: " + std::string(text.data(), static_cast<std::size_t>(length)));
}

/// Sleeps a little longer each time.
class back_off {
 public:
  void pause() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, std::chrono::microseconds(1000));
  }

 private:
  std::chrono::microseconds next_{10};
};

/// Announces the size of a contribution.
struct announcement {
  std::uint64_t bytes;
  std::uint64_t bad_arguments;
};

/// An all-gather with everything MPI may still write to or read from.
struct gathering {
  explicit gathering(std::size_t size) : heard(size), requests(2 * size, MPI_REQUEST_NULL), here(size, false) {}

  announcement said{};
  std::vector<announcement> heard;
  std::vector<MPI_Request> requests;  ///< by rank: receptions, then sends
  std::vector<bool> here;
  std::vector<std::byte> mine;
  std::vector<std::byte> all;
  MPI_Request data = MPI_REQUEST_NULL;

  /// Whether MPI may still write to this, or read from it.
  [[nodiscard]] bool in_flight() const {
    return data != MPI_REQUEST_NULL ||
           std::any_of(requests.begin(), requests.end(), [](MPI_Request each) { return each != MPI_REQUEST_NULL; });
  }
};

/// Sent by a rank for which no later round can succeed: who is to blame, and why.
struct end_notice {
  std::int32_t culprit;
  std::array<char, 508> text;
};

/// A duplicate that MPI is making.
struct pending_duplicate {
  MPI_Comm ranks = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
};

/// Each rank first sends its size to each other rank, so that a missing rank can be named; `MPI_Iallgather` then moves
/// the bytes.
class mpi_ranks final : public bootstrap {
 public:
  mpi_ranks(MPI_Comm ranks, std::chrono::milliseconds limit) {
    const std::string name = "mpi_bootstrap";
    check(MPI_Comm_rank(ranks, &rank_), name);
    check(MPI_Comm_size(ranks, &size_), name);
    const std::string call = name + place();
    const detail::deadline until(limit);
    auto pending = std::make_unique<pending_duplicate>();
    check(MPI_Comm_idup(ranks, &pending->ranks, &pending->request), call);
    try {
      int done = 0;
      for (back_off wait; check(MPI_Test(&pending->request, &done, MPI_STATUS_IGNORE), call), done == 0; wait.pause()) {
        if (!until.passed()) continue;
        throw timeout_error(call + ": not all ranks of the MPI communicator called within " + until.limit_text() +
                            "; MPI does not tell which are missing: see that all ranks call it");
      }
    } catch (...) {
      pending.release();  // NOLINT(bugprone-unused-return-value): MPI may write to it until the process ends
      throw;
    }
    duplicate_ = pending->ranks;
    check(MPI_Comm_set_errhandler(duplicate_, MPI_ERRORS_RETURN), call);
  }

  ~mpi_ranks() override {
    if (!made_in_.here()) return;  // a forked child has no MPI
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && broken_.empty()) MPI_Comm_free(&duplicate_);
  }
  mpi_ranks(const mpi_ranks&) = delete;
  mpi_ranks& operator=(const mpi_ranks&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::chrono::milliseconds limit) override {
    const std::string call = "all_gather" + place();
    if (!broken_.empty()) throw remote_error(call + ": " + broken_, broken_rank_);
    const detail::deadline until(limit);
    const std::string argument_problem =
        detail::problem_of_arguments(mine.size(), all.size(), static_cast<std::size_t>(size_));

    auto round = std::make_unique<gathering>(static_cast<std::size_t>(size_));
    try {
      announce(*round, {mine.size(), argument_problem.empty() ? 0U : 1U}, call, until);
      if (!argument_problem.empty()) throw invalid_argument(call + ": " + argument_problem);
      compare(*round, call);
      move(*round, mine, all, call, until);
    } catch (...) {
      // MPI may use these until the process ends.
      if (round->in_flight()) round.release();  // NOLINT(bugprone-unused-return-value)
      throw;
    }
  }

  void interrupt(int culprit, const std::string& why) override { interrupted_.set(culprit, why); }

 private:
  [[nodiscard]] std::string place() const {
    return " on rank " + std::to_string(rank_) + " of " + std::to_string(size_);
  }

  void announce(gathering& round, announcement mine, const std::string& call, const detail::deadline& until) {
    const auto size = static_cast<std::size_t>(size_);
    round.said = mine;
    round.heard[static_cast<std::size_t>(rank_)] = mine;
    round.here[static_cast<std::size_t>(rank_)] = true;
    for (int step = 1; step < size_; ++step) {
      const int other = (rank_ + step) % size_;
      const auto i = static_cast<std::size_t>(other);
      check(MPI_Irecv(&round.heard[i], sizeof(announcement), MPI_BYTE, other, tag_announcement, duplicate_,
                      &round.requests[i]),
            call);
      check(MPI_Isend(&round.said, sizeof(announcement), MPI_BYTE, other, tag_announcement, duplicate_,
                      &round.requests[size + i]),
            call);
    }
    back_off wait;
    while (true) {
      bool sent = true;
      for (std::size_t i = 0; i < round.requests.size(); ++i) {
        if (round.requests[i] == MPI_REQUEST_NULL) continue;
        int done = 0;
        check(MPI_Test(&round.requests[i], &done, MPI_STATUS_IGNORE), call);
        if (i < size && done != 0) round.here[i] = true;
        if (i >= size && done == 0) sent = false;
      }
      std::vector<int> missing;
      for (std::size_t i = 0; i < size; ++i) {
        if (!round.here[i]) missing.push_back(static_cast<int>(i));
      }
      if (missing.empty() && sent) return;
      hear_of_end(call);
      if (until.passed()) {
        throw_timeout(call, until,
                      missing.empty() ? "announcements to leave" : detail::rank_list(missing) + " to take part");
      }
      wait.pause();
    }
  }

  void compare(const gathering& round, const std::string& call) const {
    for (std::size_t i = 0; i < round.heard.size(); ++i) {
      if (round.heard[i].bad_arguments == 0) continue;
      throw remote_error(call + ": rank " + std::to_string(i) + " failed: its arguments do not fit each other",
                         static_cast<int>(i));
    }
    for (std::size_t i = 1; i < round.heard.size(); ++i) {
      if (round.heard[i].bytes == round.heard[0].bytes) continue;
      throw invalid_argument(call + ": rank 0 gave " + std::to_string(round.heard[0].bytes) + " bytes and rank " +
                             std::to_string(i) + " gave " + std::to_string(round.heard[i].bytes) +
                             "; all ranks must make the same calls with the same sizes");
    }
  }

  void move(gathering& round, std::span<const std::byte> mine, std::span<std::byte> all, const std::string& call,
            const detail::deadline& until) {
    if (mine.empty()) return;
    round.mine.assign(mine.begin(), mine.end());
    round.all.resize(all.size());
    const int bytes = static_cast<int>(mine.size());
    check(
        MPI_Iallgather(round.mine.data(), bytes, MPI_BYTE, round.all.data(), bytes, MPI_BYTE, duplicate_, &round.data),
        call);
    int done = 0;
    for (back_off wait; check(MPI_Test(&round.data, &done, MPI_STATUS_IGNORE), call), done == 0; wait.pause()) {
      hear_of_end(call);
      if (until.passed()) throw_timeout(call, until, "the bytes of ranks that did take part");
    }
    std::copy(round.all.begin(), round.all.end(), all.begin());
  }

  void hear_of_end(const std::string& call) {
    if (const auto cause = interrupted_.get()) {
      tell_end(cause->culprit, cause->text);
      throw remote_error(call + ": " + broken_, broken_rank_);
    }
    int there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, tag_end, duplicate_, &there, &status), call);
    if (there == 0) return;
    end_notice heard{};
    check(MPI_Recv(&heard, sizeof heard, MPI_BYTE, status.MPI_SOURCE, tag_end, duplicate_, MPI_STATUS_IGNORE), call);
    heard.text.back() = '\0';
    broken_rank_ = heard.culprit;
    broken_ = heard.text.data();
    throw remote_error(call + ": " + broken_, broken_rank_);
  }

  [[noreturn]] void throw_timeout(const std::string& call, const detail::deadline& until, const std::string& what) {
    tell_end(rank_,
             "rank " + std::to_string(rank_) + " timed out after " + until.limit_text() + " waiting for " + what);
    throw timeout_error(call + ": " + broken_ + "; see what holds them up, or raise the limit");
  }

  void tell_end(int culprit, const std::string& text) {
    broken_rank_ = culprit;
    broken_ = text;
    auto said = std::make_unique<end_notice>();
    said->culprit = culprit;
    text.copy(said->text.data(), said->text.size() - 1);
    for (int other = 0; other < size_; ++other) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (other == rank_) continue;
      // Best effort.
      const int code = MPI_Isend(said.get(), sizeof *said, MPI_BYTE, other, tag_end, duplicate_, &request);
      if (code == MPI_SUCCESS) MPI_Request_free(&request);
    }
    said.release();  // NOLINT(bugprone-unused-return-value): MPI may read it until the process ends
  }

  int rank_ = 0;
  int size_ = 0;
  MPI_Comm duplicate_ = MPI_COMM_NULL;
  std::string broken_;  ///< after a timeout or a loss no later round can succeed
  int broken_rank_ = 0;
  detail::interruption interrupted_;
  detail::process_stamp made_in_;
};

}  // namespace

std::shared_ptr<bootstrap> mpi_bootstrap(MPI_Comm ranks, std::chrono::milliseconds limit) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) throw invalid_argument("mpi_bootstrap: MPI is not initialized; call MPI_Init first");
  if (ranks == MPI_COMM_NULL) throw invalid_argument("mpi_bootstrap: the communicator is MPI_COMM_NULL");
  return std::make_shared<mpi_ranks>(ranks, limit);
}

}  // namespace devcomm::host
