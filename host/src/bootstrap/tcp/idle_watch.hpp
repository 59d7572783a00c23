/// \file idle_watch.hpp
/// A thread that looks at a connection while nobody else does.
#pragma once

#include "util/unique_fd.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

namespace devcomm::host::detail {

/// Calls `look` when the descriptor has something to read, but for the time of a `busy`. What `look` returns is called
/// next, as the last that the thread does with its owner for then: it may end that.
class idle_watch {
 public:
  using report = std::function<void()>;

  idle_watch() = default;
  ~idle_watch();
  idle_watch(const idle_watch&) = delete;
  idle_watch& operator=(const idle_watch&) = delete;

  /// Once.
  void start(int descriptor, std::function<report()> look);
  [[nodiscard]] bool started() const noexcept { return thread_.joinable(); }

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

  int descriptor_ = -1;
  unique_fd poller_;
  unique_fd stop_;
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
  std::thread thread_;
};

}  // namespace devcomm::host::detail
