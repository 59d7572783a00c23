/// \file idle_watch.hpp
/// A thread that polls a connection while nobody else does.
#pragma once

#include "util/process_stamp.hpp"
#include "util/unique_fd.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace devcomm::host::detail {

/// Calls `poll` when the descriptor has something to read, but for the time of a `busy`. What `poll` returns is called
/// next, as the last that the thread does with its owner for then: it may end that. In a forked child, which has no
/// such thread, it does nothing.
class idle_watch {
 public:
  using report = std::function<void()>;

  idle_watch() = default;
  ~idle_watch();
  idle_watch(const idle_watch&) = delete;
  idle_watch& operator=(const idle_watch&) = delete;

  /// Once. When `poll` or a report throws, the watch ends, and `failed` is called with the reason. `poll` is also
  /// called when `wake`, if not -1, has something to read, at any time.
  void start(int descriptor, std::function<report()> poll, std::function<report(const std::string& why)> failed,
             int wake = -1);
  [[nodiscard]] bool started() const noexcept { return thread_ != nullptr; }
  /// The epoll instance that has the descriptor, or -1. Who closes the descriptor takes it out before: the kernel does
  /// so only when no forked child has a copy any more.
  [[nodiscard]] int poller() const noexcept { return poller_.get(); }

  /// For as long as it lives, the caller reads the descriptor itself.
  class busy {
   public:
    explicit busy(idle_watch& watch) : watch_(watch) { watch_.wait_for(0); }
    ~busy();
    busy(const busy&) = delete;
    busy& operator=(const busy&) = delete;

   private:
    idle_watch& watch_;
  };

 private:
  void wait_for(std::uint32_t events) noexcept;

  process_stamp made_in_;
  int descriptor_ = -1;
  unique_fd poller_;
  unique_fd stop_;
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<std::thread> thread_;
};

}  // namespace devcomm::host::detail
