/// \file network_slots.hpp
/// Slots for small messages between hosts, two for each pair of ranks: how to ask for them, and where they lie.
#pragma once

#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>
#include <devcomm/window.hpp>

namespace devcomm::collective {

/// What slots keep between calls, in the resource window, and their size. `count` groups; `members` is the size of the
/// team. Plain data.
struct network_slot_handle : resource_handle {
  uint32_t packs;         ///< of 16 bytes, in a slot
  uint32_t first_signal;  ///< of the context's

  /// Signals of a context that the slots use, from `first_signal` on: for each group two of each member.
  DEVCOMM_HOST_DEVICE constexpr uint32_t signals() const { return count * 2 * members; }
  DEVCOMM_HOST_DEVICE constexpr uint64_t slot_bytes() const { return uint64_t{packs} * 16; }
  /// Bytes of the window that the slots lie in.
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const {
    return devcomm::detail::limited_product(uint64_t{4} * count * members, slot_bytes());
  }

  /// Where what `group` keeps lies, in bytes from the start of the resource window.
  DEVCOMM_HOST_DEVICE constexpr uint64_t record(uint32_t group) const { return offset + group * record_bytes; }
  /// What `member` has put here in calls of this parity, in bytes from the start of the slots' window.
  DEVCOMM_HOST_DEVICE constexpr uint64_t received(uint32_t group, uint32_t parity, int member) const {
    return ((uint64_t{group} * 2 + parity) * 2 * members + static_cast<uint64_t>(member)) * slot_bytes();
  }
  /// What is put to `member` from here.
  DEVCOMM_HOST_DEVICE constexpr uint64_t sent(uint32_t group, uint32_t parity, int member) const {
    return received(group, parity, static_cast<int>(members) + member);
  }

  static constexpr uint64_t record_bytes = 128;
};

/// The slots as kernels receive them: with the window that they lie in, of at least `handle.bytes()` bytes.
struct placed_slots {
  network_slot_handle handle;
  window memory;
};

/// Asks for slots of `groups` groups, one for each block, between the ranks of a team: the rail for
/// `all_reduce_hierarchical_one_shot`, the world for `all_to_all_one_shot`; where each rank is a host of its own the
/// two are the same. The contexts are asked for with the signals that they use, and the window is the caller's: in
/// pinned host memory no copy engine is on the way, at either end.
///
///     const auto slots = needs.add(collective::network_slots{.members = comm.rail(), .groups = blocks});
///     const auto contexts = needs.lsa_barriers(blocks).add(gin::contexts{
///         .world = comm.world(), .count = blocks, .signals = slots.signals(), .barriers = blocks});
///     const auto memory = comm.allocate(slots.bytes(), host::memory_place::pinned_host);
///     // to the kernel: collective::placed_slots{slots, memory.window()}
///
/// A put of at most 8 KiB travels in one message with its signal: larger slots are no faster for vectors that need
/// several of them.
struct network_slots {
  team members;
  uint32_t groups;
  uint32_t slot_bytes = 8192;  ///< rounded up to whole packs, at least one
  uint32_t first_signal = 0;   ///< the first of the signals that are the slots' in their contexts

  DEVCOMM_HOST_DEVICE constexpr network_slot_handle add_to(requirements& needs) const {
    const uint32_t packs = slot_bytes == 0 ? 1 : slot_bytes / 16 + (slot_bytes % 16 != 0 ? 1u : 0u);
    network_slot_handle made{{0, groups, static_cast<uint32_t>(members.size)}, packs, first_signal};
    const uint64_t bytes = devcomm::detail::limited_product(groups, network_slot_handle::record_bytes);
    made.offset = needs.add(bytes, 128, {uint64_t{groups} << 32 | made.members, packs, first_signal});
    return made;
  }
};

}  // namespace devcomm::collective
