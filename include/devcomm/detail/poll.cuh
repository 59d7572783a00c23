/// \file poll.cuh
/// The one loop every wait goes through.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/arch/observed.hpp>
#include <devcomm/assert.hpp>
#include <devcomm/detail/wait_note.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/group.cuh>

namespace devcomm::detail {

// Lane groups: the lanes of a group that send, receive and poll together. They also stop together: when one of them
// times out or is aborted, the wait of all ends after the same poll.

/// A thread by itself.
struct one_thread {
  static constexpr uint32_t threads = 1;

  template <class Group>
  DEVCOMM_DEVICE static void check(const Group&) {}
  DEVCOMM_DEVICE static void join() {}
  /// Whether this is the one that acts for all.
  DEVCOMM_DEVICE static bool leads() { return true; }
  /// Whether one of them passes true.
  DEVCOMM_DEVICE static bool any(bool predicate) { return predicate; }
  /// Not 0 where one of them passes such a word.
  DEVCOMM_DEVICE static uint32_t any_of(uint32_t word) { return word; }
  /// For all of them the `value` of one that passes true for `chosen`; where none does, each its own.
  template <class T>
  DEVCOMM_DEVICE static T choose(bool, const T& value) {
    return value;
  }
};

/// All lanes of a warp, which call each function together. Orders no memory.
struct whole_warp {
  static constexpr uint32_t threads = arch::warp_threads;

  template <class Group>
  DEVCOMM_DEVICE static void check([[maybe_unused]] const Group& group) {
    DEVCOMM_ASSERT(group.size() % arch::warp_threads == 0 && group.thread_rank() % arch::warp_threads == arch::lane(),
                   "packs that warps move together need a group of whole warps: give it a multiple of 32 threads");
  }
  /// They go on together.
  DEVCOMM_DEVICE static void join() { arch::join_warp(); }
  DEVCOMM_DEVICE static bool leads() { return arch::lane() == 0; }
  DEVCOMM_DEVICE static bool any(bool predicate) { return arch::any(arch::full_mask, predicate); }
  DEVCOMM_DEVICE static uint32_t any_of(uint32_t word) { return any(word != 0) ? 1 : 0; }
  template <class T>
  DEVCOMM_DEVICE static T choose(bool chosen, const T& value) {
    const uint32_t lanes = arch::ballot(arch::full_mask, chosen);
    if (lanes == 0) return value;
    uint32_t lowest = 0;
    while ((lanes >> lowest & 1) == 0) ++lowest;
    return shuffle(arch::full_mask, value, lowest);
  }
};

/// How long a wait may take.
struct deadline {
  bool own;         ///< given by the caller: then running out of it is no failure
  uint64_t budget;  ///< nanoseconds, when `own`; otherwise it is the communicator's timeout

  DEVCOMM_DEVICE uint64_t nanoseconds(const resource_header& home) const { return own ? budget : home.comm.timeout; }
};

DEVCOMM_DEVICE constexpr deadline within(nanoseconds limit) { return {true, limit.count}; }
/// No deadline of the caller's own: after the communicator's timeout the wait has failed.
DEVCOMM_DEVICE constexpr deadline communicator_timeout() { return {false, 0}; }

/// The label of a wait that has seen `seen` so far.
DEVCOMM_DEVICE inline wait_label label_of(const resource_header* home, const wait_site& wait, deadline limit,
                                          uint64_t seen) {
  return {wait, home->comm.rank, limit.nanoseconds(*home), limit.own, seen};
}

/// How a long wait goes on.
struct wait_progress {
  uint64_t start;   ///< global time of the first check, even; 0 before it. 1 more once the peer is known to be gone
  uint32_t rounds;  ///< of polls until the next check
  status outcome;   ///< `status::success` while the wait goes on
};

/// Whether the waits of this device communicator on this rank have been ended: by a failed wait, or by a failure that
/// an earlier session saw.
DEVCOMM_DEVICE inline bool is_aborted(const resource_header* home) {
  return arch::load<memory_order::relaxed, scope::device>(&home->abort) != 0;
}

/// Ends the waits of this device communicator on this rank. *Ordering*: the abort word is set, for the whole GPU,
/// before anything that this thread does afterwards.
DEVCOMM_DEVICE inline void end_waits(resource_header* home, uint32_t why) {
  arch::fetch_or<memory_order::relaxed, scope::device>(&home->abort, why);
  arch::fence<memory_order::acq_rel, scope::device>();
}

/// What the host has to say to a wait.
struct host_news {
  bool aborted;   ///< the waits have been ended
  bool departed;  ///< the peer has destroyed its device communicator
};

/// Reads the host's words when it is this thread's turn, and copies an abort into device memory. Of all threads that
/// wait on this rank one at a time has a turn, see `arch::host_turn`, so that words across PCIe are read a few thousand
/// times a second at most, however many threads wait.
DEVCOMM_DEVICE inline host_news read_host_words(resource_header* home, uint64_t now, uint64_t waited, int32_t peer) {
  if (!arch::host_turn(&home->host_turn, now, waited)) return {};
  failure_log* const log = home->comm.failures;
  // Both in one read: `abort` is the lower half.
  const auto words = arch::load<memory_order::relaxed, scope::system>(reinterpret_cast<const uint64_t*>(&log->abort));
  if (const auto word = static_cast<uint32_t>(words); word != 0) {
    end_waits(home, word);
    return {true, false};
  }
  if (words >> 32 == 0) return {};
  const int32_t rank = home->comm.world_rank_of(peer);
  if (rank < 0) return {};
  const uint32_t bits = arch::load<memory_order::acquire, scope::system>(log->departed_word(rank));
  return {false, (bits >> rank % 32 & 1) != 0};
}

/// Reads the abort word and the clock. A wait longer than the spin limit sleeps here, to leave the memory system to
/// others. A wait for a `peer` that is gone has one more round: what the peer stored before is there.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline wait_progress check_wait(resource_header* home, deadline limit,
                                                                wait_progress progress, int32_t peer) {
  constexpr uint64_t spin_limit = 200000;  // nanoseconds of polling without a pause
  constexpr uint32_t backoff = 500;        // nanoseconds
  if (is_aborted(home)) {
    progress.outcome = status::aborted;
    return progress;
  }
  if ((progress.start & 1) != 0) {
    end_waits(home, abort_by_departure);
    progress.outcome = status::aborted;
    return progress;
  }
  const uint64_t now = arch::global_time();
  if (progress.start == 0 || now < progress.start) progress.start = now & ~uint64_t{1};  // the clock may step back
  const uint64_t waited = now - progress.start;
  const bool is_over = waited >= limit.nanoseconds(*home);
  // A caller that waits by short deadlines again and again learns of an abort too.
  const host_news news = read_host_words(home, now, is_over ? ~uint64_t{0} : waited, peer);
  if (news.aborted) {
    progress.outcome = status::aborted;
  } else if (news.departed) {
    progress.start |= 1;
    progress.rounds = 1;
    return progress;
  } else if (is_over) {
    progress.outcome = status::timeout;
  }
  progress.rounds = waited > spin_limit ? 1 : arch::rounds_per_check;
  if (waited > spin_limit) arch::sleep(backoff);
  return progress;
}

/// Calls `ready`, which returns whether what is waited for has happened, until it returns true. When `limit` is
/// reached, the waits of the device communicator are aborted or the peer is gone first, calls `fail` with the reason.
/// `make_label` returns the `wait_label`, with the peer's number in teams; checks use the peer, and the rest only the
/// simulator and the watchdog. The threads of a `LaneGroup` poll together: `ready` returns the same to all of them.
///
/// The loop is as short as possible, since a few more cycles between polls can delay the moment at which an arrival is
/// seen by a whole poll. Polls come in rounds of `Unroll`; the checks, once in `arch::rounds_per_check` rounds, are
/// out of line.
///
/// *Invariant*: the traffic of a waiting thread stays in the L2 cache of its own GPU. What it polls, the abort word,
/// the clock and what else a check reads are local; host memory is read by one thread of a device communicator at a
/// time, once in `arch::host_interval`, and by waits only that have lasted for `arch::first_host_turn` or are over;
/// notes for the watchdog and failure records are written there by waits that have long been slow, or have failed.
/// Waits for the network's proxy load its words from there, see `wait_for_proxy`.
/// Thousands of threads that read a word across PCIe delay each other, and the arrival that they wait for, by
/// milliseconds.
template <int Unroll = arch::polls_per_round, class LaneGroup = one_thread, class Label, class Ready, class Fail>
DEVCOMM_DEVICE void poll(resource_header* home, deadline limit, Label make_label, Ready ready, Fail fail) {
  const auto label = [&] {
    wait_label of_ranks = make_label();
    of_ranks.peer = home->comm.world_rank_of(of_ranks.peer);
    return of_ranks;
  };
  arch::wait_scope waiting(
      label, [=] { return &home->abort; }, [=] { return home->comm.failures; });
  wait_progress progress{0, arch::rounds_per_check, status::success};
  wait_note note(home);
  for (;;) {
    DEVCOMM_UNROLL
    for (int i = 0; i < Unroll; ++i) {
      if (ready()) return;
      waiting.pause();
    }
    if (--progress.rounds != 0) continue;
    progress = check_wait(home, limit, progress, waiting.describe(make_label).peer);
    progress = LaneGroup::choose(progress.outcome != status::success, progress);
    if constexpr (arch::rounds_per_check != 1)
      progress.rounds = LaneGroup::choose(progress.rounds == 1, progress.rounds);
    note.renew(label, progress.start);
    if constexpr (DEVCOMM_WATCHDOG != 0) LaneGroup::join();  // lanes with a slot have gone another way
    if (progress.outcome != status::success) return fail(progress.outcome);
  }
}

}  // namespace devcomm::detail
