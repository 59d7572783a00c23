#include <devcomm/host/bootstrap.hpp>

#include "util/environment.hpp"

namespace devcomm::host {

std::chrono::milliseconds default_bootstrap_limit() {
  return detail::seconds_variable(detail::process_variables(), "DEVCOMM_BOOTSTRAP_TIMEOUT", {.most = 1e6},
                                  "a number of seconds above 0 and up to 1000000")
      .value_or(std::chrono::seconds(60));
}

}  // namespace devcomm::host
