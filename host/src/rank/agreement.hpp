/// \file agreement.hpp
/// Collective steps that end the same way on every rank.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include "device/backend.hpp"
#include "diagnostics/abort_state.hpp"
#include "util/call_text.hpp"
#include "util/process_stamp.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// A name for the ranks that give the same text.
[[nodiscard]] bootstrap::group_name name_of_group(std::string_view text);

/// Runs local work that may fail and exchanges its result with its outcome in one step, so that one rank's error never
/// leaves the others waiting. Only after a failure a second step carries its text.
///
/// *Collective*: every step. When work failed anywhere, every rank throws: a rank whose own work
/// failed that error, with the call and its rank in front; the others `remote_error` naming the
/// culprit with its text.
class agreement {
 public:
  /// Says to `devices` when a thread waits for other ranks.
  agreement(std::shared_ptr<bootstrap> ranks, observing_port& devices, std::chrono::milliseconds limit);

  /// From here on a loss that `aborts` hears of ends every step, also one that waits.
  void end_with(const std::shared_ptr<abort_state>& aborts);

  /// Losses of ranks for which `elsewhere` holds, those on other hosts, and aborts of all reach `aborts` also between
  /// steps.
  void watch(const std::shared_ptr<abort_state>& aborts, std::function<bool(int rank)> elsewhere);
  /// Notifies the ranks that watch that this one aborted, as `why` says. From any thread.
  void abort(const std::string& why) const noexcept { ranks_->abort(why); }
  /// This rank ends: normally (`culprit` -1), or because `culprit` failed, as `why` says.
  void leave(int culprit, const std::string& why) noexcept { ranks_->leave(culprit, why); }

  /// Whether this is the process that made it, and no forked child.
  [[nodiscard]] bool in_own_process() const noexcept { return made_in_.here(); }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::chrono::milliseconds limit() const noexcept { return limit_; }
  /// For work in a step that waits itself: the other ranks still wait for this one then, and get its error.
  [[nodiscard]] std::chrono::milliseconds limit_of_work() const noexcept { return limit_ / 2; }
  /// The bootstrap's.
  [[nodiscard]] std::string local_address() const { return ranks_->local_address(); }
  [[nodiscard]] std::optional<bootstrap::secret> derive_secret(std::span<const std::byte> label) const {
    return ranks_->derive_secret(label);
  }
  /// The rank that the bootstrap found gone in a call of this or one `with_limit`, or -1.
  [[nodiscard]] int lost_rank() const noexcept { return *lost_; }
  /// What the latest step that ranks did not finish together ended with; empty where a later one was finished.
  [[nodiscard]] const std::string& failed_step() const noexcept { return *failed_step_; }
  /// The same ranks with another limit.
  [[nodiscard]] agreement with_limit(std::chrono::milliseconds limit) const {
    agreement other(*this);
    other.limit_ = limit;
    return other;
  }

  /// The `mine` of all ranks, as they are: what ranks exchange before they can agree on anything.
  [[nodiscard]] std::vector<std::byte> gather_plain(const std::string& call, std::span<const std::byte> mine) const;

  /// `work` fills this rank's part; the result holds the parts of all ranks, rank 0's first. `bytes`
  /// is the same on all ranks.
  [[nodiscard]] std::vector<std::byte> gather_bytes(const std::string& call, std::size_t bytes,
                                                    const std::function<void(std::span<std::byte>)>& work) const;

  using group_name = bootstrap::group_name;
  struct notes_and_group {
    std::vector<std::byte> notes;
    bootstrap::group_parts group;
  };
  /// `work` fills this rank's note, which goes to all ranks, and its part, which goes to those for which it returns the
  /// same name.
  [[nodiscard]] notes_and_group gather_group_bytes(
      const std::string& call, std::size_t note_bytes, std::size_t bytes,
      const std::function<group_name(std::span<std::byte> note, std::span<std::byte> mine)>& work) const;

  /// The parts of a group, ascending by rank.
  template <class Part>
  struct group_of {
    std::vector<int> ranks;
    std::vector<Part> parts;

    /// As elements `rank` of a list of all ranks, whose others have the value that a new `Part` has.
    [[nodiscard]] std::vector<Part> spread(int size) const {
      std::vector<Part> all(static_cast<std::size_t>(size));
      for (std::size_t i = 0; i < ranks.size(); ++i) all[static_cast<std::size_t>(ranks[i])] = parts[i];
      return all;
    }
  };

  /// `work()` returns this rank's part, a trivially copyable value, which the ranks get that give the same `name`.
  template <class Work>
  [[nodiscard]] auto gather_group(const std::string& call, const group_name& name, Work&& work) const {
    return gather_notes_and_group(call, name, [&] { return std::pair(char{0}, work()); }).second;
  }

  /// `work()` returns a note for all ranks, and a part for those that give the same `name`: the result has the notes of
  /// all, and the group.
  template <class Work>
  [[nodiscard]] auto gather_notes_and_group(const std::string& call, const group_name& name, Work&& work) const {
    using note = typename std::invoke_result_t<Work>::first_type;
    using part = typename std::invoke_result_t<Work>::second_type;
    static_assert(std::is_trivially_copyable_v<note> && std::is_trivially_copyable_v<part>,
                  "travel between processes as bytes");
    const auto found =
        gather_group_bytes(call, sizeof(note), sizeof(part), [&](std::span<std::byte> said, std::span<std::byte> mine) {
          const auto value = work();
          std::memcpy(said.data(), &value.first, sizeof(note));
          std::memcpy(mine.data(), &value.second, sizeof(part));
          return name;
        });
    std::pair<std::vector<note>, group_of<part>> result;
    result.first.resize(static_cast<std::size_t>(size_));
    std::memcpy(static_cast<void*>(result.first.data()), found.notes.data(), found.notes.size());
    result.second.ranks = found.group.ranks;
    result.second.parts.resize(found.group.ranks.size());
    std::memcpy(static_cast<void*>(result.second.parts.data()), found.group.parts.data(), found.group.parts.size());
    return result;
  }

  /// `work()` returns this rank's part, a trivially copyable value.
  template <class Work>
  [[nodiscard]] auto gather(const std::string& call, Work&& work) const {
    using part = std::invoke_result_t<Work>;
    static_assert(std::is_trivially_copyable_v<part>, "travels between processes as bytes");
    const auto bytes = gather_bytes(call, sizeof(part), [&](std::span<std::byte> mine) {
      const part value = work();
      std::memcpy(mine.data(), &value, sizeof(part));
    });
    std::vector<part> all(static_cast<std::size_t>(size_));
    std::memcpy(static_cast<void*>(all.data()), bytes.data(), bytes.size());
    return all;
  }

  /// `work()` returns nothing.
  template <class Work>
  void together(const std::string& call, Work&& work) const {
    static_cast<void>(gather_bytes(call, 0, [&](std::span<std::byte>) { work(); }));
  }

 private:
  /// Throws in a forked child, whose bytes would mix with its parent's; `start` goes in front.
  void require_own_process(const std::string& start) const;
  struct verdict;

  /// This rank's verdict after `work`, whose error goes to `failure`.
  [[nodiscard]] verdict judge(const std::string& call, const std::string& start, std::exception_ptr& failure,
                              const std::function<void()>& work) const;
  /// `exchange` on the bootstrap; returns the error with which it ended.
  [[nodiscard]] std::exception_ptr in_round(const std::string& start, const std::function<void()>& exchange) const;
  /// *Collective*: the texts of all ranks, at most 503 letters of each; returns the error with which that ended.
  [[nodiscard]] std::exception_ptr gather_texts(const std::string& start, const std::string& mine,
                                                std::vector<std::string>& all) const;
  /// *Collective*: throws when ranks are in different calls, and says which; else `loss`, if there is one.
  void require_one_call(const std::string& call, const std::string& start, const std::exception_ptr& loss) const;
  /// Throws `failure`, or else `loss`, where there is a loss; *collective* where parts differed in size.
  void require_no_loss(const std::string& call, const std::string& start, const std::exception_ptr& failure,
                       const std::exception_ptr& loss) const;
  /// *Collective*: takes the verdicts off the notes of all ranks, of `bytes` each without, and throws when one reports
  /// a failure, or is of another call.
  [[nodiscard]] std::vector<std::byte> split_notes(const std::string& call, const std::string& start,
                                                   std::span<const std::byte> all, std::size_t bytes,
                                                   const std::exception_ptr& failure) const;
  /// *Collective*: throws when one of `verdicts` reports a failure; `failure` is this rank's own.
  void require_success(const std::string& start, std::span<const verdict> verdicts,
                       const std::exception_ptr& failure) const;
  /// The error of the bootstrap, or the loss behind it, which says more; `start` goes in front of that.
  [[nodiscard]] std::exception_ptr note_loss(const std::exception_ptr& loss, const std::string& start) const;

  std::shared_ptr<bootstrap> ranks_;
  observing_port& devices_;
  std::shared_ptr<abort_state> aborts_;
  std::shared_ptr<int> lost_ = std::make_shared<int>(-1);
  std::shared_ptr<std::string> failed_step_ = std::make_shared<std::string>();
  std::chrono::milliseconds limit_;
  int rank_;
  int size_;
  process_stamp made_in_;
};

}  // namespace devcomm::host::detail
