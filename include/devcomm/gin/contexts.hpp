/// \file contexts.hpp
/// Contexts of the network: how to ask for them, and the actions that operations take.
#pragma once

#include <devcomm/gin/queue.hpp>
#include <devcomm/operation.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::gin {

/// Asks for `count` contexts: `needs.add(gin::contexts{comm.world(), blocks, 2})`. Each has signals and counters of its
/// own on every rank, zero at first, and a queue of its own: operations of different contexts are never ordered.
/// Creation of the device communicator fails where there is no network, see `properties().network`.
///
/// A kernel's own signals are numbered from 0. Features that use signals, such as `collective::rail_rings`,
/// `collective::network_slots` and `channel::network_fifos`, take theirs behind them, each its own, and barriers have
/// others still. Contexts are added after such features, and once: creation fails otherwise.
///
///     const auto rings = needs.add(collective::rail_rings{.groups = blocks});
///     const auto slots = needs.add(collective::network_slots{.members = comm.rail(), .groups = blocks});
///     const auto contexts = needs.add(gin::contexts{.world = comm.world(), .signals = 2, .barriers = blocks});
struct contexts {
  team world;            ///< the communicator's
  uint32_t count = 1;    ///< one for each block that posts much, or fewer
  uint32_t signals = 0;  ///< of each context, the kernel's own
  uint32_t counters = 0;
  uint32_t depth = 256;   ///< operations that may be posted before the proxy has read them; a power of two
  uint32_t barriers = 0;  ///< of each context, see `gin::barrier_session`; each is two signals from every rank

  DEVCOMM_HOST_DEVICE constexpr context_handle add_to(requirements& needs) const {
    const auto ranks = static_cast<uint32_t>(world.size);
    const uint32_t own_and_added = detail::limited_number(uint64_t{signals} + needs.added_signals());
    context_handle made{
        {0, count, static_cast<uint16_t>(ranks), needs.owner()}, own_and_added, counters, depth, barriers};
    const uint32_t all = detail::limited_number(made.all_signals());
    const uint64_t each = queue_layout{ranks, all, counters}.bytes();
    const resource_shape what{uint64_t{barriers} << 32 | count, uint64_t{own_and_added} << 32 | counters,
                              uint64_t{depth} << 32 | ranks};
    made.offset = needs.add_items(detail::limited_product(count, each), 128, what, count, ranks).offset;
    // Whole lines before it, so that it follows.
    static_cast<void>(needs.add(barrier_layout{count, barriers, ranks}.bytes(), 128, {}));
    needs.require_network({made.offset, count, ranks, all, counters, depth, 1});
    return made;
  }
};

// What happens beside an operation.

struct no_action {};

/// Adds `value` to a signal of the peer.
struct signal_add {
  uint32_t signal;
  uint64_t value = 1;
  strength covers = strength::strong;
};

/// Sets a signal of the peer. Strong ones of a context to one peer take effect in the order in which they were posted.
struct signal_set {
  uint32_t signal;
  uint64_t value;
  strength covers = strength::strong;
};

/// Adds 1 to a counter of this rank when this operation is complete here: its source may be written again, and what it
/// got may be read. It says nothing of other operations.
struct counter_increment {
  uint32_t counter;
};

/// Whether `T` is an action on a signal of the peer, or none.
template <class T>
inline constexpr bool changes_signal = false;
template <>
inline constexpr bool changes_signal<no_action> = true;
template <>
inline constexpr bool changes_signal<signal_add> = true;
template <>
inline constexpr bool changes_signal<signal_set> = true;

/// Whether `T` is an action on a counter of this rank, or none.
template <class T>
inline constexpr bool counts = false;
template <>
inline constexpr bool counts<no_action> = true;
template <>
inline constexpr bool counts<counter_increment> = true;

}  // namespace devcomm::gin
