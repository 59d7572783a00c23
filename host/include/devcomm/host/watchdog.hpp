/// \file watchdog.hpp
/// Reports which ranks wait for which while kernels run. Needs kernels compiled with `-DDEVCOMM_WATCHDOG=1`;
/// docs/diagnosis.md has an example.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace devcomm::host {

/// For the whole process. Every report covers all of its ranks.
struct watchdog_options {
  /// Report once a wait has lasted this long, and again each time that has doubled; 0 reports only on request.
  /// `DEVCOMM_WATCHDOG_AFTER` (seconds) gives the first value.
  std::chrono::milliseconds after = std::chrono::seconds(10);
  /// Report on SIGUSR1 too, even when nothing waits. A handler that was installed before is called as well. The handler
  /// stays installed. `DEVCOMM_WATCHDOG_SIGNAL` (0 or 1) gives the first value.
  bool on_signal = false;
  /// Takes each report, on a thread of the library's own; empty writes to stderr. *Lifetime*: may be called until the
  /// last device communicator is destroyed.
  std::function<void(const std::string&)> print;
};

/// Takes effect at once. Throws `invalid_argument` for a time below 0.
void set_watchdog(watchdog_options options);

/// A line for each group of equal waits that have lasted more than a moment, with what the awaited rank does itself;
/// then which ranks the others wait for in the end. Empty when nothing waits. Makes no call to a device, so it returns
/// whatever kernels do. Any thread may call it.
[[nodiscard]] std::string describe_waits();

}  // namespace devcomm::host

/// Writes `describe_waits()` to stderr. For a debugger: `call devcomm_print_waits()`.
extern "C" void devcomm_print_waits() noexcept;
