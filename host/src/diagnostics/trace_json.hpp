/// \file trace_json.hpp
/// Traces in the format of Chrome's tracing and of Perfetto.
#pragma once

#include "diagnostics/trace_data.hpp"

#include <string>
#include <vector>

namespace devcomm::host::detail {

/// One process for each rank and one thread for each ring, with begin and end of each span, nested, in microseconds
/// from the first span on, on the clock of `traces[0]`. The trace and `otherData` say how many were lost.
[[nodiscard]] std::string trace_json(const std::vector<rank_trace>& traces, const std::vector<clock_offset>& offsets,
                                     const std::string& backend);

}  // namespace devcomm::host::detail
