/// \file interruption.hpp
/// Why a rank's all-gathers end, set by one thread and seen by the one that waits.
#pragma once

#include <mutex>
#include <optional>
#include <string>

namespace devcomm::host::detail {

class interruption {
 public:
  struct cause {
    int culprit;
    std::string text;
  };

  /// The first cause is kept.
  void set(int culprit, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = cause{culprit, text};
  }
  [[nodiscard]] std::optional<cause> get() const {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<cause> cause_;
};

}  // namespace devcomm::host::detail
