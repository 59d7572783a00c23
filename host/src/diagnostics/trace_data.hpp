/// \file trace_data.hpp
/// The spans that ranks have recorded, as the host reads and writes them.
#pragma once

#include <devcomm/diagnostics/trace.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// What one warp has recorded, in the order in which the spans ended.
struct trace_ring {
  std::uint32_t block = 0;
  std::uint32_t warp = 0;
  std::uint32_t lost = 0;  ///< older spans that later ones have overwritten
  std::vector<trace_record> spans;
};

struct rank_trace {
  int rank = 0;
  std::uint32_t unplaced = 0;     ///< spans of blocks and warps for which there was no room
  std::vector<trace_ring> rings;  ///< those in which something was recorded
};

/// `bytes` is a copy of `room`, as kernels left it.
[[nodiscard]] rank_trace read_trace(int rank, const trace_rings& room, std::span<const std::byte> bytes);

/// By how much a rank's clock is ahead of the reference rank's.
struct clock_offset {
  std::int64_t nanoseconds = 0;
  std::int64_t accuracy = 0;  ///< the true offset differs by no more; -1 when nothing is known
};

/// Offsets of all clocks to that of `traces[0]`. Two ranks that met at a barrier were both there between their
/// arrivals and their departures: each barrier bounds their offset from both sides, all barriers together bound it
/// best, and the middle is taken. A rank that never met the reference is found through others.
[[nodiscard]] std::vector<clock_offset> align_clocks(const std::vector<rank_trace>& traces);

/// Steps of the clocks, in nanoseconds.
[[nodiscard]] std::uint64_t clock_resolution(const std::vector<rank_trace>& traces);

/// The format of Chrome's tracing and of Perfetto (`trace_json.cpp`): one process for each rank and one thread for each
/// ring, with begin and end of each span, nested, in microseconds from the first span on, on the clock of `traces[0]`.
/// The trace and `otherData` say how many were lost.
[[nodiscard]] std::string trace_json(const std::vector<rank_trace>& traces, const std::vector<clock_offset>& offsets,
                                     const std::string& backend);

}  // namespace devcomm::host::detail
