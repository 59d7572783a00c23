/// \file status.hpp
/// How a wait ended, and the span of time it may take.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm {

/// Outcome of a waiting call, the same for every thread of the group that waited.
enum class status : uint32_t {
  success = 0,    ///< what was waited for has happened
  timeout = 1,    ///< the deadline passed first; the epoch did not advance, the call may be repeated
  aborted = 2,    ///< the host, an earlier failure on this rank, or the end of the peer ended all waits
  mismatch = 3,   ///< a peer launched with another grid, group or key (checked launches)
  truncated = 4,  ///< more data arrived than fits: what fits was stored. Not a failure of the session
  departed = 5,   ///< in failure records: aborted, as the peer had destroyed its device communicator
};

/// English name of a status, for messages.
DEVCOMM_HOST_DEVICE constexpr const char* to_string(status s) {
  switch (s) {
    case status::success: return "success";
    case status::timeout: return "timeout";
    case status::aborted: return "aborted";
    case status::mismatch: return "mismatch";
    case status::truncated: return "truncated";
    case status::departed: return "departed";
  }
  return "unknown status";
}

/// A span of time in nanoseconds; the unit of every deadline in device code.
struct nanoseconds {
  uint64_t count;
};

DEVCOMM_HOST_DEVICE constexpr nanoseconds microseconds(uint64_t n) { return {n * 1000u}; }
DEVCOMM_HOST_DEVICE constexpr nanoseconds milliseconds(uint64_t n) { return {n * 1000000u}; }

}  // namespace devcomm
