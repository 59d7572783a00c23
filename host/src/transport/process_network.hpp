/// \file process_network.hpp
/// The network between the ranks of one process: what a proxy needs of the others.
#pragma once

#include "rank/window_table.hpp"
#include "transport/queue.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// One for each device communicator and process. Every member may be called from any thread.
class process_network {
 public:
  /// Where a rank is reached.
  struct endpoint {
    int device;
    std::shared_ptr<const window_table> windows;
    std::vector<network_queue*> queues;  ///< of its contexts
  };

  void join(int rank, endpoint reached) {
    const std::lock_guard lock(mutex_);
    endpoints_.insert_or_assign(rank, std::move(reached));
  }
  /// On return nobody uses the endpoint of `rank`.
  void leave(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    endpoints_.erase(rank);
  }
  /// Of the ranks that have joined.
  [[nodiscard]] std::set<int> devices() {
    const std::lock_guard lock(mutex_);
    std::set<int> all;
    for (const auto& [rank, reached] : endpoints_) all.insert(reached.device);
    return all;
  }
  /// Calls `use` with the endpoint of `rank`, one caller at a time. False where there is none.
  template <class Use>
  [[nodiscard]] bool with(int rank, const Use& use) {
    const std::lock_guard lock(mutex_);
    const auto found = endpoints_.find(rank);
    if (found == endpoints_.end()) return false;
    use(found->second);
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<int, endpoint> endpoints_;
};

}  // namespace devcomm::host::detail
