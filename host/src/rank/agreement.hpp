/// \file agreement.hpp
/// Collective steps that end the same way on every rank.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include "device/backend.hpp"
#include "diagnostics/abort_state.hpp"
#include "util/call_text.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// Runs local work that may fail and exchanges its result with its outcome in one all-gather, so that
/// one rank's error never leaves the others waiting.
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

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::chrono::milliseconds limit() const noexcept { return limit_; }
  /// The rank that the bootstrap found gone in a call of this or one `with_limit`, or -1.
  [[nodiscard]] int lost_rank() const noexcept { return *lost_; }
  /// The same ranks with another limit.
  [[nodiscard]] agreement with_limit(std::chrono::milliseconds limit) const {
    agreement other(*this);
    other.limit_ = limit;
    return other;
  }

  /// The `mine` of all ranks, as they are: what ranks must know of each other before they can agree on anything.
  [[nodiscard]] std::vector<std::byte> gather_plain(const std::string& call, std::span<const std::byte> mine) const;

  /// `work` fills this rank's part; the result holds the parts of all ranks, rank 0's first. `bytes`
  /// is the same on all ranks.
  [[nodiscard]] std::vector<std::byte> gather_bytes(const std::string& call, std::size_t bytes,
                                                    const std::function<void(std::span<std::byte>)>& work) const;

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
  /// The error of the bootstrap, or the loss behind it, which says more; `start` goes in front of that.
  [[nodiscard]] std::exception_ptr note_loss(const std::exception_ptr& loss, const std::string& start) const;

  std::shared_ptr<bootstrap> ranks_;
  observing_port& devices_;
  std::shared_ptr<abort_state> aborts_;
  std::shared_ptr<int> lost_ = std::make_shared<int>(-1);
  std::chrono::milliseconds limit_;
  int rank_;
  int size_;
};

}  // namespace devcomm::host::detail
