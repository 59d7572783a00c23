/// \file observed.hpp
/// What device code reports to the seam about its sessions and waits, for the simulator and the watchdog. GPUs ignore
/// it.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/operation.hpp>

namespace devcomm::detail {

/// One thread's part in one session.
struct session_id {
  operation what;
  uint32_t index;      ///< which barrier or mailbox
  int32_t rank;        ///< world rank
  uint32_t thread;     ///< rank in the group
  uint32_t threads;    ///< of the group
  const void* window;  ///< base of the resource window: one for all ranks of a process
  uint64_t offset;     ///< in a rank's resources; identifies the barrier or mailbox in its window
  bool once_a_launch;  ///< a launch has one session there at most
};

/// What all threads of a group call together.
enum class session_call : uint8_t { arrive, wait, sync, wait_for, agree, begin_round, transfer, end };

/// What a thread waits for, in the terms of the call that it made. From here failure records, the watchdog and the
/// simulator have it.
struct wait_site {
  operation what;
  uint32_t index;     ///< which barrier, mailbox, signal or FIFO; a word's in `window`
  int32_t peer;       ///< who is waited for, a number in teams; -1: no particular rank
  uint64_t expected;  ///< epoch, step or value waited for; 0 where a predicate decides
  wait_condition condition = wait_condition::epoch;
  uint32_t window = 0;          ///< as `failure_record::window`
  uint32_t peer_index = index;  ///< the peer's own index
  uint64_t offset = 0;          ///< as `session_id::offset`
  uint32_t groups = 0;          ///< as `wait_record::groups`: not 0 where the peer is a group of the same rank

  /// The same wait for another epoch, step or value.
  DEVCOMM_DEVICE wait_site until(uint64_t value) const {
    wait_site changed = *this;
    changed.expected = value;
    return changed;
  }
};

/// A wait that goes on. `poll` makes `peer` a world rank before others read it.
struct wait_label : wait_site {
  int32_t rank;       ///< world rank of the waiting thread
  uint64_t budget;    ///< nanoseconds the wait may take from when the label is made
  bool has_deadline;  ///< the caller gave a deadline of its own, so waiting forever is no deadlock
  uint64_t seen = 0;  ///< epoch or value last read
};

}  // namespace devcomm::detail
