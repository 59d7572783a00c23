/// \file process_rendezvous.hpp
/// Says to race detectors what a round orders among ranks that are threads of one process: they see locks, and no
/// sockets.
#pragma once

#include "bootstrap/tcp/reserved_port.hpp"

#include <iterator>
#include <map>
#include <memory>
#include <mutex>

namespace devcomm::host::detail {

/// Shared by the ranks of a job that are in this process.
class process_rendezvous {
 public:
  explicit process_rendezvous(const job_secret& job) {
    static std::mutex guard;
    static std::map<job_secret, std::weak_ptr<std::mutex>> all;
    const std::lock_guard lock(guard);
    for (auto it = all.begin(); it != all.end();) it = it->second.expired() ? all.erase(it) : std::next(it);
    mutex_ = all[job].lock();
    if (!mutex_) all[job] = mutex_ = std::make_shared<std::mutex>();
  }

  /// A round. All ranks have begun it before one ends it: what each did before, the others see afterwards.
  class round {
   public:
    explicit round(const process_rendezvous& at) : mutex_(*at.mutex_) { pass(); }
    round(const round&) = delete;
    round& operator=(const round&) = delete;
    ~round() { pass(); }

   private:
    void pass() { const std::lock_guard lock(mutex_); }
    std::mutex& mutex_;
  };

 private:
  std::shared_ptr<std::mutex> mutex_;
};

}  // namespace devcomm::host::detail
