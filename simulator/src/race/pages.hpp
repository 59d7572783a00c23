/// \file pages.hpp
/// Which memory is checked, and the history of its accesses.
#pragma once

#include "race/actor.hpp"
#include "race/cell.hpp"
#include "race/store_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace devcomm::simulator::race {

/// 4 KiB of memory.
class page {
 public:
  static constexpr uintptr_t bytes = 4096;
  static constexpr uintptr_t cells = bytes / 4;

  page() = default;
  ~page();
  page(const page&) = delete;
  page& operator=(const page&) = delete;

  [[nodiscard]] bool watched(uintptr_t address) const {
    const uintptr_t i = address % bytes / 4;
    return (watched_[i / 64] >> (i % 64) & 1) != 0;
  }
  [[nodiscard]] cell& at(uintptr_t address);
  /// The owner's end of all of it; empty before.
  [[nodiscard]] const record& ended() const { return ended_; }
  void end(const record& by) { ended_ = by; }
  /// Whether there is something to remember.
  [[nodiscard]] bool is_used() const { return cells_ != nullptr; }
  [[nodiscard]] variable& variable_at(uintptr_t address) { return variables_[address]; }

  /// Whether stores to it may be delayed.
  [[nodiscard]] bool stores_may_be_delayed() const { return delayed_; }
  void delay_stores(bool may) { delayed_ = may; }
  /// By cell; null while there is nothing.
  [[nodiscard]] replaced* replaced_cells() { return replaced_; }
  [[nodiscard]] replaced* make_replaced_cells();
  void keep_older(uintptr_t address, const older_variable_of& v) { older_[address] = v; }
  [[nodiscard]] older_variable_of* older(uintptr_t address) {
    const auto found = older_.find(address);
    return found == older_.end() ? nullptr : &found->second;
  }

  /// Starts to check, or no longer checks, the cells of [begin, end), which lies in this page.
  void watch(uintptr_t begin, uintptr_t end);
  /// Whether nothing of the page is watched any more.
  bool forget(uintptr_t begin, uintptr_t end);

 private:
  uint64_t watched_[cells / 64] = {};
  bool delayed_ = false;
  record ended_;
  cell* cells_ = nullptr;  ///< once there is something to remember
  replaced* replaced_ = nullptr;
  std::unordered_map<uintptr_t, variable> variables_;
  std::unordered_map<uintptr_t, older_variable_of> older_;
};

/// All pages by address, in two levels. Looking one up needs no lock; all else does.
class page_table {
 public:
  /// Null where nothing is watched.
  [[nodiscard]] page* find(uintptr_t address) const {
    if (address >> address_bits != 0) return nullptr;
    page* const* part = __atomic_load_n(&parts_[address / part_bytes], __ATOMIC_ACQUIRE);
    if (part == nullptr) return nullptr;
    return __atomic_load_n(&part[address % part_bytes / page::bytes], __ATOMIC_ACQUIRE);
  }
  /// Watches what lies in [base, base + bytes), with an empty history; `delayed`: stores to it may be.
  void watch(uintptr_t base, std::size_t bytes, bool delayed);
  void forget(uintptr_t base, std::size_t bytes);

 private:
  static constexpr int address_bits = 47;
  static constexpr uintptr_t part_bytes = uintptr_t{1} << 29;
  static constexpr uintptr_t pages_per_part = part_bytes / page::bytes;

  [[nodiscard]] page*& slot(uintptr_t address);

  page** parts_[(uintptr_t{1} << address_bits) / part_bytes] = {};
};

}  // namespace devcomm::simulator::race
