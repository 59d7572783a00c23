/// \file wait_label.hpp
/// What a waiting thread waits for, in the terms of the call it made.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/failure.hpp>

namespace devcomm::detail {

struct wait_label {
  operation what;
  uint32_t index;               ///< which barrier, channel or signal
  int32_t rank;                 ///< world rank of the waiting thread
  int32_t peer;                 ///< world rank waited for
  uint64_t expected;            ///< epoch waited for
  uint64_t budget;              ///< nanoseconds the wait may take from when the label is made
  bool has_deadline;            ///< the caller gave a deadline of its own, so waiting forever is no deadlock
  uint64_t seen = 0;            ///< epoch last read
  uint32_t peer_index = index;  ///< the peer's; another one only between groups of one rank
  uint32_t groups = 0;          ///< as `wait_record::groups`
  uint64_t offset = 0;          ///< as `session_id::offset`
};

}  // namespace devcomm::detail
