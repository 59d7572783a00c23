/// \file wait_note.cuh
/// The entry of a long wait in the table that the host reads.
///
/// The table lies in host memory, so that a debugger can read it while the GPU is stopped. Only a wait that has lasted
/// for `arch::noted_after` writes to it, and again each time the wait has doubled in length: the peer that is missing
/// may have changed, or a slot have become free. All of a rank's waits together write at most
/// `wait_table::capacity` entries each time.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/arch/observed.hpp>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>

namespace devcomm::detail {

#if DEVCOMM_WATCHDOG

inline constexpr uint32_t no_slot = ~0u;

/// A slot of the table for the calling thread, or `no_slot`. A counter serves as a lock that is only tried.
DEVCOMM_DEVICE inline uint32_t take_wait_slot(wait_slots* slots, uint32_t number) {
  constexpr uint32_t tries = 16;
  for (uint32_t i = 0; i < tries; ++i) {
    const uint32_t slot = (number + i * 61) % wait_table::capacity;
    uint32_t* holders = &slots->holders[slot];
    if (arch::fetch_add<memory_order::acq_rel, scope::device>(holders, 1u) == 0) return slot;
    arch::fetch_add<memory_order::release, scope::device>(holders, ~0u);
  }
  return no_slot;
}

/// Writes what a wait waits for, in `slot` if it has one already; returns its slot.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline uint32_t note_wait(resource_header* home, uint32_t slot, wait_label label,
                                                          uint64_t since, uint64_t now) {
  wait_table* table = home->waits;
  uint32_t number = arch::fetch_add<memory_order::relaxed, scope::device>(&home->slots->numbers, 1u) + 1;
  if (number == 0) number = 1;  // 0 says that a slot is free
  if (slot == no_slot) slot = take_wait_slot(home->slots, number);
  if (slot == no_slot) {
    if (arch::fetch_add<memory_order::relaxed, scope::device>(&home->slots->full, 1u) == 0)
      arch::store<memory_order::relaxed, scope::system>(&table->full, 1u);
    return slot;
  }
  const auto put = [](auto* to, auto value) { arch::store<memory_order::relaxed, scope::system>(to, value); };
  wait_record* record = &table->records[slot];
  put(&record->number, 0u);  // a reader that sees a part of what follows sees this too
  arch::fence<memory_order::release, scope::system>();
  put(reinterpret_cast<uint32_t*>(&record->what), static_cast<uint32_t>(label.what));
  put(&record->index, label.index);
  put(reinterpret_cast<uint32_t*>(&record->peer), static_cast<uint32_t>(label.peer));
  put(&record->block, arch::block_rank());
  put(&record->thread, arch::thread_rank());
  put(&record->expected, label.expected);
  put(&record->seen, label.seen);
  put(&record->since, since);
  put(&record->noted, now);
  put(&record->peer_index, label.peer_index);
  put(&record->groups, label.groups);
  put(reinterpret_cast<uint32_t*>(&record->condition), static_cast<uint32_t>(label.condition));
  put(&record->window, label.window);
  arch::store<memory_order::release, scope::system>(&record->number, number);
  return slot;
}

/// Frees a slot.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline void forget_wait(resource_header* home, uint32_t slot) {
  arch::store<memory_order::release, scope::system>(&home->waits->records[slot].number, 0u);
  arch::fetch_add<memory_order::release, scope::device>(&home->slots->holders[slot], ~0u);
}

/// One wait's entry, from when the wait is found to be long to its end.
class wait_note {
 public:
  DEVCOMM_DEVICE explicit wait_note(resource_header* home) : home_(home) {}
  wait_note(const wait_note&) = delete;
  wait_note& operator=(const wait_note&) = delete;
  DEVCOMM_DEVICE ~wait_note() {
    if (slot_ != no_slot) forget_wait(home_, slot_);
  }

  /// `label` is what `poll` was given, `since` the time of its first check.
  template <class Label>
  DEVCOMM_DEVICE void renew(const Label& label, uint64_t since) {
    if (home_->waits == nullptr || since == 0) return;
    const uint64_t now = arch::global_time();
    if (now < next_ || now < since + arch::noted_after) return;
    slot_ = note_wait(home_, slot_, label(), since, now);
    next_ = now + (now - since) + shortest;
  }

 private:
  static constexpr uint64_t shortest = 1000000;  // nanoseconds from one writing to the next

  resource_header* home_;
  uint32_t slot_ = no_slot;
  uint64_t next_ = 0;
};

#else

/// Without a watchdog a wait leaves no note.
class wait_note {
 public:
  DEVCOMM_DEVICE explicit wait_note(resource_header*) {}
  template <class Label>
  DEVCOMM_DEVICE void renew(const Label&, uint64_t) {}
};

#endif

}  // namespace devcomm::detail
