/// \file watchdog_settings.hpp
/// The watchdog's options from the environment.
#pragma once

#include <devcomm/host/watchdog.hpp>

#include "util/environment.hpp"

namespace devcomm::host::detail {

/// The watchdog's first options: `DEVCOMM_WATCHDOG_AFTER` and `DEVCOMM_WATCHDOG_SIGNAL`.
[[nodiscard]] watchdog_options watchdog_options_from(const environment& variables);

}  // namespace devcomm::host::detail
