/// \file report.cuh
/// What a failed wait leaves behind.
#pragma once

#include <devcomm/detail/arch/arch.cuh>
#include <devcomm/detail/contract.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>

namespace devcomm::detail {

/// What a failed wait waited for.
struct awaited {
  operation what;
  uint32_t index;               ///< which barrier, mailbox or signal
  int32_t peer;                 ///< world rank
  uint32_t expected;            ///< epoch waited for
  uint32_t seen;                ///< epoch last read
  uint32_t peer_index = index;  ///< the peer's; another one only in a local team
  bool is_local = false;        ///< the peer is another group of this rank
};

/// Ends every wait of this device communicator on this rank, and writes a record into the failure log if there
/// is room; a wait that an earlier failure has ended leaves none. `mine` and `theirs` are the contracts of a
/// mismatch, or null, as are those of calls. *Ordering*: the record is complete when the host reads `ready` as 1 with
/// acquire.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline void report(resource_header* home, status outcome, awaited wait,
                                                   const launch_contract* mine = nullptr,
                                                   const launch_contract* theirs = nullptr,
                                                   const call_contract* my_call = nullptr,
                                                   const call_contract* their_call = nullptr) {
  if (outcome != status::aborted) {
    arch::fetch_or<memory_order::relaxed, scope::device>(&home->abort, abort_by_failure);
  } else if ((arch::load<memory_order::relaxed, scope::device>(&home->abort) & abort_by_failure) != 0) {
    return;  // a consequence of a failure that is on record
  }
  const uint32_t place = arch::fetch_add<memory_order::relaxed, scope::device>(&home->failures, 1u);
  if (place >= failure_log::capacity) return;
  failure_record record{};
  record.outcome = outcome;
  record.what = wait.what;
  record.index = wait.index;
  record.rank = home->comm.rank;
  record.peer = wait.peer;
  record.block = arch::block_rank();
  record.thread = arch::thread_rank();
  record.expected = wait.expected;
  record.seen = wait.seen;
  record.peer_index = wait.peer_index;
  record.among_groups = wait.is_local ? 1 : 0;
  if (mine != nullptr) record.mine = load_contract(mine);
  if (theirs != nullptr) record.theirs = load_contract(theirs);
  if (my_call != nullptr) record.my_call = load_contract(my_call);
  if (their_call != nullptr) record.their_call = load_contract(their_call);
  failure_record* slot = &home->comm.failures->records[place];
  *slot = record;
  arch::store<memory_order::release, scope::system>(&slot->ready, 1u);
}

}  // namespace devcomm::detail
