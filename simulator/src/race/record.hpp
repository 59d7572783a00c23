/// \file record.hpp
/// One access that is remembered.
#pragma once

#include <cstdint>

namespace devcomm::simulator::race {

/// Who (group and lane, and when by its epoch), where in the program, which bytes of a cell of 4, and how.
struct record {
  static constexpr uint64_t write = 16;
  static constexpr uint64_t atomic = 32;
  static constexpr uint64_t all_bytes = 15;

  uint64_t how = 0;  ///< code address: 48 bits, lane: 10, atomic: 1, write: 1, bytes: 4
  uint32_t group = 0;
  uint32_t epoch = 0;

  [[nodiscard]] static record make(uint32_t group, uint32_t lane, uint32_t epoch, uint64_t code, uint64_t kind,
                                   uint64_t bytes) {
    return {code << 16 | uint64_t{lane} << 6 | kind | bytes, group, epoch};
  }
  [[nodiscard]] bool empty() const { return group == 0; }
  [[nodiscard]] uint64_t bytes() const { return how & all_bytes; }
  [[nodiscard]] bool writes() const { return (how & write) != 0; }
  [[nodiscard]] bool is_atomic() const { return (how & atomic) != 0; }
  [[nodiscard]] uint32_t lane() const { return static_cast<uint32_t>(how >> 6 & 1023); }
  [[nodiscard]] uint64_t code() const { return how >> 16; }
  /// Equal for accesses by one thread of one kind to the same bytes: the latest replaces the others.
  [[nodiscard]] uint64_t key() const { return uint64_t{group} << 16 | (how & 0xffff); }

  bool operator==(const record& other) const {
    return how == other.how && group == other.group && epoch == other.epoch;
  }
};

static_assert(sizeof(record) == 16);

/// Whether both must be ordered: they share a byte, one writes, and not both are atomic.
[[nodiscard]] inline bool conflict(const record& a, const record& b) {
  return (a.how & b.how & record::all_bytes) != 0 && ((a.how | b.how) & record::write) != 0 &&
         (a.how & b.how & record::atomic) == 0;
}

/// Whether `newer`, which comes after `older`, conflicts with everything that `older` conflicts with: `older`
/// may then be forgotten, as what is not ordered after it is not ordered after `newer` either.
[[nodiscard]] inline bool covers(const record& newer, const record& older) {
  if ((older.bytes() & ~newer.bytes()) != 0) return false;
  if (newer.writes() && !newer.is_atomic()) return true;
  if (older.writes() && !older.is_atomic()) return false;
  // A plain read conflicts with all writes, an atomic write with all plain accesses, an atomic read with
  // plain writes.
  if (!older.writes() && older.is_atomic()) return true;
  return newer.writes() == older.writes() && newer.is_atomic() == older.is_atomic();
}

}  // namespace devcomm::simulator::race
