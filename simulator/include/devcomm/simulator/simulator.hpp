/// \file simulator.hpp
/// Settings of the simulation and what is known of its failures. Host code.
///
/// Settings count from the next launch on; the number of devices and of multiprocessors must be set
/// before the first call of the CUDA runtime. Each has an environment variable that gives its first
/// value; see docs/simulator.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace devcomm::simulator {

/// A kernel broke a precondition. Ends its launch; the next synchronization returns `cudaErrorAssert`, as does every
/// call on that device from then on, and `last_failure()` has the text.
class misuse : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Simulated GPUs; 8, or as many as there are ranks, unless `DEVCOMM_SIM_DEVICES` says otherwise: then ranks share
/// them.
void set_device_count(int devices);
/// Multiprocessors of each GPU; 32 unless `DEVCOMM_SIM_MULTIPROCESSORS` says otherwise.
void set_multiprocessors(int count);

/// Restarts the sequence of scheduling choices; 1 unless `DEVCOMM_SIM_SEED` says otherwise. Call it
/// while no kernel runs.
void set_seed(std::uint64_t seed);
[[nodiscard]] std::uint64_t seed();
/// Selects the kind of schedule, and restarts the sequence of choices: `random`, `pct[:DEPTH[:LENGTH]]`,
/// `slow_rank`, `slow_block`, `starve_warp`, or `mixed`, in which the seed chooses among them
/// (`DEVCOMM_SIM_SCHEDULE`, random; see docs/simulator.md). Throws `std::invalid_argument` for anything else.
/// Call it while no kernel runs.
void set_schedule(std::string_view text);
[[nodiscard]] std::string schedule();

/// Delays stores by up to `steps` scheduling steps for threads that they do not happen before; 0: not at all
/// (`DEVCOMM_SIM_STORE_DELAY`). Restarts the sequence of choices. Throws `std::logic_error` unless the
/// kernels are compiled with `DEVCOMM_SANITIZE=race`. Call it while no kernel runs.
void set_store_delay(std::uint64_t steps);
[[nodiscard]] std::uint64_t store_delay();

/// Whether the simulated GPUs have an NVLink switch, and in which order an access to a multicast address reaches the
/// members: the seed's, or that of the ranks, so that sums are the same in every run.
enum class multicast { none, in_any_order, in_rank_order };
/// `in_any_order` unless `DEVCOMM_SIM_MULTICAST` is `rank_order` or `none`. Counts from the next communicator and the
/// next access on.
void set_multicast(multicast kind);

/// Which GPUs load and store each other's memory, as groups: "0-2/3-6", "0,2/1,3"; empty for all (`DEVCOMM_SIM_PEERS`).
/// Throws `std::invalid_argument` for anything else. Counts from the next communicator on.
void set_peers(std::string_view groups);

/// The PTX version that kernels seem to be built for, as `cudaFuncGetAttributes` returns it: 90 is 9.0. `launch` keeps
/// the answer for a kernel, so set it before the kernel's first launch.
void set_ptx_version(int version);

/// Bytes of stack of each simulated thread (`DEVCOMM_SIM_STACK`).
void set_stack_bytes(std::size_t bytes);
/// A thread that runs this long without reaching a preemption point ends the program, which names it; 0 waits forever
/// (`DEVCOMM_SIM_WATCHDOG_MS`, 30 s).
void set_watchdog(std::chrono::milliseconds limit);
/// How long waiting kernels are left alone while a host thread outside the runtime might still help
/// them, before they count as deadlocked (`DEVCOMM_SIM_GRACE_MS`, 10 s).
void set_grace(std::chrono::milliseconds limit);
/// Kernels run while a host thread waits for some of them. When none does for this long, they run
/// anyway (`DEVCOMM_SIM_BACKGROUND_MS`, 500 ms).
void set_background_start(std::chrono::milliseconds delay);

/// Each deadlock is also drawn into this file, which ends in `.svg` (a picture) or `.dot` (for Graphviz); empty for
/// none. The next one overwrites it (`DEVCOMM_SIM_DEADLOCK_PICTURE`).
void set_deadlock_picture(const std::string& path);

/// Text of the latest failure: a broken precondition, a deadlock, or an exception, and the launches
/// that could not end because of it. Empty when there was none since `clear_failure`.
///
/// Both take all failures as seen: devices that they broke are usable again, and the program may end well. For tests
/// that provoke failures.
[[nodiscard]] std::string last_failure();
void clear_failure();

/// Data races reported so far, one for each pair of source locations; 0 in a program without the race
/// detector (`DEVCOMM_SANITIZE=race`). A program that ends with some has exit status 66.
[[nodiscard]] std::uint64_t race_reports();
/// Text of the latest.
[[nodiscard]] std::string last_race();
/// Forgets all reports, so that each may come again.
void clear_races();
/// Exit status of a program with reports, 0 for its own (`DEVCOMM_SIM_RACE_EXIT`).
void set_race_exit_status(int status);
/// Whether the race detector is there.
[[nodiscard]] bool detects_races();

struct statistics {
  std::uint64_t steps;       ///< scheduling choices so far
  std::uint64_t switches;    ///< of which another thread of the same block went on
  std::uint64_t handoffs;    ///< of which another block went on
  std::uint64_t trace_hash;  ///< of all choices since the seed was set: equal for equal schedules
  std::uint64_t time;        ///< simulated nanoseconds
  /// Atomic loads, stores and changes of pinned host memory by kernels. On GPUs each crosses PCIe: a wait that makes
  /// many of them slows down all others.
  std::uint64_t host_accesses;
};
[[nodiscard]] statistics get_statistics();

}  // namespace devcomm::simulator
