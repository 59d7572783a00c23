/// \file resource_header.hpp
/// What a rank's resource window starts with: what sessions need of their communicator on rare paths.
#pragma once

#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace.hpp>
#include <devcomm/diagnostics/wait_table.hpp>
#include <devcomm/requirements.hpp>

namespace devcomm {

/// Start of every rank's resource window.
///
/// Rare paths read the communicator here: a kernel parameter that any path of a loop uses is fetched on
/// every turn of it.
struct resource_header {
  device_comm comm;   ///< as the host made it: without a launch key
  uint32_t failures;  ///< failed waits of this rank so far; hands out slots of the failure log
  /// Nonzero ends every wait of this rank: the bits `abort_by_*`. In device memory, as all
  /// waiting threads read it; what the host stores in `failure_log::abort` is copied here by one of them.
  uint32_t abort;
  uint64_t host_turn;  ///< when a waiting thread last read host memory, in units of `arch::host_interval`
  wait_table* waits;   ///< host memory that kernels can write; null where waits are not watched
  wait_slots* slots;   ///< this rank's
  trace_rings trace;   ///< in this window
  window network;      ///< the network memory; without bytes where none was asked for
  uint64_t fifos;  ///< in checked mode, offset in this window of the `channel::fifos_note` that was added last; or 0
};

static_assert(sizeof(resource_header) <= resource_header_bytes, "requirements start after it");

}  // namespace devcomm
