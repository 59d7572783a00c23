/// \file unreceived_steps.hpp
/// Steps of FIFOs that were sent, and that nobody has received.
#pragma once

#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/failure.hpp>

#include "device/backend.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <span>

namespace devcomm::host::detail {

/// A record of the first FIFO with steps that are there for this rank, or that it has sent to a rank that
/// `has_departed` and has not taken them. None where sessions noted no FIFOs (`channel::fifos_note`), as they do only
/// in checked mode. *Requires* that no kernel of this rank uses `comm`. Peers may: what they have still to send or take
/// is not reported, nor is what comes after a receive whose deadline has passed. None if the device cannot be read.
/// `lsa_ranks`: world ranks of the LSA team's members.
[[nodiscard]] std::optional<failure_record> find_unreceived_steps(backend& devices, int device, const device_comm& comm,
                                                                  std::span<const int> lsa_ranks,
                                                                  const std::function<bool(int rank)>& has_departed,
                                                                  std::chrono::milliseconds limit);

}  // namespace devcomm::host::detail
