/// \file session_id.hpp
/// A session and the calls of its group, as those who watch over their use see them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/failure.hpp>

namespace devcomm::detail {

/// One thread's part in one session.
struct session_id {
  operation what;
  uint32_t index;      ///< which barrier or channel
  int32_t rank;        ///< world rank
  uint32_t thread;     ///< place in the group
  uint32_t threads;    ///< of the group
  const void* window;  ///< base of the resource window: one for all ranks of a process
  uint64_t offset;     ///< in a rank's resources; tells barriers and channels of one window apart
  bool once_a_launch;  ///< a launch has one session there at most
};

/// What all threads of a group call together.
enum class session_call : uint8_t { arrive, wait, sync, wait_for, agree, begin_round, end };

}  // namespace devcomm::detail
