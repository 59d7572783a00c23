/// \file explore.hpp
/// Every interleaving of a small program's kernels, instead of samples. Host code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace devcomm::simulator {

struct explore_options {
  std::uint64_t executions = 1000000;  ///< that are run at most
  std::uint64_t steps = 20000;         ///< of one execution at most
  /// Leaves out executions that differ only in the order of steps that do not touch the same memory; false runs them
  /// all, to compare with.
  bool reduction = true;
  /// Where the schedule of the first failure is written; empty for nowhere.
  std::string schedule_file = "devcomm-schedule.txt";
};

struct exploration_result {
  std::uint64_t executions = 0;  ///< that were run
  std::uint64_t redundant = 0;   ///< of which equal to an earlier one in the order of all that touches the same memory
  std::uint64_t longest = 0;     ///< steps of the longest one
  bool complete = false;         ///< no interleaving is left, and none failed
  /// What failed first, in which execution, and how to repeat it; also why the exploration ended early. Empty when
  /// neither is so.
  std::string failure;
};

/// Calls `body` repeatedly, each time with another order of the atomics and strong loads and stores of its kernels,
/// and of what the network does, until no order is left, one fails, or a limit is reached.
///
/// `body` launches kernels, waits for them, and throws when a result is wrong. A launch that fails, a deadlock, and, in
/// programs with the race detector, a new report count as failures, unless `body` calls `clear_failure` for one that
/// is expected. *Requires* that it starts from the same state each time and does the same whenever its kernels
/// do, in memory that was allocated before, or that it allocates by `cudaMalloc` and the like (it is freed when the
/// next execution begins, and found at the same addresses; windows are not); that it does not ask whether kernels are
/// done without waiting; and that no other host thread uses the CUDA runtime meanwhile, but those that `body` starts
/// and joins.
///
/// A step of a thread goes from one such operation to the next. A wait of devcomm polls all its words in one step. An
/// unsuccessful poll is not a step, nor is a second load in a row by the same instruction that finds the same value.
/// The lanes of a warp that wait for lines together count as one thread meanwhile. Time passes only when every thread
/// waits. Stores are visible at once, in one order (sequential consistency). docs/simulator.md says what this proves.
///
/// The steps of the network's proxies, between ranks of this process, are chosen as those of threads are. Each
/// execution finds contexts, and the resource windows of their device communicators, as they were as `explore` began;
/// `body` sees to all other memory, windows too. *Requires* that device communicators with contexts were made before.
///
/// With `DEVCOMM_SIM_REPLAY` set, calls `body` once, by the schedule of that file. Throws `std::logic_error` when
/// stores are delayed, when kernels run, or from within `body`.
[[nodiscard]] exploration_result explore(const explore_options& options, const std::function<void()>& body);

}  // namespace devcomm::simulator
