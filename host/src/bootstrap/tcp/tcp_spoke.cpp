#include "bootstrap/tcp/tcp_job.hpp"

#include "bootstrap/gather_arguments.hpp"
#include "bootstrap/tcp/frame_stream.hpp"
#include "bootstrap/tcp/gather_wire.hpp"
#include "bootstrap/tcp/handshake.hpp"
#include "bootstrap/tcp/idle_watch.hpp"
#include "bootstrap/tcp/local_notices.hpp"
#include "bootstrap/tcp/process_rendezvous.hpp"
#include "bootstrap/tcp/retry_pauses.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "bootstrap/tcp/wire.hpp"
#include "util/deadline.hpp"
#include "util/random.hpp"

#include <devcomm/host/error.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// How long to retry while the listener has another secret: it may belong to a job that is ending.
constexpr std::chrono::milliseconds foreign_listener_limit = std::chrono::seconds(5);
/// How long one address of a host with several may take to answer.
constexpr std::chrono::milliseconds connect_limit = std::chrono::seconds(3);
/// How long a rank that hears of a loss waits for rank 0's result of the round.
constexpr std::chrono::milliseconds result_limit{300};
/// Ranks that name the host of rank 0 differently may connect elsewhere, or have another secret.
constexpr std::string_view same_root =
    "the same DEVCOMM_ROOT on all ranks, not rank 0's host by name here and as localhost there";

class tcp_spoke final : public bootstrap {
 public:
  tcp_spoke(const unique_id& id, int rank, int size, std::chrono::milliseconds limit)
      : secret_(id.secret()), rank_(rank), size_(size), root_(endpoint_text(id.host(), id.port())) {
    const std::string call = "tcp_bootstrap" + place();
    peer_limit_ = peer_limit();
    if (!notices_.good()) throw system_error(call + ": eventfd failed: " + std::strerror(errno));
    const deadline until(limit);
    join(id, call, until);
    round(call, {}, {}, nullptr, until);
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::chrono::milliseconds limit) override {
    round("all_gather" + place(), {no_group, mine, {}}, all, nullptr, deadline(limit));
  }
  [[nodiscard]] group_parts exchange(std::span<const std::byte> note, std::span<std::byte> notes,
                                     const group_name& group, std::span<const std::byte> mine,
                                     std::chrono::milliseconds limit) override {
    group_parts result;
    round("exchange" + place(), {group, note, mine}, notes, &result, deadline(limit));
    return result;
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
    if (!watch_.started() && !stream_->closed()) {
      watch_.start(
          stream_->descriptor(), [this] { return poll(); },
          [this](const std::string& why) { return fail_to_watch(why); }, notices_.descriptor());
      stream_->leave_on_close(watch_.poller());
    }
  }
  void leave(int culprit, const std::string& why) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (culprit >= 0) lost_ = {};
      send_shutdown_notice(culprit, why);
    } catch (const std::exception&) {
      // Out of memory: the others see the connection close.
    }
  }
  [[nodiscard]] std::optional<secret> derive_secret(std::span<const std::byte> label) const override {
    return secret_of_part(secret_, label);
  }
  [[nodiscard]] std::string local_address() const override {
    const std::lock_guard lock(mutex_);
    return address_of_this_end(stream_->descriptor());
  }

 private:
  using kind = round_failure::kind;

  /// Result of one attempt to join.
  struct attempt {
    enum class outcome { joined, again, foreign } what;
    std::string problem;
  };

  [[nodiscard]] std::string place() const {
    return " on rank " + std::to_string(rank_) + " of " + std::to_string(size_);
  }

  void join(const unique_id& id, const std::string& call, const deadline& until) {
    std::vector<socket_address> addresses;
    attempt last{attempt::outcome::again, "rank 0 does not answer"};
    std::optional<deadline> foreign_until;
    for (retry_pauses pauses(size_, random_value<std::uint64_t>());;) {
      if (addresses.empty()) addresses = resolve(id.host(), id.port(), until, last.problem);
      for (std::size_t i = 0; i < addresses.size(); ++i) {
        attempt got = try_address(addresses[i], id, call, until.share_of(addresses.size() - i));
        if (got.what == attempt::outcome::joined) return;
        // An attempt cut short by the limit says less than the one before.
        if (until.passed() && got.what == attempt::outcome::again) break;
        last = std::move(got);
        if (last.what == attempt::outcome::foreign && !foreign_until)
          foreign_until = until.within(foreign_listener_limit);
      }
      if (last.what == attempt::outcome::foreign && foreign_until->passed()) {
        throw invalid_argument(call + ": the listener at " + root_ + " " + last.problem);
      }
      if (until.passed()) {
        throw timeout_error(call + ": could not join rank 0 at " + root_ + " within " + until.limit_text() + ": " +
                            last.problem + "; start rank 0, check the address (" + std::string(same_root) +
                            "), and that no rank " + std::to_string(rank_) + " has joined already");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(until.poll_milliseconds(pauses.next())));
    }
  }

  /// `until` is sooner than the limit where there are more addresses.
  attempt try_address(const socket_address& address, const unique_id& id, const std::string& call,
                      const deadline& until) {
    using outcome = attempt::outcome;
    std::string problem;
    unique_fd connection = connect_to(address, until.within(connect_limit), problem, peer_limit_);
    if (!connection) return {outcome::again, problem};

    hello mine;
    mine.size = static_cast<std::uint32_t>(size_);
    mine.rank = static_cast<std::uint32_t>(rank_);
    mine.fresh = random_value<nonce>();
    const deadline soon = until.within(handshake_limit);
    std::array<std::byte, challenge::wire_bytes> data;
    if (!send_all(connection.get(), mine.encode(), soon, problem) ||
        !receive_all(connection.get(), data, soon, problem)) {
      return {outcome::again, problem};
    }
    const auto asked = challenge::decode(data);
    if (!asked) return {outcome::foreign, "is not rank 0 of a devcomm job; check the address"};
    if (asked->version != protocol_version) {
      return {outcome::foreign, "speaks protocol version " + std::to_string(asked->version) + " where this rank has " +
                                    std::to_string(protocol_version) + "; build all ranks with one devcomm"};
    }

    const transcript seen(mine, *asked);
    std::array<std::byte, verdict::head_bytes> head_data;
    if (!send_all(connection.get(), seen.rank_proof(id.secret()), until, problem) ||
        !receive_all(connection.get(), head_data, until, problem)) {
      return {outcome::again, problem};
    }
    const auto head = verdict::decode_head(head_data);
    std::string text(head ? head->text_bytes : 0, '\0');
    if (!head || !receive_all(connection.get(), std::as_writable_bytes(std::span(text)), until, problem)) {
      return {outcome::again, head ? problem : "its answer cannot be read"};
    }
    if (!verdict::proven(*head, text, seen, id.secret())) {
      return {outcome::foreign, "has another secret; give all ranks one unique_id or DEVCOMM_SECRET, or " +
                                    std::string(same_root) + ", and each job an address of its own"};
    }
    if (head->outcome == verdict::code::refused) {
      throw invalid_argument(call + ": rank 0 at " + root_ + " refused this process: " + text);
    }
    stream_ = std::make_unique<frame_stream>(std::move(connection), seen.key_of_rank(id.secret()),
                                             seen.key_of_root(id.secret()));
    return {outcome::joined, {}};
  }

  void round(const std::string& call, const contribution& mine, std::span<std::byte> notes, group_parts* group,
             const deadline& until) {
    const std::lock_guard lock(mutex_);
    const process_rendezvous::round ordered(rendezvous_);
    const idle_watch::busy reads(watch_);
    if (broken_) broken_->raise(call);
    const auto ranks = static_cast<std::size_t>(size_);
    const std::string argument_problem = problem_of_contribution(mine, notes.size(), ranks, group != nullptr);
    if (argument_problem.empty()) {
      stream_->queue(frame_type::part, round_, shared_payload(mine.encode()));
    } else {
      const auto text = bytes_of(argument_problem);
      stream_->queue(frame_type::bad_arguments, round_, shared_payload({text.begin(), text.end()}));
    }
    stream_->accept_payloads_up_to(longest_result(ranks, mine.note.size(), mine.mine.size()));

    std::string waits_for;
    std::optional<deadline> last_word;
    const auto end_by_loss = [&] {
      if (!argument_problem.empty()) throw invalid_argument(call + ": " + argument_problem);
      broken_->raise(call);
    };
    for (;;) {
      if (const auto cause = take_notices(); cause && !last_word) last_word = announce_loss(*cause, until);
      stream_->flush();
      while (auto got = stream_->receive()) {
        if (got->type == frame_type::progress && got->round == round_) {
          waits_for.assign(reinterpret_cast<const char*>(got->payload.data()), got->payload.size());
        } else if (got->type == frame_type::result && got->round == round_ &&
                   take_result(got->payload, mine, notes, group)) {
          root_left_ = false;
          ++round_;
          return;
        } else if (got->type == frame_type::leave) {
          root_left_ = true;
        } else if (got->type == frame_type::aborted) {
          hear_abort(*got);
        } else if (got->type == frame_type::failure) {
          ++round_;
          if (last_word) end_by_loss();
          fail(call, round_failure::decode(got->payload), argument_problem);
        } else {
          stream_->close("it sent a message that has no place here");
        }
      }
      if (last_word && (last_word->passed() || stream_->closed())) end_by_loss();
      if (stream_->closed()) {
        broken_ = loss_of_root();
        if (const auto tell = root_left_ ? idle_watch::report() : report_of(0, broken_->text)) tell();
        broken_->raise(call);
      }
      if (until.passed()) throw_timeout(call, until, waits_for);
      pollfd entries[] = {{stream_->descriptor(), static_cast<short>(stream_->unsent() ? POLLIN | POLLOUT : POLLIN), 0},
                          {notices_.descriptor(), POLLIN, 0}};
      if (::poll(entries, 2, last_word.value_or(until).poll_milliseconds()) < 0 && errno != EINTR) {
        throw system_error(call + ": poll failed: " + std::strerror(errno));
      }
    }
  }

  [[nodiscard]] bool take_result(std::span<const std::byte> payload, const contribution& mine,
                                 std::span<std::byte> notes, group_parts* group) const {
    const auto ranks = static_cast<std::size_t>(size_);
    if (!decode_notes(payload, notes, ranks)) return false;
    if (group == nullptr) return payload.empty();
    auto found = decode_group(payload, mine.group == for_first_rank ? no_rank : rank_, ranks, mine.mine.size());
    if (found) *group = std::move(*found);
    return found.has_value();
  }

  [[noreturn]] void fail(const std::string& call, const std::optional<round_failure>& heard,
                         const std::string& argument_problem) {
    round_failure failure{kind::remote, 0, true, "rank 0 sent a failure that cannot be read"};
    if (heard) failure = *heard;
    if (failure.final) broken_ = round_failure{kind::remote, failure.culprit, true, failure.text};
    if (failure.what == kind::lost) {
      if (const auto tell = report_of(failure.culprit, failure.text)) tell();
    }
    if (!argument_problem.empty()) throw invalid_argument(call + ": " + argument_problem);
    failure.raise(call);
  }

  /// What came while this rank was in no call.
  [[nodiscard]] idle_watch::report poll() {
    const std::lock_guard lock(mutex_);
    static_cast<void>(take_notices());  // an interruption is for the next call
    while (auto got = stream_->receive()) {
      if (got->type == frame_type::aborted) {
        hear_abort(*got);
      } else if (got->type == frame_type::failure) {
        auto heard = round_failure::decode(got->payload);
        if (!heard || !heard->final) continue;
        broken_ = round_failure{kind::remote, heard->culprit, true, heard->text};
        if (heard->what == kind::lost) return report_of(heard->culprit, heard->text);
      } else if (got->type == frame_type::leave) {
        root_left_ = true;
      } else if (!broken_) {  // else of a round that this rank has left
        stream_->close("it sent a message that has no place here");
      }
    }
    if (!stream_->closed() || root_left_) return {};
    const round_failure loss = loss_of_root();
    if (!broken_ || lost_) broken_ = loss;  // a loss that is known says more
    return report_of(0, loss.text);
  }

  /// Without its thread this rank would miss losses, so its part ends, and all are notified.
  [[nodiscard]] idle_watch::report fail_to_watch(const std::string& why) {
    const std::lock_guard lock(mutex_);
    const std::string text = "rank " + std::to_string(rank_) + " cannot watch its connection any more: " + why;
    if (!broken_) broken_ = round_failure{kind::remote, rank_, true, text};
    send_shutdown_notice(rank_, text);
    return report_of(rank_, text);
  }

  [[nodiscard]] idle_watch::report report_of(int culprit, const std::string& text) {
    loss_handler report = std::exchange(lost_, {});
    if (!report) return {};
    return [report = std::move(report), culprit, text] { report(culprit, text); };
  }

  [[nodiscard]] round_failure loss_of_root() const {
    return {kind::remote, 0, true,
            "rank 0 at " + root_ + " is gone: " + stream_->problem() + "; look for its own error"};
  }

  /// Notifies rank 0, which notifies the others.
  [[noreturn]] void throw_timeout(const std::string& call, const deadline& until, const std::string& waits_for) {
    const bool on_root = waits_for.empty();
    const std::string text = "rank " + std::to_string(rank_) + " timed out after " + until.limit_text() +
                             " waiting for " + (on_root ? "rank 0" : waits_for) +
                             " to take part; see what holds them up, or raise the limit";
    broken_ = round_failure{kind::remote, rank_, true, text};
    wire_writer message;
    message.integer(static_cast<std::uint32_t>(on_root ? 1 : 0)).bytes(bytes_of(text));
    stream_->queue(frame_type::gave_up, round_, shared_payload(message.data()));
    stream_->flush();
    throw timeout_error(call + ": " + text);
  }

  /// Rank 0 and the others may hear of the loss from here first, so it goes on as it came: who is lost, and why.
  /// Returns until when to wait for rank 0's result of the round, which may have succeeded for others.
  [[nodiscard]] deadline announce_loss(const interruption::cause& cause, const deadline& until) {
    broken_ = round_failure{kind::remote, cause.culprit, true, cause.text};
    send_shutdown_notice(cause.culprit, cause.text);
    return until.within(cause.culprit == 0 ? std::chrono::milliseconds(0) : result_limit);
  }

  /// Sends what `abort` wants to be sent; returns why this rank's calls are interrupted. Call it with `mutex_`.
  [[nodiscard]] std::optional<interruption::cause> take_notices() {
    const local_notices::taken found = notices_.take();
    if (found.abort) {
      stream_->queue(frame_type::aborted, round_, shared_payload(shutdown_notice{rank_, *found.abort}.encode()));
      stream_->flush();
    }
    return found.interrupted;
  }
  void hear_abort(const frame& got) const {
    const shutdown_notice said = shutdown_notice::decode(got.payload);
    if (aborted_) aborted_(said.culprit, said.text);
  }

  void send_shutdown_notice(int culprit, const std::string& text) {
    stream_->queue(frame_type::leave, round_, shared_payload(shutdown_notice{culprit, text}.encode()));
    stream_->flush();
  }

  secret secret_;
  process_rendezvous rendezvous_{secret_};
  int rank_;
  int size_;
  std::string root_;
  std::chrono::milliseconds peer_limit_{};
  local_notices notices_;
  std::unique_ptr<frame_stream> stream_;
  std::uint32_t round_ = 0;
  std::optional<round_failure> broken_;
  mutable std::mutex mutex_;  // guards the connection and what is known of the others
  loss_handler lost_;
  abort_handler aborted_;
  bool root_left_ = false;  ///< its connection may close
  idle_watch watch_;        // ends first
};

}  // namespace

std::shared_ptr<bootstrap> make_tcp_spoke(const unique_id& id, int rank, int size, std::chrono::milliseconds limit) {
  return std::make_shared<tcp_spoke>(id, rank, size, limit);
}

}  // namespace devcomm::host::detail
