/// \file quiet_thread.hpp
/// Threads of the library's own, which leave signals to the program's.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace devcomm::host::detail {

/// A thread that blocks all signals: handlers run on threads of the program, and `sigwait` there gets what it waits
/// for.
template <class Work>
[[nodiscard]] std::thread quiet_thread(Work&& work) {
  class all_blocked {
   public:
    all_blocked() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~all_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    all_blocked(const all_blocked&) = delete;
    all_blocked& operator=(const all_blocked&) = delete;

   private:
    sigset_t before_{};
  };
  const all_blocked inherited;
  return std::thread(std::forward<Work>(work));
}

}  // namespace devcomm::host::detail
