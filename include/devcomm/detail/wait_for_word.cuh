/// \file wait_for_word.cuh
/// The wait of one thread for one word of this rank's memory that peers store to.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/memory_order.hpp>
#include <devcomm/status.hpp>

namespace devcomm::detail {

/// Polls `word`, of 4 or 8 bytes, until `ready(value)` returns true. Returns why it did not where it did not, and then
/// has left a record and ended this rank's waits; but not for running out of a deadline of the caller's own.
///
/// *Ordering*: where `order` acquires, synchronizes with a release store or addition whose value `ready` took. Polls
/// are relaxed, since an acquire load invalidates the L1 cache each time. The load after the loop acquires. It reads
/// what the loop saw, or what was stored since; then a fence makes an acquire of what the loop saw, as the newer store
/// may be another rank's, with nothing in common with the one that was waited for.
template <class Word, class Ready>
DEVCOMM_DEVICE status wait_for_word(resource_header* home, const wait_site& wait, const Word* word, Ready ready,
                                    memory_order order, deadline limit) {
  Word seen = 0;
  const auto label = [&] { return label_of(home, wait, limit, seen); };
  status outcome = status::success;
  poll(
      home, limit, label,
      [&] {
        seen = arch::load<memory_order::relaxed, scope::system>(word);
        return ready(seen);
      },
      [&](status failure) {
        outcome = failure;
        if (failure == status::timeout && limit.own) return;
        report(home, failure, wait, seen);
      });
  if (outcome == status::success && acquires(order) && arch::load<memory_order::acquire, scope::system>(word) != seen)
    arch::fence<memory_order::acquire, scope::system>();
  return outcome;
}

}  // namespace devcomm::detail
