/// \file poll.cuh
/// The one loop every wait goes through.
#pragma once

#include <devcomm/detail/arch/arch.cuh>
#include <devcomm/detail/arch/observed.hpp>
#include <devcomm/detail/movers.cuh>
#include <devcomm/detail/wait_note.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>

namespace devcomm::detail {

/// How long a wait may take.
struct deadline {
  bool own;         ///< given by the caller: then running out of it is no failure
  uint64_t budget;  ///< nanoseconds, when `own`; otherwise it is the communicator's timeout

  DEVCOMM_DEVICE uint64_t nanoseconds(const resource_header& home) const { return own ? budget : home.comm.timeout; }
};

/// How a long wait goes on.
struct wait_progress {
  uint64_t start;   ///< global time of the first check; 0 before it
  uint32_t rounds;  ///< of looks until the next check
  status outcome;   ///< `status::success` while the wait goes on
};

/// Looks at the abort word and the clock. A long wait sleeps here, to leave the memory system to others.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline wait_progress check_wait(const resource_header* home, deadline limit,
                                                                wait_progress progress) {
  constexpr uint64_t patience = 200000;  // nanoseconds of busy looking
  constexpr uint32_t nap = 500;          // nanoseconds
  if (arch::load<memory_order::relaxed, scope::system>(&home->comm.failures->abort) != 0) {
    progress.outcome = status::aborted;
    return progress;
  }
  const uint64_t now = arch::global_time();
  if (progress.start == 0) progress.start = now;
  const uint64_t waited = now - progress.start;
  if (waited >= limit.nanoseconds(*home)) progress.outcome = status::timeout;
  progress.rounds = waited > patience ? 1 : arch::rounds_per_check;
  if (waited > patience) arch::sleep(nap);
  return progress;
}

/// Calls `look`, which returns whether what is waited for has happened, until it does. When `limit` is
/// reached or the waits of its device communicator are aborted first, calls `fail` with the reason. `label` returns the
/// `wait_label`; only the simulator and the watchdog call it. `Movers` are the threads that look together: `look`
/// returns the same to all of them.
///
/// The loop is as tight as it can be, as a few cycles more delay the moment at which an arrival is seen by a
/// whole look: looks come in rounds of `Unroll`, and the checks, once in `arch::rounds_per_check` rounds, are
/// kept out of line.
template <int Unroll = arch::looks_per_round, class Movers = one_thread, class Label, class Look, class Fail>
DEVCOMM_DEVICE void poll(resource_header* home, deadline limit, Label label, Look look, Fail fail) {
  arch::wait_scope waiting(label, [=] { return &home->comm.failures->abort; });
  wait_progress progress{0, arch::rounds_per_check, status::success};
  wait_note note(home);
  for (;;) {
    DEVCOMM_UNROLL
    for (int i = 0; i < Unroll; ++i) {
      if (look()) return;
      waiting.pause();
    }
    if (--progress.rounds != 0) continue;
    progress = check_wait(home, limit, progress);
    progress = Movers::choose(progress.outcome != status::success, progress);
    if constexpr (arch::rounds_per_check != 1) progress.rounds = Movers::choose(progress.rounds == 1, progress.rounds);
    note.renew(label, progress.start);
    if (progress.outcome != status::success) return fail(progress.outcome);
  }
}

}  // namespace devcomm::detail
