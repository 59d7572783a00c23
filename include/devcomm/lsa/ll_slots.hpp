/// \file ll_slots.hpp
/// Slots for small values from any rank: how to ask for them, and how their memory is laid out.
/// `lsa::ll_all_to_all_session` sends and receives through them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::lsa {

/// Independent sets of slots of one team. Plain data; pass it to the kernel.
struct ll_slots_handle : resource_handle {
  uint32_t slots;  ///< of a set, on each member, for one epoch
  uint32_t lines;  ///< of 16 bytes, that a slot has: 8 bytes of data each
};

/// Where the parts of sets of slots are, in bytes from the handle's offset: this rank's epochs, then for each set two
/// halves, for even and odd epochs. A half has the first lines of all slots, then their second lines, and so on, so
/// that threads that take neighboring slots take neighboring lines.
struct ll_slots_layout {
  uint32_t count;
  uint32_t slots;
  uint32_t lines;

  static constexpr uint64_t line_bytes = 16;

  DEVCOMM_HOST_DEVICE constexpr uint64_t epoch(uint32_t index) const { return uint64_t{index} * 2 * sizeof(uint32_t); }
  /// The word by which a group without a vote of its own agrees on an outcome.
  DEVCOMM_HOST_DEVICE constexpr uint64_t outcome(uint32_t index) const { return epoch(index) + sizeof(uint32_t); }
  DEVCOMM_HOST_DEVICE constexpr uint64_t half(uint32_t index, uint32_t epoch_number) const {
    return detail::round_up_to_line(epoch(count)) +
           (uint64_t{index} * 2 + epoch_number % 2) * slots * lines * line_bytes;
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t line(uint32_t slot, uint32_t line) const {
    return (uint64_t{line} * slots + slot) * line_bytes;
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return half(count, 0); }
};

/// Asks for `count` sets of slots of any team within the LSA team, usually one for each block:
/// `needs.add(lsa::ll_slots{members, count, slots, sizeof(value)})`. A set has `slots` slots on each member, which any
/// member may send to; a slot takes a value of up to `value_bytes` bytes. Takes `32 * count * slots` bytes on every
/// rank for each 8 bytes of a value.
struct ll_slots {
  team members;
  uint32_t count;
  uint32_t slots;
  uint32_t value_bytes = 8;

  DEVCOMM_HOST_DEVICE constexpr ll_slots_handle add_to(requirements& needs) const {
    const auto size = static_cast<uint32_t>(members.size);
    const uint32_t lines = value_bytes / 8 + (value_bytes % 8 != 0 ? 1 : 0);
    const uint64_t of_slots = detail::limited_product(uint64_t{count} * slots, uint64_t{lines} * 32);
    const bool fits = of_slots < uint64_t{1} << 60;
    const uint64_t bytes = fits ? ll_slots_layout{count, slots, lines}.bytes() : of_slots;
    return {needs.add_items(bytes, 128, {size, count, uint64_t{slots} << 32 | lines}, count, size), slots, lines};
  }
};

}  // namespace devcomm::lsa
