/// \file trace_span.cuh
/// Spans of time in a kernel, for a trace of all ranks. docs/tracing.md has an example.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/diagnostics/trace.hpp>
#include <devcomm/group.cuh>

namespace devcomm {

#if DEVCOMM_TRACE

namespace detail {

/// Writes one span into the ring of the calling warp. Called by its lane 0. Launches that run at the same time share
/// rings, so each span takes its slot by an atomic addition.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline void write_span(resource_header* home, uint64_t begin, uint64_t end,
                                                       uint64_t name_low, uint64_t name_high) {
  const trace_rings rings = home->trace;
  char* base = home->comm.resources.local + rings.offset;
  const uint32_t block = arch::block_rank();
  const uint32_t warp = arch::thread_rank() / arch::warp_threads;
  if (block >= rings.blocks || warp >= rings.warps) {
    arch::fetch_add<memory_order::relaxed, scope::device>(reinterpret_cast<uint32_t*>(base), 1u);
    return;
  }
  const uint32_t ring = block * rings.warps + warp;
  auto* count = reinterpret_cast<uint32_t*>(base + rings.count(ring));
  const uint32_t written = arch::fetch_add<memory_order::relaxed, scope::device>(count, 1u);
  *reinterpret_cast<trace_record*>(base + rings.record(ring, written % rings.spans)) = {begin, end, name_low,
                                                                                        name_high};
}

}  // namespace detail

/// From its making to its end, one span of the calling group, as its thread 0 sees time. Does not synchronize the
/// group: for the time of all its threads, let the span contain a `sync()`.
///
/// Recorded where `tracing` was asked for, and where thread 0 of the group is lane 0 of a warp, as it is
/// for blocks and for most groups. Spans of one warp must nest. A ring that is full goes on over its oldest spans;
/// how many are lost is said in the trace. Empty unless compiled with `DEVCOMM_TRACE`.
class trace_span {
 public:
  template <class Group>
  DEVCOMM_DEVICE trace_span(const Group& group, const device_comm& comm, span_name name)
      : trace_span(group, reinterpret_cast<resource_header*>(comm.resources.local), name) {}
  /// The same, for sessions.
  template <class Group>
  DEVCOMM_DEVICE trace_span(const Group& group, resource_header* home, span_name name)
      : home_(home), low_(name.low), high_(name.high) {
    static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
    if (group.thread_rank() == 0 && arch::lane() == 0 && home_->trace.spans != 0) begin_ = arch::time_stamp();
  }
  trace_span(const trace_span&) = delete;
  trace_span& operator=(const trace_span&) = delete;
  DEVCOMM_DEVICE ~trace_span() {
    if (begin_ != 0) detail::write_span(home_, begin_, arch::time_stamp(), low_, high_);
  }

 private:
  resource_header* home_;
  uint64_t low_;
  uint64_t high_;
  uint64_t begin_ = 0;  // 0 where this thread records nothing
};

#else

class [[maybe_unused]] trace_span {
 public:
  template <class Group>
  DEVCOMM_DEVICE trace_span(const Group&, const device_comm&, span_name) {
    static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  }
  template <class Group>
  DEVCOMM_DEVICE trace_span(const Group&, resource_header*, span_name) {}
  trace_span(const trace_span&) = delete;
  trace_span& operator=(const trace_span&) = delete;
};

#endif

}  // namespace devcomm
