/// \file step_contracts.cuh
/// Whether both ends of a FIFO make the same calls.
///
/// In checked mode, the sender shows what call a step belongs to before it sends the step; the receiver compares it
/// with its own while it waits, as a call of another size may never send what is waited for. A slot's contract is
/// written again no sooner than the slot. Of packets, each thread that stores a flag shows, and each that loads one
/// compares: a flag is relaxed, so it orders only what its own thread has released before, for the thread that loads
/// it.
#pragma once

#include <devcomm/channel/detail/fifo_end.cuh>
#include <devcomm/detail/contract.cuh>
#include <devcomm/detail/report.cuh>

namespace devcomm::detail {

#if DEVCOMM_CHECKED

using checked_call = call_contract;

/// The call with its number at one end.
DEVCOMM_DEVICE inline call_contract numbered(call_contract call, const fifo_end& end) {
  call.root = static_cast<int32_t>(end.calls);
  return call;
}

/// Shows the call of this step. *Ordering*: releases; the step's tail or a flag of this thread follows.
DEVCOMM_DEVICE inline void show_step(const sending_end& to, uint32_t slots, const call_contract& call) {
  channel::step_contract* contract = to.contract(slots);
  store_contract(&contract->call, numbered(call, to));
  arch::check_fence<memory_order::release>();
  arch::store_check(&contract->step, uint64_t{to.step} + 1);
  arch::check_fence<memory_order::release>();
}

/// Whether the sender's call of this step is known to be another one. `arrived`: the step has arrived.
DEVCOMM_DEVICE inline bool differs(const receiving_end& from, uint32_t slots, const call_contract& call, bool arrived) {
  if (arrived) arch::check_fence<memory_order::acquire>();
  const channel::step_contract* contract = from.contract(slots);
  const uint64_t shown = arrived ? arch::load_check(&contract->step) : arch::poll_check(&contract->step);
  if (shown != uint64_t{from.step} + 1) return false;
  arch::check_fence<memory_order::acquire>();
  return !same_contract(load_contract(&contract->call), numbered(call, from));
}

/// Whether a step has arrived that belongs to a call which this end has made already.
DEVCOMM_DEVICE inline bool has_left_step(const receiving_end& from, uint32_t slots) {
  const channel::step_contract* contract = from.contract(slots);
  if (arch::load_check(&contract->step) != uint64_t{from.step} + 1) return false;
  arch::check_fence<memory_order::acquire>();
  return static_cast<int32_t>(static_cast<uint32_t>(load_contract(&contract->call).root) - from.calls) <= 0;
}

/// Leaves a record of a sender that differs, unless this rank's waits have ended already.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline status report_difference(resource_header* home, const receiving_end& from,
                                                                const wait_site& wait, uint32_t slots,
                                                                const call_contract& call) {
  if (is_aborted(home)) return status::aborted;
  const call_contract mine = numbered(call, from);
  shown_contracts shown;
  shown.my_call = &mine;
  shown.their_call = &from.contract(slots)->call;
  report(home, status::mismatch, wait.until(from.step + 1), from.step + 1, shown);
  return status::mismatch;
}

/// `status::mismatch`, and a record of it, where a step has arrived of a call that this end has made already.
DEVCOMM_DEVICE inline status find_left_step(resource_header* home, const receiving_end& from, const wait_site& wait,
                                            uint32_t slots) {
  if (!has_left_step(from, slots)) return status::success;
  return report_difference(home, from, wait, slots, call_contract::of("", 0, 0, 0));
}

/// Adds a note of these FIFOs to those of the resource window, once.
template <channel::protocol Protocol>
DEVCOMM_DEVICE void note_fifos(resource_header* home, uint64_t offset, const channel::fifo_layout<Protocol>& layout) {
  const uint64_t here = offset + layout.note();
  auto* const note = reinterpret_cast<channel::fifos_note*>(reinterpret_cast<char*>(home) + here);
  if (arch::fetch_or<memory_order::relaxed, scope::device>(&note->flags, channel::fifos_note::is_added) != 0) return;
  note->count = layout.count;
  note->slots = layout.slots;
  note->heads = offset + layout.head(0);
  note->counts = offset + layout.counts(0);
  note->contracts = offset + layout.contract(0, 0);
  note->next = arch::exchange<memory_order::relaxed, scope::device>(&home->fifos, here);
}

/// After a receive whose deadline has passed. *Requires* that the FIFOs are noted.
template <channel::protocol Protocol>
DEVCOMM_DEVICE void note_timeout(resource_header* home, uint64_t offset, const channel::fifo_layout<Protocol>& layout) {
  auto* const note = reinterpret_cast<channel::fifos_note*>(reinterpret_cast<char*>(home) + offset + layout.note());
  arch::fetch_or<memory_order::relaxed, scope::device>(&note->flags, channel::fifos_note::timed_out);
}

/// The end that a thread waits at, where it is one that is received from: a condition that ends its wait.
struct step_difference {
  const receiving_end* from;  ///< null where the wait is for credit
  uint32_t slots;
  const call_contract& call;

  DEVCOMM_DEVICE bool operator()() const { return from != nullptr && differs(*from, slots, call, false); }
  DEVCOMM_DEVICE bool arrived() const { return from != nullptr && differs(*from, slots, call, true); }
  DEVCOMM_DEVICE status report(resource_header* home, const wait_site& wait) const {
    return report_difference(home, *from, wait, slots, call);
  }
};

#else

/// Nothing is shown or compared, and nothing is passed.
struct checked_call {
  template <size_t N>
  DEVCOMM_DEVICE static constexpr checked_call of(const char (&)[N], uint64_t, uint64_t, size_t) {
    return {};
  }
};
DEVCOMM_DEVICE inline void show_step(const sending_end&, uint32_t, checked_call) {}
DEVCOMM_DEVICE constexpr bool differs(const receiving_end&, uint32_t, checked_call, bool) { return false; }
template <channel::protocol Protocol>
DEVCOMM_DEVICE constexpr void note_fifos(resource_header*, uint64_t, const channel::fifo_layout<Protocol>&) {}
template <channel::protocol Protocol>
DEVCOMM_DEVICE constexpr void note_timeout(resource_header*, uint64_t, const channel::fifo_layout<Protocol>&) {}
DEVCOMM_DEVICE constexpr status find_left_step(resource_header*, const receiving_end&, const wait_site&, uint32_t) {
  return status::success;
}
DEVCOMM_DEVICE constexpr status report_difference(resource_header*, const receiving_end&, const wait_site&, uint32_t,
                                                  checked_call) {
  return status::success;
}
struct step_difference {
  DEVCOMM_DEVICE constexpr step_difference(const receiving_end*, uint32_t, checked_call) {}
  DEVCOMM_DEVICE constexpr bool operator()() const { return false; }
  DEVCOMM_DEVICE static constexpr bool arrived() { return false; }
  DEVCOMM_DEVICE static constexpr status report(resource_header*, const wait_site&) { return status::success; }
};

#endif

}  // namespace devcomm::detail
