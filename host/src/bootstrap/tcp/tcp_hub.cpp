#include "bootstrap/tcp/tcp_job.hpp"

#include "bootstrap/gather_arguments.hpp"
#include "bootstrap/interruption.hpp"
#include "bootstrap/tcp/acceptor.hpp"
#include "bootstrap/tcp/frame_stream.hpp"
#include "bootstrap/tcp/reserved_port.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "bootstrap/tcp/wire.hpp"
#include "util/deadline.hpp"
#include "util/number_list.hpp"

#include <devcomm/host/error.hpp>

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// How often rank 0 sends to waiting ranks which ranks it waits for.
constexpr std::chrono::milliseconds progress_interval(50);
/// How long sending a failure to the other ranks may take past the limit.
constexpr std::chrono::milliseconds notice_limit(200);
/// How long rank 0 still accepts ranks, to send them the failure, when a rank is lost while others join.
constexpr std::chrono::milliseconds latecomer_limit(1000);

struct peer {
  std::unique_ptr<frame_stream> stream;  ///< null until it joined
  std::string address;
  std::optional<frame> part;  ///< `part` or `bad_arguments` of the current round
  bool gave_up = false;
  bool gave_up_on_root = false;
  std::string gave_up_text;
  bool knows_end = false;  ///< was sent the end of the job
  std::string told;        ///< the last list of missing ranks that it was sent

  [[nodiscard]] bool open() const noexcept { return stream != nullptr && !stream->closed(); }
};

class tcp_hub final : public bootstrap {
 public:
  tcp_hub(const unique_id& id, int size, std::chrono::milliseconds limit)
      : size_(static_cast<std::size_t>(size)), peers_(size_) {
    const std::string call = "tcp_bootstrap on rank 0 of " + std::to_string(size);
    unique_fd listener = take_reserved_port(id.secret());
    if (size == 1) return;
    if (!listener) listener = bind_for(id.host(), id.port(), call);
    const deadline until(limit);
    accept_all_ranks(acceptor(std::move(listener), size, id.secret()), call, until);
    round(call, {}, {}, until);
  }

  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(size_); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::chrono::milliseconds limit) override {
    round("all_gather on rank 0 of " + std::to_string(size_), mine, all, deadline(limit));
  }
  void interrupt(int culprit, const std::string& why) override { interrupted_.set(culprit, why); }

 private:
  using kind = round_failure::kind;

  void accept_all_ranks(acceptor newcomers, const std::string& call, const deadline& until) {
    since_told_ = deadline::clock::now();
    for (;;) {
      stop_if_lost(call, &newcomers);
      if (!newcomers.why_never().empty()) {
        fail_for_good(call, kind::invalid, kind::invalid, 0, newcomers.why_never(), &newcomers);
      }
      const std::vector<int> missing = ranks_where([](const peer& p) { return p.stream == nullptr; });
      if (missing.empty()) return;
      if (until.passed()) {
        const std::string refusals = newcomers.refusals();
        give_up(call, until, missing,
                "join; start them within the limit or raise it" + (refusals.empty() ? "" : "; " + refusals));
      }
      tell_progress(missing);
      pump(until, &newcomers);
    }
  }

  void round(const std::string& call, std::span<const std::byte> mine, std::span<std::byte> all,
             const deadline& until) {
    if (broken_) broken_->raise(call);
    const std::string argument_problem = problem_of_arguments(mine.size(), all.size(), size_);
    since_told_ = deadline::clock::now();
    for (;;) {
      stop_if_lost(call);
      const std::vector<int> missing = ranks_where([](const peer& p) { return !p.part; });
      if (missing.empty()) break;
      if (until.passed()) {
        give_up(call, until, missing, "take part; see what holds them up, or raise the limit");
      }
      tell_progress(missing);
      pump(until, nullptr);
    }

    std::optional<round_failure> failed = outcome(mine, argument_problem);
    std::vector<std::byte> answer;
    if (failed) {
      answer = failed->encode();
    } else {
      answer.reserve(size_ * mine.size());
      answer.insert(answer.end(), mine.begin(), mine.end());
      for (std::size_t i = 1; i < size_; ++i) {
        answer.insert(answer.end(), peers_[i].part->payload.begin(), peers_[i].part->payload.end());
      }
      if (!answer.empty()) std::memcpy(all.data(), answer.data(), answer.size());
    }
    send_all_peers(failed ? frame_type::failure : frame_type::result, shared_payload(std::move(answer)));
    for (peer& p : peers_) {
      p.part.reset();
      p.told.clear();
    }
    ++round_;
    if (!argument_problem.empty()) failed = round_failure{kind::invalid, 0, false, argument_problem};
    hand_over(call, until);
    if (failed) failed->raise(call);
  }

  /// The failure of a round in which all ranks took part, if any.
  [[nodiscard]] std::optional<round_failure> outcome(std::span<const std::byte> mine,
                                                     const std::string& argument_problem) const {
    if (!argument_problem.empty()) return round_failure{kind::remote, 0, false, "rank 0 failed: " + argument_problem};
    for (std::size_t i = 1; i < size_; ++i) {
      const frame& part = *peers_[i].part;
      if (part.type != frame_type::bad_arguments) continue;
      const std::string why(reinterpret_cast<const char*>(part.payload.data()), part.payload.size());
      return round_failure{kind::remote, static_cast<int>(i), false, "rank " + std::to_string(i) + " failed: " + why};
    }
    for (std::size_t i = 1; i < size_; ++i) {
      const std::size_t theirs = peers_[i].part->payload.size();
      if (theirs == mine.size()) continue;
      return round_failure{kind::invalid, 0, false,
                           "rank 0 gave " + std::to_string(mine.size()) + " bytes and rank " + std::to_string(i) +
                               " gave " + std::to_string(theirs) +
                               "; all ranks must make the same calls with the same sizes"};
    }
    return std::nullopt;
  }

  /// Stops the job when a rank is lost, closed its connection or ran out of time.
  /// `newcomers` is where ranks still join.
  void stop_if_lost(const std::string& call, acceptor* newcomers = nullptr) {
    if (const auto cause = interrupted_.get()) {
      fail_for_good(call, kind::remote, kind::remote, cause->culprit, cause->text);
    }
    for (std::size_t i = 1; i < size_; ++i) {
      peer& p = peers_[i];
      const int rank = static_cast<int>(i);
      if (p.gave_up) {
        fail_for_good(call, p.gave_up_on_root ? kind::remote : kind::timeout, kind::timeout, rank, p.gave_up_text);
      }
      if (p.stream != nullptr && p.stream->closed()) {
        const std::string refusals = newcomers != nullptr ? newcomers->refusals() : std::string();
        fail_for_good(call, kind::remote, kind::remote, rank,
                      "rank " + std::to_string(rank) + " (" + p.address + ") is gone: " + p.stream->problem() +
                          "; look for its own error" + (refusals.empty() ? "" : "; " + refusals),
                      newcomers);
      }
    }
  }

  [[noreturn]] void give_up(const std::string& call, const deadline& until, const std::vector<int>& missing,
                            const std::string& what) {
    fail_for_good(call, kind::timeout, kind::timeout, 0,
                  "rank 0 gave up after " + until.limit_text() + " waiting for " + rank_list(missing) + " to " + what);
  }

  /// Sends the failure to all connected ranks, and throws. Ranks that took part in the round get kind `waiting`, those
  /// that come later the loss of `culprit`.
  [[noreturn]] void fail_for_good(const std::string& call, kind here, kind waiting, int culprit,
                                  const std::string& text, acceptor* newcomers = nullptr) {
    broken_ = round_failure{kind::remote, culprit, true, text};
    const shared_payload now(round_failure{waiting, culprit, true, text}.encode());
    const shared_payload later(broken_->encode());
    const auto tell = [&] {
      for (std::size_t i = 1; i < size_; ++i) {
        peer& p = peers_[i];
        if (!p.open() || p.knows_end || static_cast<int>(i) == culprit) continue;
        p.knows_end = true;
        p.stream->queue(frame_type::failure, round_, p.part ? now : later);
        p.stream->flush();
      }
    };
    tell();
    const deadline notice(newcomers != nullptr ? latecomer_limit : notice_limit);
    while (!notice.passed() && (somebody_unsent() || (newcomers != nullptr && somebody_joins()))) {
      pump(notice, newcomers);
      tell();
    }
    round_failure{here, culprit, true, text}.raise(call);
  }

  void send_all_peers(frame_type type, const shared_payload& payload) {
    for (peer& p : peers_) {
      if (!p.open()) continue;
      p.stream->queue(type, round_, payload);
      p.stream->flush();
    }
  }

  /// Waits until all answers are sent. A rank that is lost by now fails the next round.
  void hand_over(const std::string& call, const deadline& until) {
    while (somebody_unsent()) {
      if (until.passed()) {
        give_up(call, until, ranks_where([](const peer& p) { return p.open() && p.stream->unsent(); }),
                "read the result");
      }
      pump(until, nullptr);
    }
  }

  void tell_progress(const std::vector<int>& missing) {
    if (deadline::clock::now() - since_told_ < progress_interval) return;
    since_told_ = deadline::clock::now();
    const std::string text = rank_list(missing);
    const auto encoded = bytes_of(text);
    const shared_payload payload({encoded.begin(), encoded.end()});
    for (peer& p : peers_) {
      if (!p.open() || !p.part || p.told == text) continue;
      p.told = text;
      p.stream->queue(frame_type::progress, round_, payload);
      p.stream->flush();
    }
  }

  [[nodiscard]] bool somebody_joins() const {
    return !ranks_where([](const peer& p) { return p.stream == nullptr; }).empty();
  }
  [[nodiscard]] bool somebody_unsent() const {
    for (const peer& p : peers_) {
      if (p.open() && p.stream->unsent()) return true;
    }
    return false;
  }

  template <class Predicate>
  [[nodiscard]] std::vector<int> ranks_where(Predicate predicate) const {
    std::vector<int> ranks;
    for (std::size_t i = 1; i < size_; ++i) {
      if (predicate(peers_[i])) ranks.push_back(static_cast<int>(i));
    }
    return ranks;
  }

  /// Waits at most one progress interval for events, and handles them.
  void pump(const deadline& until, acceptor* newcomers) {
    std::vector<pollfd> entries;
    std::vector<std::size_t> owners;
    for (std::size_t i = 1; i < size_; ++i) {
      if (!peers_[i].open()) continue;
      const short events = peers_[i].stream->unsent() ? POLLIN | POLLOUT : POLLIN;
      entries.push_back({peers_[i].stream->descriptor(), events, 0});
      owners.push_back(i);
    }
    if (newcomers != nullptr) newcomers->add_to(entries);
    if (::poll(entries.data(), entries.size(), until.poll_milliseconds(progress_interval)) < 0) {
      if (errno == EINTR) return;
      throw system_error(std::string("tcp_bootstrap on rank 0: poll failed: ") + std::strerror(errno));
    }
    for (std::size_t i = 0; i < owners.size(); ++i) {
      peer& p = peers_[owners[i]];
      if (entries[i].revents & POLLOUT) p.stream->flush();
      if (entries[i].revents & ~POLLOUT) read_from(p);
    }
    if (newcomers == nullptr) return;
    for (acceptor::joined_rank& one : newcomers->serve(entries, owners.size())) {
      peer& p = peers_[static_cast<std::size_t>(one.rank)];
      p.address = one.address;
      p.stream = std::move(one.stream);
      p.stream->accept_payloads_up_to(longest_part);
    }
  }

  void read_from(peer& p) {
    while (auto got = p.stream->receive()) {
      if (got->type == frame_type::gave_up) {
        wire_reader in(got->payload);
        p.gave_up = true;
        p.gave_up_on_root = in.integer<std::uint32_t>() != 0;
        p.gave_up_text = in.text();
      } else if ((got->type == frame_type::part || got->type == frame_type::bad_arguments) && got->round == round_ &&
                 !p.part) {
        p.part = std::move(*got);
      } else {
        p.stream->close("it sent a message that has no place here");
      }
    }
  }

  std::size_t size_;
  std::vector<peer> peers_;  ///< by rank; the first is unused
  std::uint32_t round_ = 0;
  deadline::clock::time_point since_told_;
  std::optional<round_failure> broken_;
  interruption interrupted_;
};

}  // namespace

std::shared_ptr<bootstrap> make_tcp_hub(const unique_id& id, int size, std::chrono::milliseconds limit) {
  return std::make_shared<tcp_hub>(id, size, limit);
}

}  // namespace devcomm::host::detail
