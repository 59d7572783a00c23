/// \file abort_notice.hpp
/// That this rank aborted, told by one thread and sent by the one that has the connection.
#pragma once

#include "util/unique_fd.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace devcomm::host::detail {

/// `tell` sets it before the descriptor is readable, and `take` reads the descriptor before it looks: whoever polls the
/// descriptor and calls `take` misses none.
class abort_notice {
 public:
  abort_notice() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  /// False: the system has no more descriptors.
  [[nodiscard]] bool good() const noexcept { return static_cast<bool>(wake_); }
  [[nodiscard]] int descriptor() const noexcept { return wake_.get(); }

  void tell(const std::string& text) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      text_ = text;
    } catch (const std::exception&) {
      return;  // out of memory
    }
    wake();
  }
  /// Makes the descriptor readable.
  void wake() const noexcept {
    const std::uint64_t one = 1;
    // The counter is far from its limit, so this cannot fail.
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  }

  /// What to send, once for each `tell`. The descriptor is readable no more.
  [[nodiscard]] std::optional<std::string> take() {
    std::uint64_t times = 0;
    static_cast<void>(!::read(wake_.get(), &times, sizeof times));  // nothing where nobody woke it
    const std::lock_guard lock(mutex_);
    return std::exchange(text_, std::nullopt);
  }

 private:
  unique_fd wake_;
  std::mutex mutex_;
  std::optional<std::string> text_;
};

}  // namespace devcomm::host::detail
