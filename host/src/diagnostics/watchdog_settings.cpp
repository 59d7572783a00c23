#include "diagnostics/watchdog_settings.hpp"

namespace devcomm::host::detail {

watchdog_options watchdog_options_from(const environment& variables) {
  watchdog_options options;
  if (const auto after = seconds_variable(variables, "DEVCOMM_WATCHDOG_AFTER", {.zero_allowed = true},
                                          "a number of seconds from 0 (only when asked) to 1000000000")) {
    options.after = *after;
  }
  if (const auto on_signal = flag_variable(variables, "DEVCOMM_WATCHDOG_SIGNAL")) options.on_signal = *on_signal;
  return options;
}

}  // namespace devcomm::host::detail
