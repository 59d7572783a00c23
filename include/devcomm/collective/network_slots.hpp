/// \file network_slots.hpp
/// Slots for small messages between hosts, two for each pair of ranks: how to ask for them.
#pragma once

#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::collective {

/// Slots of `network_slots`, `count` groups of them; `members` is the size of the team. Plain data; pass it to the
/// kernel.
struct network_slot_handle : resource_handle {
  uint32_t packs;        ///< of 16 bytes, in a slot
  signal_range signals;  ///< for each group two of each member
  uint64_t messages;     ///< bytes from the start of the network memory

  DEVCOMM_HOST_DEVICE constexpr uint64_t slot_bytes() const { return uint64_t{packs} * 16; }
  /// What `group` keeps between calls: bytes from the start of the resource window.
  DEVCOMM_HOST_DEVICE constexpr uint64_t record(uint32_t group) const { return offset + group * record_bytes; }
  /// What `member` has put here in exchanges of this parity: bytes from the start of the network memory.
  DEVCOMM_HOST_DEVICE constexpr uint64_t received(uint32_t group, uint32_t parity, int member) const {
    return messages + ((uint64_t{group} * 2 + parity) * 2 * members + static_cast<uint64_t>(member)) * slot_bytes();
  }
  /// What is put to `member` from here.
  DEVCOMM_HOST_DEVICE constexpr uint64_t sent(uint32_t group, uint32_t parity, int member) const {
    return received(group, parity, static_cast<int>(members) + member);
  }

  static constexpr uint64_t record_bytes = 128;
};

/// Asks for slots of `groups` groups, one for each block, between the ranks of a team: the rail for
/// `all_reduce_hierarchical_one_shot`, the world for `all_to_all_one_shot`; where each rank is a host of its own the
/// two are the same. Takes signals, so contexts are added after the slots:
///
///     const auto slots = needs.add(collective::network_slots{.members = comm.rail(), .groups = blocks});
///     const auto contexts =
///         needs.lsa_barriers(blocks).add(gin::contexts{.world = comm.world(), .count = blocks, .barriers = blocks});
///
/// `4 * groups * members * slot_bytes` bytes of network memory on each rank. A put of at most 8 KiB travels in
/// the message of its signal, a larger one beside it, in one trip too: where memory allows, slots as large as a block's
/// part of the vectors take least.
struct network_slots {
  team members;
  uint32_t groups;
  uint32_t slot_bytes = 8192;  ///< rounded up to whole packs, at least one

  DEVCOMM_HOST_DEVICE constexpr network_slot_handle add_to(requirements& needs) const {
    const uint32_t packs = slot_bytes == 0 ? 1 : slot_bytes / 16 + (slot_bytes % 16 != 0 ? 1u : 0u);
    const auto ranks = static_cast<uint32_t>(members.size);
    const resource_shape what{uint64_t{groups} << 32 | ranks, packs};
    network_slot_handle made{{}, packs, {}, 0};
    made.signals = needs.add_signals(detail::limited_product(uint64_t{2} * groups, ranks));
    static_cast<resource_handle&>(made) =
        needs.add_items(detail::limited_product(groups, network_slot_handle::record_bytes), 128, what, groups, ranks);
    const uint64_t slots = detail::limited_product(uint64_t{4} * groups, ranks);
    made.messages = needs.add_for_network(detail::limited_product(slots, made.slot_bytes()), 128, what);
    return made;
  }
};

}  // namespace devcomm::collective
