/// \file report.cuh
/// Leaves a failed wait where the host finds it.
#pragma once

#include <devcomm/detail/arch.cuh>
#include <devcomm/device_comm.hpp>

namespace devcomm::detail {

/// Writes `record` into the failure log, if there is room. *Ordering*: the record is complete when
/// the host reads `ready` as 1 with acquire.
DEVCOMM_DEVICE inline void report(const device_comm& comm, failure_record record) {
  auto* header = reinterpret_cast<resource_header*>(comm.resources.local);
  const uint32_t place = arch::fetch_add<memory_order::relaxed, scope::device>(&header->failures, 1u);
  if (place >= failure_log::capacity) return;
  record.ready = 0;
  record.rank = comm.rank;
  record.block = arch::block_rank();
  record.thread = arch::thread_rank();
  failure_record* slot = &comm.failures->records[place];
  *slot = record;
  arch::store<memory_order::release, scope::system>(&slot->ready, 1u);
}

/// Ends every wait of this rank with `status::aborted`.
DEVCOMM_DEVICE inline void abort_waits(const device_comm& comm) {
  arch::store<memory_order::relaxed, scope::system>(&comm.failures->abort, abort_by_failure);
}

}  // namespace devcomm::detail
