/// \file poll.cuh
/// The one loop every wait goes through.
#pragma once

#include <devcomm/detail/arch.cuh>
#include <devcomm/device_comm.hpp>

namespace devcomm::detail {

/// Calls `look`, which returns whether what is waited for has happened, until it does, the budget of
/// `label` is spent, or this rank's waits are aborted.
///
/// The abort word and the clock are looked at once in `arch::polls_per_check` looks, so the loop runs
/// at the speed of its load; a long wait sleeps between looks to leave the memory system to others.
template <class Look>
DEVCOMM_DEVICE status poll(const device_comm& comm, const wait_label& label, Look look) {
  if (look()) return status::success;
  constexpr uint64_t patience = 200000;  // nanoseconds of busy looking
  constexpr uint32_t nap = 500;          // nanoseconds
  arch::wait_scope waiting(label);
  uint64_t start = 0;
  for (uint32_t looks = 1;; ++looks) {
    waiting.pause();
    if (look()) return status::success;
    if (looks % arch::polls_per_check != 0) continue;
    if (arch::load<memory_order::relaxed, scope::system>(&comm.failures->abort) != 0) return status::aborted;
    const uint64_t now = arch::global_time();
    if (start == 0) start = now;
    if (now - start >= label.budget) return status::timeout;
    if (now - start > patience) {
      looks = arch::polls_per_check - 1;  // sleeping, so check at every look
      arch::sleep(nap);
    }
  }
}

}  // namespace devcomm::detail
