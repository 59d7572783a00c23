/// \file watchdog.hpp
/// Who waits for whom, asked while kernels run. Needs kernels compiled with `-DDEVCOMM_WATCHDOG=1`;
/// docs/diagnosis.md has an example.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace devcomm::host {

/// For the whole process. Every report covers all of its ranks.
struct watchdog_options {
  /// Report by itself once a wait has lasted this long, and again when it has lasted twice as long, and so on;
  /// 0 reports only when asked. `DEVCOMM_WATCHDOG_AFTER` (seconds) gives the first value.
  std::chrono::milliseconds after = std::chrono::seconds(10);
  /// Report at SIGUSR1 too, also when nothing waits. What handled the signal before is called as well. A program
  /// that asked for it once keeps the handler. `DEVCOMM_WATCHDOG_SIGNAL` (0 or 1) gives the first value.
  bool on_signal = false;
  /// Takes each report, on a thread of the library's own; empty writes to stderr. *Lifetime*: may be called until the
  /// last device communicator is destroyed.
  std::function<void(const std::string&)> print;
};

/// Takes effect at once. Throws `invalid_argument` for a time below 0.
void set_watchdog(watchdog_options options);

/// A line for each wait that has gone on for more than a moment, equal ones together, with what the rank waited for
/// does itself; then who waits for whom in the end. Empty when nothing waits. Asks no device, so it returns
/// whatever kernels do. Any thread may call it.
[[nodiscard]] std::string describe_waits();

}  // namespace devcomm::host

/// Writes `describe_waits()` to stderr. For a debugger: `call devcomm_print_waits()`.
extern "C" void devcomm_print_waits() noexcept;
