/// \file local_notices.hpp
/// What other threads of a rank have for the thread that waits on its connection: that the rank aborts, or that its
/// calls are interrupted.
#pragma once

#include "bootstrap/interruption.hpp"
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

/// A notice is stored before the descriptor becomes readable, and `take` reads the descriptor before it fetches
/// notices: whoever polls the descriptor and then calls `take` misses none.
class local_notices {
 public:
  struct taken {
    std::optional<std::string> abort;                ///< once for each `abort`
    std::optional<interruption::cause> interrupted;  ///< from the first `interrupt` on
  };

  local_notices() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  /// False: the system has no more descriptors.
  [[nodiscard]] bool good() const noexcept { return static_cast<bool>(wake_); }
  [[nodiscard]] int descriptor() const noexcept { return wake_.get(); }

  void abort(const std::string& text) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      abort_ = text;
    } catch (const std::exception&) {
      return;  // out of memory
    }
    wake();
  }
  void interrupt(int culprit, const std::string& text) {
    interrupted_.set(culprit, text);
    wake();
  }

  /// The descriptor is readable no more.
  [[nodiscard]] taken take() {
    std::uint64_t times = 0;
    static_cast<void>(!::read(wake_.get(), &times, sizeof times));  // nothing where nobody woke it
    const std::lock_guard lock(mutex_);
    return {std::exchange(abort_, std::nullopt), interrupted_.get()};
  }
  [[nodiscard]] std::optional<interruption::cause> interrupted() const { return interrupted_.get(); }

 private:
  void wake() const noexcept {
    const std::uint64_t one = 1;
    // The counter is far from its limit, so this cannot fail.
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  }

  unique_fd wake_;
  std::mutex mutex_;
  std::optional<std::string> abort_;
  interruption interrupted_;
};

}  // namespace devcomm::host::detail
