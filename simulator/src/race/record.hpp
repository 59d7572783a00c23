/// \file record.hpp
/// One access that is remembered.
#pragma once

#include <cstdint>

namespace devcomm::simulator::race {

/// Who (group and lane, and when by its epoch), where in the program, which bytes of a cell of 4, and how.
struct record {
  static constexpr uint64_t write = 16;
  static constexpr uint64_t atomic_block = 32;  ///< atomic, at this scope
  static constexpr uint64_t atomic_device = 64;
  static constexpr uint64_t atomic = 96;  ///< at scope system
  static constexpr uint64_t all_bytes = 15;
  static constexpr uint64_t multicast = uint64_t{1} << 17;
  static constexpr uint64_t wide = uint64_t{1} << 63;  ///< with the kind: atomic, of more bytes than the cell has

  uint64_t how = 0;  ///< code address: 46 bits, by a multicast address: 1, lane: 10, atomic and its scope: 2, write: 1,
                     ///< bytes: 4
  uint32_t group : 31 = 0;
  uint32_t is_wide : 1 = 0;
  uint32_t epoch = 0;

  [[nodiscard]] static record make(uint32_t group, uint32_t lane, uint32_t epoch, uint64_t code, uint64_t kind,
                                   uint64_t bytes) {
    return {code << 18 | uint64_t{lane} << 7 | (kind & ~wide) | bytes, group & ~uint32_t{0} >> 1,
            (kind & wide) != 0 ? 1u : 0u, epoch};
  }
  [[nodiscard]] bool empty() const { return group == 0; }
  [[nodiscard]] uint64_t bytes() const { return how & all_bytes; }
  [[nodiscard]] bool writes() const { return (how & write) != 0; }
  [[nodiscard]] bool is_atomic() const { return (how & atomic) != 0; }
  /// Of an atomic access: 1 to 3, the narrowest first.
  [[nodiscard]] uint32_t scope() const { return static_cast<uint32_t>(how >> 5 & 3); }
  [[nodiscard]] uint32_t lane() const { return static_cast<uint32_t>(how >> 7 & 1023); }
  [[nodiscard]] bool by_multicast() const { return (how & multicast) != 0; }
  /// Bit 46 is not kept: it is set in all addresses of user space but those of programs that are linked to low ones.
  [[nodiscard]] uint64_t code() const {
    const uint64_t low = how >> 18;
    return low >> 32 == 0 ? low : low | uint64_t{1} << 46;
  }
  /// Equal for accesses by one thread of one kind to the same bytes: the latest replaces the others.
  [[nodiscard]] uint64_t key() const { return uint64_t{is_wide} << 63 | uint64_t{group} << 18 | (how & 0x3ffff); }
  /// A bit for each size and place in the cell that atomic accesses have.
  [[nodiscard]] uint32_t shape() const { return uint32_t{1} << (is_wide != 0 ? 16 : bytes()); }

  bool operator==(const record& other) const {
    return how == other.how && group == other.group && is_wide == other.is_wide && epoch == other.epoch;
  }
};

static_assert(sizeof(record) == 16);

/// Whether both are atomic, and not toward each other, as PTX has it where two overlap in part.
[[nodiscard]] inline bool overlap_in_part(const record& a, const record& b) {
  return a.is_atomic() && b.is_atomic() && a.shape() != b.shape() && (a.bytes() & b.bytes()) != 0;
}

/// Whether both must be ordered, if their places say so where both are atomic: they share a byte, one writes, and not
/// both are atomic at scope system and of one size.
[[nodiscard]] inline bool conflict(const record& a, const record& b) {
  return (a.how & b.how & record::all_bytes) != 0 && ((a.how | b.how) & record::write) != 0 &&
         ((a.how & b.how & record::atomic) != record::atomic || overlap_in_part(a, b));
}

/// Whether one of the two is by a multicast address, and the order that they must have needs a fence between them.
[[nodiscard]] inline bool needs_alias_fence(const record& a, const record& b) {
  return a.by_multicast() != b.by_multicast() && conflict(a, b);
}

/// Whether `newer`, which comes after `older`, conflicts with everything that `older` conflicts with: `older`
/// may then be forgotten, as what is not ordered after it is not ordered after `newer` either.
[[nodiscard]] inline bool covers(const record& newer, const record& older) {
  if ((older.bytes() & ~newer.bytes()) != 0) return false;
  if (newer.writes() && !newer.is_atomic()) return true;
  if (overlap_in_part(newer, older)) return false;
  // Neither conflicts with the other, so no fence between them is needed.
  if (newer.by_multicast() != older.by_multicast()) return false;
  if (older.writes() && !older.is_atomic()) return false;
  // The narrower scope conflicts with more.
  if (older.is_atomic() && newer.scope() > older.scope()) return false;
  // A plain read conflicts with all writes, an atomic write with all plain accesses, an atomic read with
  // plain writes.
  if (!older.writes() && older.is_atomic()) return true;
  return newer.writes() == older.writes() && newer.is_atomic() == older.is_atomic();
}

}  // namespace devcomm::simulator::race
