/// \file window_table.hpp
/// The windows of one rank by their ids, for the network's proxies, which get them by id.
#pragma once

#include "util/deadline.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// Every member may be called from any thread.
class window_table : public std::enable_shared_from_this<window_table> {
 public:
  /// Keeps a window's memory from being freed while it lives, for copies that are under way. They wait for nobody: who
  /// frees the window waits for them.
  class hold {
   public:
    hold() = default;
    explicit hold(std::shared_ptr<std::atomic<int>> count) : count_(std::move(count)) { ++*count_; }
    hold(hold&& other) noexcept = default;
    hold& operator=(hold&& other) noexcept {
      std::swap(count_, other.count_);
      return *this;
    }
    ~hold() {
      if (count_) --*count_;
    }

   private:
    std::shared_ptr<std::atomic<int>> count_;
  };

  struct entry {
    char* local;
    std::size_t bytes;
    std::string name;        ///< "window 'weights'"
    bool on_device = false;  ///< threads of the host do not reach it
    std::shared_ptr<std::atomic<int>> holds = std::make_shared<std::atomic<int>>(0);
  };

  class watcher {
   public:
    virtual ~watcher() = default;
    virtual void added(std::uint32_t id) noexcept = 0;
    /// The window is no longer in the table. Called before its memory is freed.
    virtual void removed(std::uint32_t id) noexcept = 0;
  };
  /// Also calls `added` for the windows that are there.
  void add_watcher(watcher& one) {
    const std::lock_guard lock(watchers_mutex_);
    watchers_.push_back(&one);
    std::vector<std::uint32_t> ids;
    {
      const std::lock_guard entries_lock(mutex_);
      for (const auto& [id, what] : entries_) ids.push_back(id);
    }
    for (const std::uint32_t id : ids) one.added(id);
  }
  /// On return it is not called any more.
  void remove_watcher(watcher& one) noexcept {
    const std::lock_guard lock(watchers_mutex_);
    std::erase(watchers_, &one);
  }

  /// Keeps a window in the table while it lives.
  class listing {
   public:
    listing(std::shared_ptr<window_table> table, std::uint32_t id) : table_(std::move(table)), id_(id) {}
    ~listing() { table_->remove(id_); }
    listing(const listing&) = delete;
    listing& operator=(const listing&) = delete;

   private:
    std::shared_ptr<window_table> table_;
    std::uint32_t id_;
  };

  [[nodiscard]] std::unique_ptr<listing> list(std::uint32_t id, entry what) {
    auto made = std::make_unique<listing>(shared_from_this(), id);
    // Watchers lock the other mutex inside of their own.
    const std::lock_guard lock(watchers_mutex_);
    {
      const std::lock_guard entries_lock(mutex_);
      entries_.insert_or_assign(id, std::move(what));
    }
    for (watcher* const each : watchers_) each->added(id);
    return made;
  }
  /// Calls `use` with the entry of `id`, which stays until it returns. False where there is none.
  template <class Use>
  [[nodiscard]] bool with(std::uint32_t id, const Use& use) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return false;
    use(found->second);
    return true;
  }

 private:
  void remove(std::uint32_t id) {
    std::shared_ptr<std::atomic<int>> holds;
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.find(id);
      if (found != entries_.end()) holds = found->second.holds;
      entries_.erase(id);
    }
    // Only a device that has failed does not end a copy.
    const deadline limit(std::chrono::seconds(2));
    while (holds && *holds != 0 && !limit.passed()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    // Not with the other mutex, which watchers lock inside of their own.
    const std::lock_guard lock(watchers_mutex_);
    for (watcher* const each : watchers_) each->removed(id);
  }

  std::mutex watchers_mutex_;
  std::vector<watcher*> watchers_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, entry> entries_;
};

}  // namespace devcomm::host::detail
