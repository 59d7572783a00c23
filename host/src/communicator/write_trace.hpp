/// \file write_trace.hpp
/// Gathers the spans of all ranks.
#pragma once

#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/trace.hpp>

#include <string>

namespace devcomm::host::detail {

struct rank_context;

/// *Collective*. Rank 0 writes the trace of all ranks to `path`.
void write_trace(rank_context& context, const std::string& call, const device_comm& comm, const trace_rings& room,
                 const std::string& path);

/// *Collective*. Deletes the recorded spans.
void clear_trace(rank_context& context, const std::string& call, const device_comm& comm, const trace_rings& room);

}  // namespace devcomm::host::detail
