/// \file poll.cuh
/// The one loop every wait goes through.
#pragma once

#include <devcomm/detail/arch.cuh>
#include <devcomm/device_comm.hpp>

namespace devcomm::detail {

/// Calls `look`, which returns whether what is waited for has happened, until it does, the budget of
/// `label` is spent, or this rank's waits are aborted.
///
/// The abort word and the clock are looked at once in `arch::polls_per_check` looks, and the looks
/// between are unrolled: a few cycles more in the loop delay the moment at which an arrival is seen by a
/// whole look. A long wait sleeps between looks to leave the memory system to others.
template <class Look>
DEVCOMM_DEVICE status poll(const device_comm& comm, const wait_label& label, Look look) {
  constexpr uint64_t patience = 200000;  // nanoseconds of busy looking
  constexpr uint32_t nap = 500;          // nanoseconds
  arch::wait_scope waiting(label);
  uint64_t start = 0;
  for (uint32_t looks = arch::polls_per_check;;) {
    DEVCOMM_UNROLL_BY(8)
    for (uint32_t i = 0; i < looks; ++i) {
      if (look()) return status::success;
      waiting.pause();
    }
    if (arch::load<memory_order::relaxed, scope::system>(&comm.failures->abort) != 0) return status::aborted;
    const uint64_t now = arch::global_time();
    if (start == 0) start = now;
    if (now - start >= label.budget) return status::timeout;
    if (now - start > patience) {
      looks = 1;
      arch::sleep(nap);
    }
  }
}

}  // namespace devcomm::detail
