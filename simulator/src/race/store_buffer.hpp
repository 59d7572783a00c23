/// \file store_buffer.hpp
/// The store-buffer delay: stores that become visible to other threads later.
///
/// For some steps after a store, a load by a thread that the store does not happen before returns the previous
/// value. Happens-before is taken from the detector's clocks, so everything that orders two accesses for the
/// detector also makes the earlier one visible to the later. PTX allows a store to do this: a program that
/// synchronizes what it shares cannot observe it.
///
/// Atomic stores of different threads to one word that nothing orders take effect in either order: one that comes while
/// an earlier one is delayed may be overwritten by that. Not where a release covers the earlier one: a GPU performs it
/// before it goes on, and no store before the loads that decide on it, though PTX asks for an acquire as well.
///
/// The model is not multi-copy atomic: at a step drawn with the store, it becomes visible to all threads, but to those
/// of some blocks at once. Who has seen it there shows it to all that learn of that, as observation goes before
/// causality order; a read-modify-write ends the delay for all. Only the value just before the latest store is ever
/// returned. A store that happens before a sequentially consistent fence, or was seen before it, is visible to threads
/// that have passed a later one, if the scope of each fence includes the other's thread, and to those that they
/// synchronize with.
#pragma once

#include "race/actor.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

namespace devcomm::simulator::race {

class detector;

/// Four bytes that a store has replaced.
struct replaced {
  uint64_t store = 0;  ///< its number; 0: there is nothing
  uint64_t until = 0;  ///< the step at which all see the store
  uint32_t value = 0;  ///< from before it
  uint32_t group = 0;  ///< who stored
  uint32_t lane = 0;
  uint32_t epoch = 0;
  uint32_t draw = 0;    ///< decides who sees it early
  bool wide = false;    ///< it stored all eight bytes that these are half of
  bool line = false;    ///< one of several stores that are seen at one time
  bool change = false;  ///< it has read what was before: no other store comes between
};

/// A thread that has seen a store before all see it.
struct observer {
  uint64_t store;
  uint64_t until;
  uint32_t group;
  uint32_t lane;
  uint32_t epoch;
};

/// What was published at an atomic variable before one store to it.
struct older_variable_of {
  uint64_t store;
  variable what;
};

/// All of these with the detector's guard, but `restore` and `on`. Simulated threads alone call `restore`.
class store_buffer {
 public:
  explicit store_buffer(detector& d) : detector_(d) {}

  /// Delays stores by up to `longest` steps (0: not at all); `step` counts them.
  void set(uint64_t longest, uint64_t seed, const uint64_t* step);
  [[nodiscard]] bool on() const { return __atomic_load_n(&longest_, __ATOMIC_RELAXED) != 0; }

  /// `a` stores there; `at` is the variable of an atomic access, as it is before. `before` is what was there, or
  /// null as long as memory has it.
  void store(actor& a, uintptr_t address, size_t bytes, const variable* at, const void* before, bool change = false);
  /// An atomic store of `value` by `a`, unordered with a store that is still delayed, may take effect before that one:
  /// memory stays as it is, and those who do not see the delayed store yet find `value`. Returns the variable of the
  /// word as they find it; null if the store takes effect now.
  template <class T>
  [[nodiscard]] variable* come_before(actor& a, uintptr_t address, const T& value, const variable& now) {
    static_assert(sizeof(T) <= 8);
    if (sizeof(T) < 4) return nullptr;
    uint32_t words[2] = {};
    std::memcpy(words, &value, sizeof(T));
    return come_before(a, address, words, sizeof(T), now);
  }
  /// `a` is about to load there by a plain access: memory holds what it finds, until `restore`.
  void show_previous(actor& a, uintptr_t address, size_t bytes);
  void restore() {
    if (!shown_.empty()) restore_shown();
  }
  /// An atomic load by `a`: whether it finds an older value than memory has, which goes to `value`, and in `at`
  /// the variable with what was published with it.
  template <class T>
  [[nodiscard]] bool load(actor& a, uintptr_t address, T& value, variable*& at) {
    replaced* const r = find(a, address, sizeof(T));
    if (r == nullptr) return false;
    unsigned char bytes[8];
    std::memcpy(bytes, &r[0].value, 4);
    if (sizeof(T) == 8) std::memcpy(bytes + 4, &r[1].value, 4);
    std::memcpy(&value, bytes + address % 4, sizeof(T));
    at = older_variable(address, r->store, at);
    return true;
  }
  /// `a` is about to read the latest value.
  void observe(actor& a, uintptr_t address, size_t bytes);
  void sequential_fence(actor& a);
  /// `a` is about to release, by a fence or a store: what happens before that is performed before stores that come
  /// later.
  void release(const actor& a);

 private:
  struct shown {
    uint32_t* address;
    uint32_t value;
    uint32_t kept;
  };
  /// A sequentially consistent fence.
  struct fence {
    uint32_t number;
    uint64_t step;
    clock_reference before;  ///< what is ordered before it or before a recent earlier one
  };
  /// The fences of one scope among the threads that it includes, and wider ones of these threads: they have one order.
  struct fence_line {
    uint64_t key;
    uint32_t group;  ///< whose epoch in a clock is the number of a fence
    uint32_t fences = 0;
    std::deque<fence> recent;  ///< those that are not older than the oldest delay, ascending
  };
  struct drawn {
    uint64_t delay;
    uint32_t draw;
  };
  [[nodiscard]] drawn draw(actor& a) const;
  [[nodiscard]] variable* come_before(actor& a, uintptr_t address, const uint32_t (&words)[2], size_t bytes,
                                      const variable& now);
  [[nodiscard]] fence_line* line_of(reach scope, const place& where, bool make);
  void join_line(fence_line& line, actor& a);
  /// The cells of a naturally aligned access of at most 8 bytes, if `a` finds what was before one store to all
  /// of them; null if it finds what memory has.
  [[nodiscard]] replaced* find(actor& a, uintptr_t address, size_t bytes);
  void show_cells(actor& a, uintptr_t address, size_t bytes);
  [[nodiscard]] bool visible(const replaced& r, const actor& a) const;
  /// Whether `a` has what a thread did in an epoch before it, or sees it behind fences.
  [[nodiscard]] bool follows(const actor& a, uint32_t group, uint32_t lane, uint32_t epoch) const;
  /// Whether the store that replaced `r` is seen by the block of `a` before it is by all.
  [[nodiscard]] bool early(const replaced& r, const actor& a) const;
  void note_observer(const replaced& r, actor& a);
  [[nodiscard]] variable* older_variable(uintptr_t address, uint64_t store, variable* now) const;
  /// Makes the store that replaced `*r` visible to all, also in the other half of its eight bytes.
  static void drain(replaced* cells, uintptr_t address);
  void restore_shown();

  detector& detector_;
  uint64_t longest_ = 0;
  uint64_t seed_ = 0;
  const uint64_t* step_ = nullptr;
  uint64_t stores_ = 0;
  clock_reference released_;  ///< covered by some release
  std::deque<fence_line> lines_;
  std::vector<observer> observers_;  ///< of stores that not all see yet
  std::vector<shown> shown_;
};

}  // namespace devcomm::simulator::race
