/// \file own_host.hpp
/// Ranks of one machine that count as ranks on several hosts.
#pragma once

#include <sched.h>

namespace devcomm_test {

/// Moves this process, which has one thread, into a network namespace of its own; its connections stay. False where the
/// system does not let it.
[[nodiscard]] inline bool enter_own_host() {
  return ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

}  // namespace devcomm_test
