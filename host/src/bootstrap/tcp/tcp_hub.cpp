#include "bootstrap/tcp/tcp_job.hpp"

#include "bootstrap/gather_arguments.hpp"
#include "bootstrap/tcp/acceptor.hpp"
#include "bootstrap/tcp/frame_stream.hpp"
#include "bootstrap/tcp/gather_wire.hpp"
#include "bootstrap/tcp/idle_watch.hpp"
#include "bootstrap/tcp/listener.hpp"
#include "bootstrap/tcp/local_notices.hpp"
#include "bootstrap/tcp/process_rendezvous.hpp"
#include "bootstrap/tcp/reserved_port.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "bootstrap/tcp/wire.hpp"
#include "util/deadline.hpp"
#include "util/interfaces.hpp"
#include "util/number_list.hpp"
#include "util/open_files.hpp"

#include <devcomm/host/error.hpp>

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// How often rank 0 sends to waiting ranks which ranks it waits for.
std::chrono::milliseconds progress_interval(std::size_t ranks) {
  return std::clamp(std::chrono::milliseconds(ranks / 2), std::chrono::milliseconds(50),
                    std::chrono::milliseconds(2000));
}
/// How often rank 0, while it waits, checks whether it is interrupted and whether it is time to send something.
constexpr std::chrono::milliseconds look_interval(50);
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
  std::optional<shutdown_notice> notice;
  bool knows_end = false;      ///< was sent the end of the job
  bool waits_to_send = false;  ///< the poller reports when it takes more
  std::string sent_missing;    ///< the last list of missing ranks that it was sent

  [[nodiscard]] bool open() const noexcept { return stream != nullptr && !stream->closed(); }
};

class tcp_hub final : public bootstrap {
 public:
  tcp_hub(const unique_id& id, int size, std::chrono::milliseconds limit)
      : secret_(id.secret()), size_(static_cast<std::size_t>(size)), peers_(size_) {
    const std::string call = "tcp_bootstrap on rank 0 of " + std::to_string(size);
    const std::chrono::milliseconds silence = peer_limit();
    unique_fd listener = take_reserved_port(id.secret());
    if (size == 1) return;
    allow_open_files(size_ + acceptor::max_pending(size));
    poller_ = unique_fd(::epoll_create1(EPOLL_CLOEXEC));
    if (!poller_) throw system_error(call + ": epoll_create1 failed: " + std::strerror(errno));
    epoll_event wish{EPOLLIN, {.u64 = 0}};
    if (!notices_.good() || ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, notices_.descriptor(), &wish) != 0) {
      throw system_error(call + ": eventfd or epoll_ctl failed: " + std::strerror(errno));
    }
    if (!listener) listener = bind_for(id.host(), id.port(), call);
    if (is_local_only(address_of_this_end(listener.get()))) {
      reached_from_here_ =
          "; it listens at " + address_of_this_end(listener.get()) +
          ", which no other host reaches: give the same DEVCOMM_ROOT on all ranks, not its host by name on some and as "
          "localhost on others";
    }
    const deadline until(limit);
    accept_all_ranks(acceptor(std::move(listener), size, id.secret(), silence), call, until);
    round(call, {}, {}, nullptr, until);
  }

  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(size_); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::chrono::milliseconds limit) override {
    round("all_gather on rank 0 of " + std::to_string(size_), {no_group, mine, {}}, all, nullptr, deadline(limit));
  }
  [[nodiscard]] group_parts exchange(std::span<const std::byte> note, std::span<std::byte> notes,
                                     const group_name& group, std::span<const std::byte> mine,
                                     std::chrono::milliseconds limit) override {
    group_parts result;
    round("exchange on rank 0 of " + std::to_string(size_), {group, note, mine}, notes, &result, deadline(limit));
    return result;
  }
  [[nodiscard]] std::optional<secret> derive_secret(std::span<const std::byte> label) const override {
    return secret_of_part(secret_, label);
  }
  /// Of a connection to another host, where there is one.
  [[nodiscard]] std::string local_address() const override {
    const std::lock_guard lock(mutex_);
    std::string found;
    for (const peer& p : peers_) {
      if (!p.open()) continue;
      const std::string address = address_of_this_end(p.stream->descriptor());
      if (found.empty() || is_local_only(found)) found = address;
    }
    return found;
  }
  void interrupt(int culprit, const std::string& why) override { notices_.interrupt(culprit, why); }
  void abort(const std::string& why) noexcept override { notices_.abort(why); }
  void watch_aborts(const abort_handler& aborted) override {
    const std::lock_guard lock(mutex_);
    aborted_ = aborted;
  }
  void watch(const loss_handler& lost) override {
    const std::lock_guard lock(mutex_);
    lost_ = lost;
    if (!watch_.started() && poller_) {
      watch_.start(
          poller_.get(), [this] { return poll(); }, [this](const std::string& why) { return fail_to_watch(why); });
    }
  }
  void leave(int culprit, const std::string& why) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (culprit < 0) {
        send_all_peers(frame_type::leave, shared_payload(shutdown_notice{culprit, why}.encode()));
      } else {
        lost_ = {};
        if (!loss_told_) break_job(kind::lost, kind::lost, culprit, why);
      }
    } catch (const std::exception&) {
      // Out of memory: the others see their connections close.
    }
  }

 private:
  using kind = round_failure::kind;

  void accept_all_ranks(acceptor newcomers, const std::string& call, const deadline& until) {
    since_told_ = deadline::clock::now();
    for (;;) {
      stop_if_lost(call, &newcomers);
      if (!newcomers.why_never().empty()) {
        fail_for_good(call, kind::invalid, kind::invalid, 0, newcomers.why_never(), &newcomers);
      }
      if (joined_ + 1 == size_) return;
      if (until.passed()) {
        const std::string refusals = newcomers.refusals();
        throw_timeout(call, until, ranks_that_have_not_joined(),
                      "join; start them within the limit or raise it" + reached_from_here_ +
                          (refusals.empty() ? "" : "; " + refusals));
      }
      tell_progress([this] { return ranks_that_have_not_joined(); });
      pump(until, &newcomers);
    }
  }

  void round(const std::string& call, const contribution& mine, std::span<std::byte> notes, group_parts* group,
             const deadline& until) {
    const std::lock_guard lock(mutex_);
    const process_rendezvous::round ordered(rendezvous_);
    const idle_watch::busy reads(watch_);
    try {
      run_round(call, mine, notes, group, until);
    } catch (...) {
      tell_of_loss();
      throw;
    }
    tell_of_loss();
  }

  void run_round(const std::string& call, const contribution& mine, std::span<std::byte> notes, group_parts* group,
                 const deadline& until) {
    if (broken_) broken_->raise(call);
    const std::string argument_problem = problem_of_contribution(mine, notes.size(), size_, group != nullptr);
    since_told_ = deadline::clock::now();
    for (;;) {
      stop_if_lost(call);
      if (parts_ + 1 == size_) break;
      if (until.passed()) {
        throw_timeout(call, until, ranks_without_part(), "take part; see what holds them up, or raise the limit");
      }
      tell_progress([this] { return ranks_without_part(); });
      pump(until, nullptr);
    }

    std::vector<contribution> all;
    std::optional<round_failure> failed = outcome(mine, argument_problem, all);
    if (failed) {
      send_all_peers(frame_type::failure, shared_payload(failed->encode()));
    } else {
      send_results(all);
      for (std::size_t i = 0; i < size_; ++i) {
        std::ranges::copy(all[i].note, notes.subspan(i * mine.note.size()).begin());
        if (group == nullptr || all[i].group != mine.group) continue;
        group->ranks.push_back(static_cast<int>(i));
        group->parts.insert(group->parts.end(), all[i].mine.begin(), all[i].mine.end());
      }
    }
    for (peer& p : peers_) {
      p.part.reset();
      p.sent_missing.clear();
    }
    parts_ = 0;
    ++round_;
    if (!argument_problem.empty()) failed = round_failure{kind::invalid, 0, false, argument_problem};
    hand_over(call, until);
    if (failed) failed->raise(call);
  }

  /// The failure of a round in which all ranks took part, if any, else what `all` of them gave.
  [[nodiscard]] std::optional<round_failure> outcome(const contribution& mine, const std::string& argument_problem,
                                                     std::vector<contribution>& all) const {
    if (!argument_problem.empty()) return round_failure{kind::remote, 0, false, "rank 0 failed: " + argument_problem};
    const auto fail = [](kind what, std::size_t rank, const std::string& text) {
      return round_failure{what, static_cast<int>(rank), false, text};
    };
    for (std::size_t i = 1; i < size_; ++i) {
      const frame& part = *peers_[i].part;
      if (part.type != frame_type::bad_arguments) continue;
      const std::string why(reinterpret_cast<const char*>(part.payload.data()), part.payload.size());
      return fail(kind::remote, i, "rank " + std::to_string(i) + " failed: " + why);
    }
    const auto text_of = [](const contribution& c) {
      return std::to_string(c.note.size() + c.mine.size()) + " bytes" +
             (c.group == no_group ? "" : ", " + std::to_string(c.mine.size()) + " of them for its group");
    };
    all.reserve(size_);
    all.push_back(mine);
    for (std::size_t i = 1; i < size_; ++i) {
      const auto theirs = contribution::decode(peers_[i].part->payload);
      if (!theirs) return fail(kind::remote, i, "rank " + std::to_string(i) + " sent bytes that cannot be read");
      if (theirs->note.size() != mine.note.size() || theirs->mine.size() != mine.mine.size() ||
          (theirs->group == no_group) != (mine.group == no_group)) {
        return fail(kind::unequal, 0,
                    "rank 0 gave " + text_of(mine) + " and rank " + std::to_string(i) + " gave " + text_of(*theirs) +
                        "; all ranks must make the same calls with the same sizes");
      }
      all.push_back(*theirs);
    }
    return std::nullopt;
  }

  /// To each rank the notes of all, and what its group gave.
  void send_results(const std::vector<contribution>& all) {
    std::vector<std::byte> notes = encode_notes(all);
    if (all.front().group == no_group) {
      send_all_peers(frame_type::result, shared_payload(std::move(notes)));
      return;
    }
    std::map<group_name, std::vector<int>> groups;
    for (std::size_t i = 0; i < size_; ++i) groups[all[i].group].push_back(static_cast<int>(i));
    for (const auto& [name, members] : groups) {
      std::vector<std::byte> answer = notes;
      const std::vector<std::byte> parts = encode_group(all, name == for_first_rank ? std::vector<int>{} : members);
      answer.insert(answer.end(), parts.begin(), parts.end());
      const shared_payload payload(std::move(answer));
      for (const int member : members) {
        if (member != 0) send(static_cast<std::size_t>(member), frame_type::result, payload);
      }
    }
  }

  /// Stops the job when a rank is lost, closed its connection or ran out of time.
  /// `newcomers` is where ranks still join.
  void stop_if_lost(const std::string& call, acceptor* newcomers = nullptr) {
    if (const auto cause = notices_.interrupted()) {
      fail_for_good(call, kind::remote, kind::lost, cause->culprit, cause->text);
    }
    if (ended_.empty()) return;
    const std::size_t first = *ended_.begin();
    const peer& p = peers_[first];
    const int rank = static_cast<int>(first);
    // A rank that never came may be one of them.
    std::string refusals = newcomers != nullptr ? newcomers->refusals() : std::string();
    if (!refusals.empty()) refusals = "; " + refusals;
    if (p.gave_up) {
      fail_for_good(call, p.gave_up_on_root ? kind::remote : kind::timeout, kind::timeout, rank,
                    p.gave_up_text + refusals);
    }
    const lost_rank lost = loss_of(first);
    if (const auto tell = report_of(lost)) tell();
    fail_for_good(call, kind::remote, kind::lost, lost.culprit, lost.text + refusals, newcomers);
  }

  struct lost_rank {
    int culprit;
    std::string text;
  };
  /// Whether it ended before its part was over. One that timed out may still live.
  [[nodiscard]] static bool is_lost(const peer& p) {
    return p.notice ? p.notice->culprit >= 0 : p.stream != nullptr && p.stream->closed();
  }
  [[nodiscard]] lost_rank loss_of(std::size_t ended) const {
    const peer& p = peers_[ended];
    if (p.notice && p.notice->culprit >= 0) return {p.notice->culprit, p.notice->text};
    return {static_cast<int>(ended), "rank " + std::to_string(ended) + " (" + p.address +
                                         ") is gone: " + p.stream->problem() + "; look for its own error"};
  }

  [[nodiscard]] idle_watch::report report_of(const lost_rank& lost) {
    loss_handler report = std::exchange(lost_, {});
    if (!report) return {};
    return [report = std::move(report), lost] { report(lost.culprit, lost.text); };
  }

  /// What came while this rank was in no call.
  [[nodiscard]] idle_watch::report poll() {
    const std::lock_guard lock(mutex_);
    serve_peers();
    return find_loss();
  }

  /// Without its thread rank 0 would miss losses, so the job ends.
  [[nodiscard]] idle_watch::report fail_to_watch(const std::string& why) {
    const std::lock_guard lock(mutex_);
    const lost_rank lost{0, "rank 0 cannot watch its connections any more: " + why};
    if (!loss_told_) break_job(kind::lost, kind::lost, lost.culprit, lost.text);
    return report_of(lost);
  }

  /// A rank that is lost by the end of a call: its connection wakes the watch no more.
  void tell_of_loss() {
    if (!watch_.started()) return;
    if (const auto tell = find_loss()) tell();
  }

  /// Sends the first loss to all ranks, also after another failure. A rank whose part was over before its connection
  /// closed is not lost.
  [[nodiscard]] idle_watch::report find_loss() {
    if (loss_told_) return {};
    for (const std::size_t rank : ended_) {
      if (!is_lost(peers_[rank])) continue;
      const lost_rank lost = loss_of(rank);
      break_job(kind::lost, kind::lost, lost.culprit, lost.text);
      return report_of(lost);
    }
    return {};
  }

  [[noreturn]] void throw_timeout(const std::string& call, const deadline& until, const std::vector<int>& missing,
                                  const std::string& what) {
    fail_for_good(
        call, kind::timeout, kind::timeout, 0,
        "rank 0 timed out after " + until.limit_text() + " waiting for " + rank_list(missing) + " to " + what);
  }

  /// Sends the failure to all connected ranks, and throws. Ranks that took part in the round get kind `waiting`, those
  /// that come later the loss of `culprit`.
  [[noreturn]] void fail_for_good(const std::string& call, kind here, kind waiting, int culprit,
                                  const std::string& text, acceptor* newcomers = nullptr) {
    break_job(waiting, waiting == kind::lost ? kind::lost : kind::remote, culprit, text);
    const deadline notice(newcomers != nullptr ? latecomer_limit : notice_limit);
    while (!notice.passed() && (unsent_ != 0 || (newcomers != nullptr && joined_ + 1 < size_))) {
      pump(notice, newcomers);
      tell_end();
    }
    round_failure{here, culprit, true, text}.raise(call);
  }

  /// No later round can succeed; all connected ranks are notified.
  void break_job(kind waiting, kind others, int culprit, const std::string& text) {
    if (others == kind::lost) {
      loss_told_ = true;
      for (peer& p : peers_) p.knows_end = false;
    }
    broken_ = round_failure{kind::remote, culprit, true, text};
    end_of_waiting_ = shared_payload(round_failure{waiting, culprit, true, text}.encode());
    end_of_others_ = shared_payload(round_failure{others, culprit, true, text}.encode());
    tell_end();
  }
  void tell_end() {
    for (std::size_t i = 1; i < size_; ++i) {
      peer& p = peers_[i];
      if (!p.open() || p.knows_end || static_cast<int>(i) == broken_->culprit) continue;
      p.knows_end = true;
      send(i, frame_type::failure, p.part ? end_of_waiting_ : end_of_others_);
    }
  }

  void send_all_peers(frame_type type, const shared_payload& payload) {
    for (std::size_t i = 1; i < size_; ++i) send(i, type, payload);
  }
  void send(std::size_t rank, frame_type type, const shared_payload& payload) {
    if (!peers_[rank].open()) return;
    peers_[rank].stream->queue(type, round_, payload);
    flush(rank);
  }
  void flush(std::size_t rank) {
    if (peers_[rank].open()) peers_[rank].stream->flush();
    note_state(rank);
  }

  /// Waits until all answers are sent. A rank that is lost by now fails the next round.
  void hand_over(const std::string& call, const deadline& until) {
    while (unsent_ != 0) {
      if (until.passed()) {
        throw_timeout(call, until, ranks_where([](const peer& p) { return p.waits_to_send; }), "read the result");
      }
      pump(until, nullptr);
    }
  }

  template <class Missing>
  void tell_progress(Missing missing) {
    if (deadline::clock::now() - since_told_ < progress_interval(size_)) return;
    since_told_ = deadline::clock::now();
    const std::string text = rank_list(missing());
    const auto encoded = bytes_of(text);
    const shared_payload payload({encoded.begin(), encoded.end()});
    for (std::size_t i = 1; i < size_; ++i) {
      peer& p = peers_[i];
      if (!p.open() || !p.part || p.sent_missing == text) continue;
      p.sent_missing = text;
      send(i, frame_type::progress, payload);
    }
  }

  [[nodiscard]] std::vector<int> ranks_that_have_not_joined() const {
    return ranks_where([](const peer& p) { return p.stream == nullptr; });
  }
  [[nodiscard]] std::vector<int> ranks_without_part() const {
    return ranks_where([](const peer& p) { return !p.part; });
  }
  template <class Predicate>
  [[nodiscard]] std::vector<int> ranks_where(Predicate predicate) const {
    std::vector<int> ranks;
    for (std::size_t i = 1; i < size_; ++i) {
      if (predicate(peers_[i])) ranks.push_back(static_cast<int>(i));
    }
    return ranks;
  }

  /// Waits at most one interval for events, and handles them.
  void pump(const deadline& until, acceptor* newcomers) {
    std::vector<pollfd> entries{{poller_.get(), POLLIN, 0}};
    if (newcomers != nullptr) newcomers->add_to(entries);
    if (::poll(entries.data(), entries.size(), until.poll_milliseconds(look_interval)) < 0) {
      if (errno == EINTR) return;
      throw system_error(std::string("tcp_bootstrap on rank 0: poll failed: ") + std::strerror(errno));
    }
    if (entries.front().revents != 0) serve_peers();
    if (newcomers == nullptr) return;
    for (acceptor::joined_rank& one : newcomers->serve(entries, 1)) {
      const auto rank = static_cast<std::size_t>(one.rank);
      peer& p = peers_[rank];
      p.address = one.address;
      p.stream = std::move(one.stream);
      p.stream->accept_payloads_up_to(longest_part + contribution::head_bytes);
      p.stream->leave_on_close(poller_.get());
      ++joined_;
      epoll_event wish{EPOLLIN, {.u64 = rank}};
      if (::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, p.stream->descriptor(), &wish) != 0) {
        throw system_error(std::string("tcp_bootstrap on rank 0: epoll_ctl failed: ") + std::strerror(errno));
      }
    }
  }

  void serve_peers() {
    std::array<epoll_event, 256> events{};
    const int count = ::epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const auto rank = static_cast<std::size_t>(event.data.u64);
      if (rank == 0) {
        if (const auto why = notices_.take().abort) pass_abort_on({0, *why});
        continue;
      }
      if (!peers_[rank].open()) continue;
      if ((event.events & EPOLLOUT) != 0) flush(rank);
      if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0) read_from(rank);
    }
  }

  void read_from(std::size_t rank) {
    peer& p = peers_[rank];
    while (auto got = p.stream->receive()) {
      if (got->type == frame_type::gave_up) {
        wire_reader in(got->payload);
        p.gave_up = true;
        p.gave_up_on_root = in.integer<std::uint32_t>() != 0;
        p.gave_up_text = in.text();
      } else if (got->type == frame_type::aborted) {
        const shutdown_notice said{static_cast<int>(rank), shutdown_notice::decode(got->payload).text};
        pass_abort_on(said);
        if (aborted_) aborted_(said.culprit, said.text);
      } else if (got->type == frame_type::leave) {
        const shutdown_notice said = shutdown_notice::decode(got->payload);
        const bool blamed = p.notice && p.notice->culprit >= 0;  // which it does not take back
        if (said.culprit >= static_cast<int>(size_)) {
          p.stream->close("it blames a rank that there is not");
        } else if (!blamed) {
          p.notice = said;
        }
      } else if ((got->type == frame_type::part || got->type == frame_type::bad_arguments) && got->round == round_ &&
                 !p.part) {
        p.part = std::move(*got);
        p.notice.reset();  // it takes part again
        ++parts_;
      } else {
        p.stream->close("it sent a message that has no place here");
      }
    }
    note_state(rank);
  }

  /// To all ranks but the one that aborted.
  void pass_abort_on(const shutdown_notice& said) {
    const shared_payload payload(said.encode());
    for (std::size_t i = 1; i < size_; ++i) {
      if (static_cast<int>(i) != said.culprit) send(i, frame_type::aborted, payload);
    }
  }

  /// After each use of a rank's connection: whether it is over, and whether it waits to send.
  void note_state(std::size_t rank) {
    peer& p = peers_[rank];
    const bool failed = p.notice && p.notice->culprit >= 0;
    if (p.gave_up || failed || p.stream->closed()) ended_.insert(rank);
    const bool waits = p.open() && p.stream->unsent();
    if (waits == p.waits_to_send) return;
    p.waits_to_send = waits;
    waits ? ++unsent_ : --unsent_;
    epoll_event wish{EPOLLIN, {.u64 = rank}};
    if (waits) wish.events |= EPOLLOUT;
    if (p.open() && ::epoll_ctl(poller_.get(), EPOLL_CTL_MOD, p.stream->descriptor(), &wish) != 0) {
      throw system_error(std::string("tcp_bootstrap on rank 0: epoll_ctl failed: ") + std::strerror(errno));
    }
  }

  secret secret_;
  process_rendezvous rendezvous_{secret_};
  std::size_t size_;
  std::string reached_from_here_;  ///< what to do where other hosts do not reach rank 0; empty: they may
  std::vector<peer> peers_;        ///< by rank; the first is unused
  unique_fd poller_;               ///< of all connected ranks
  std::size_t joined_ = 0;
  std::size_t parts_ = 0;        ///< ranks whose part of this round is here
  std::size_t unsent_ = 0;       ///< ranks that wait to send
  std::set<std::size_t> ended_;  ///< ranks that timed out or whose connection is closed
  std::uint32_t round_ = 0;
  deadline::clock::time_point since_told_;
  std::optional<round_failure> broken_;
  bool loss_told_ = false;  ///< all connected ranks were sent a loss
  local_notices notices_;
  shared_payload end_of_waiting_{{}};
  shared_payload end_of_others_{{}};
  mutable std::mutex mutex_;  // guards the connections and what is known of the others
  loss_handler lost_;
  abort_handler aborted_;
  idle_watch watch_;  // ends first
};

}  // namespace

std::shared_ptr<bootstrap> make_tcp_hub(const unique_id& id, int size, std::chrono::milliseconds limit) {
  return std::make_shared<tcp_hub>(id, size, limit);
}

}  // namespace devcomm::host::detail
