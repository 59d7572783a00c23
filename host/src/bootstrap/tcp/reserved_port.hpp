/// \file reserved_port.hpp
/// Ports that `unique_id::create` reserved and rank 0 has not taken yet.
#pragma once

#include "bootstrap/ports.hpp"
#include "util/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace devcomm::host::detail {

using job_secret = std::array<std::byte, 16>;

/// Reserves a free port, of `ports` where given, for rank 0 of the job with this secret.
///
/// The socket is bound and does not listen. The kernel gives the port to no other program, while a
/// rank 0 in another process of this host can bind and listen there beside it. At most 16 reservations
/// are kept; the oldest is dropped first.
[[nodiscard]] std::uint16_t reserve_port(const std::string& host, const job_secret& secret,
                                         const std::optional<port_range>& ports);

/// The job's reserved socket if this very process made it, else none.
[[nodiscard]] unique_fd take_reserved_port(const job_secret& secret);

}  // namespace devcomm::host::detail
