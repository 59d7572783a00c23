/// \file report.cuh
/// What a failed wait leaves behind.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/detail/contract.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>

namespace devcomm::detail {

/// The contracts of a mismatch, as both ranks showed them; null where there are none.
struct shown_contracts {
  const launch_contract* mine = nullptr;
  const launch_contract* theirs = nullptr;
  const call_contract* my_call = nullptr;  ///< in the calling thread's own memory
  const call_contract* their_call = nullptr;
};

/// The slot of the failure log for a wait that failed with `outcome`, which it has, or null where it gets none. Ends
/// every wait of this device communicator on this rank.
///
/// *Ordering*: the abort word is set, for the whole GPU, before anything that this thread does afterwards: a session
/// that learns of the failure by any way, or follows it, reads the word as set and never arrives.
DEVCOMM_DEVICE inline failure_record* take_failure_slot(resource_header* home, status outcome) {
  if (outcome != status::aborted) {
    end_waits(home, abort_by_failure);
  } else {
    const uint32_t why = arch::load<memory_order::relaxed, scope::device>(&home->abort);
    if ((why & abort_by_failure) != 0) return nullptr;  // a consequence of a failure that is on record
    if ((why & abort_by_departure) != 0) outcome = status::departed;
  }
  const uint32_t index = arch::fetch_add<memory_order::relaxed, scope::device>(&home->failures, 1u);
  if (index >= failure_log::capacity) return nullptr;
  failure_record* const slot = &home->comm.failures->records[index];
  slot->outcome = outcome;
  return slot;
}

/// Hands a record to the host, which reads `ready` all the while: nothing else stores that word. A slot is used once,
/// so what is not set in it is zero.
DEVCOMM_DEVICE inline void publish(failure_record& slot) {
  arch::store<memory_order::release, scope::system>(&slot.ready, 1u);
}

DEVCOMM_DEVICE inline void write_failure(failure_record& record, const resource_header* home, const wait_site& wait,
                                         uint64_t seen, const shown_contracts& shown) {
  record.what = wait.what;
  record.index = wait.index;
  record.rank = home->comm.rank;
  record.peer = home->comm.world_rank_of(wait.peer);
  record.block = arch::block_rank();
  record.thread = arch::thread_rank();
  record.expected = wait.expected;
  record.seen = seen;
  record.condition = wait.condition;
  record.window = wait.window;
  record.peer_index = wait.peer_index;
  record.among_groups = wait.groups != 0 ? 1 : 0;
  if (shown.mine != nullptr) record.mine = load_contract(shown.mine);
  if (shown.theirs != nullptr) record.theirs = load_contract(shown.theirs);
  if (shown.my_call != nullptr) record.my_call = *shown.my_call;
  if (shown.their_call != nullptr) record.their_call = load_contract(shown.their_call);
  publish(record);
}

/// Ends every wait of this device communicator on this rank, and writes a record into the failure log if there
/// is room; a wait that an earlier failure has ended leaves none. `seen` is the epoch or value that was read last.
/// *Ordering*: the record is complete when the host reads `ready` as 1 with acquire.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline void report(resource_header* home, status outcome, wait_site wait, uint64_t seen,
                                                   shown_contracts shown = {}) {
  failure_record* const slot = take_failure_slot(home, outcome);
  if (slot != nullptr) write_failure(*slot, home, wait, seen, shown);
}

/// Of a group that has a part of a warp, where whole warps are needed. Its rank is its peer, its size the contract's.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline void report_part_of_warp(resource_header* home, operation what, uint32_t index,
                                                                uint32_t threads) {
  failure_record* const slot = take_failure_slot(home, status::mismatch);
  if (slot == nullptr) return;
  slot->mine.group_threads = threads;
  write_failure(*slot, home, {what, index, home->comm.rank, 0}, 0, {});
}

}  // namespace devcomm::detail
