/// \file unreceived_steps.hpp
/// Steps of FIFOs that were sent, and that nobody has received.
#pragma once

#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/failure.hpp>

#include "device/backend.hpp"

#include <chrono>
#include <optional>

namespace devcomm::host::detail {

/// A record of the first FIFO that this rank has sent more steps into than its receiver has taken; none where sessions
/// noted no FIFOs (`channel::fifos_note`), as they do only in checked mode. *Requires* that no kernel uses `comm`.
[[nodiscard]] std::optional<failure_record> find_unreceived_steps(backend& devices, int device, const device_comm& comm,
                                                                  std::chrono::milliseconds limit);

}  // namespace devcomm::host::detail
