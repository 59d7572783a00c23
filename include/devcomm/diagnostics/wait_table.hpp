/// \file wait_table.hpp
/// What waiting threads show of their waits while a kernel runs, see docs/diagnosis.md.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/diagnostics/failure.hpp>

namespace devcomm {

/// One wait that is going on. Peers are world ranks; times are of `arch::global_time` on the waiting rank.
struct wait_record {
  uint32_t number;  ///< of the wait, never 0; stored last, with release. 0 when the slot is free
  operation what;
  uint32_t index;  ///< which barrier, mailbox or signal
  int32_t peer;    ///< -1: no particular one
  uint32_t block;
  uint32_t thread;
  uint64_t expected;    ///< epoch or value waited for
  uint64_t seen;        ///< epoch or value last read
  uint64_t since;       ///< nanoseconds, when the wait was found to be no short one
  uint64_t noted;       ///< nanoseconds, when this was written
  uint32_t peer_index;  ///< the peer's; another one only between groups of one rank
  /// 0 for a wait for a rank. For a group of this rank, 1 more than the offset of their mailboxes' handle, in
  /// lines of 128 bytes.
  uint32_t groups;
  wait_condition condition = wait_condition::epoch;
  uint32_t window = 0;  ///< as `failure_record::window`
};

static_assert(sizeof(wait_record) == 72, "read by the host library");

/// Lives in pinned host memory, one a device communicator whose waits are watched; read by the host while
/// kernels run. Waits for which there is no slot are counted.
struct wait_table {
  static constexpr uint32_t capacity = 1024;

  uint32_t full;  ///< 1 once a wait found no slot
  uint32_t reserved[15];
  wait_record records[capacity];
};

/// Device memory of the same device communicator: who holds which slot.
struct wait_slots {
  uint32_t numbers;                        ///< waits noted so far
  uint32_t full;                           ///< waits that found no slot; the host reports the first one
  uint32_t holders[wait_table::capacity];  ///< 1 for the wait that has it; more for a moment, while others try
};

}  // namespace devcomm
