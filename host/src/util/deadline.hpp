/// \file deadline.hpp
/// A point in time that a blocking step must not outlive.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

namespace devcomm::host::detail {

/// Fixed when made, so that the steps of one call share one limit.
class deadline {
 public:
  using clock = std::chrono::steady_clock;

  explicit deadline(std::chrono::milliseconds limit)
      : limit_(std::clamp(limit, std::chrono::milliseconds(0), longest())), when_(clock::now() + limit_) {}

  [[nodiscard]] clock::time_point when() const noexcept { return when_; }
  [[nodiscard]] bool passed() const noexcept { return clock::now() >= when_; }

  /// What is left, rounded up, at least 0.
  [[nodiscard]] std::chrono::milliseconds left() const noexcept {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(when_ - clock::now()), std::chrono::milliseconds(0));
  }
  /// Milliseconds left, at most `most`; what `poll` takes.
  [[nodiscard]] int poll_milliseconds(std::chrono::milliseconds most = std::chrono::hours(1)) const noexcept {
    return static_cast<int>(std::min(left(), most).count());
  }

  /// The sooner of this one and `limit` from now.
  [[nodiscard]] deadline within(std::chrono::milliseconds limit) const {
    deadline other(limit);
    return other.when_ < when_ ? other : *this;
  }

  /// For the first of `parts` that are tried one after the other: none takes what the others need.
  [[nodiscard]] deadline share_of(std::size_t parts) const {
    return within(left() / static_cast<int>(std::max<std::size_t>(parts, 1)));
  }

  /// The limit as text: "1500 ms", "60 s".
  [[nodiscard]] std::string limit_text() const {
    const auto count = limit_.count();
    return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
  }

 private:
  /// Keeps the sum with any clock's value in range.
  static constexpr std::chrono::milliseconds longest() { return std::chrono::hours(24 * 365 * 10); }

  std::chrono::milliseconds limit_;
  clock::time_point when_;
};

}  // namespace devcomm::host::detail
