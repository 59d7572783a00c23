/// \file clock.hpp
/// Vector clocks in two levels: which groups are known, and for each group how far each of its threads.
///
/// A *group* is the threads of one block, or one chain of tasks or of host code, which counts as a group
/// of one thread. Both levels are shared copy-on-write. The threads of a block that have met share one
/// clock; a thread's own epoch is not in its clock but kept beside it, and joins when it is published.
#pragma once

#include "race/reference.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace devcomm::simulator::race {

/// How far each thread of one group is known: 0 is nothing.
///
/// Versions descend from each other, in lines: in one line, a later version knows all that an earlier one
/// does, so that most comparisons compare two numbers and not one for each thread.
class group_epochs {
 public:
  [[nodiscard]] static reference<group_epochs> make(uint32_t width);
  static void destroy(group_epochs* e);

  [[nodiscard]] uint32_t width() const { return width_; }
  [[nodiscard]] uint32_t operator[](uint32_t lane) const { return lane < width_ ? values()[lane] : 0; }
  /// A copy with a later epoch of one lane: the next version in this one's line, or the first of a new line.
  [[nodiscard]] reference<group_epochs> raised(uint32_t lane, uint32_t epoch);
  /// The same in place, for the only reference.
  void raise(uint32_t lane, uint32_t epoch);

  uint32_t references = 0;

 private:
  friend reference<group_epochs> larger(const reference<group_epochs>& a, const reference<group_epochs>& b);

  explicit group_epochs(uint32_t width) : width_(width), line_(++lines) {}
  // The epochs follow the object in memory.
  [[nodiscard]] uint32_t* values() { return reinterpret_cast<uint32_t*>(this + 1); }
  [[nodiscard]] const uint32_t* values() const { return reinterpret_cast<const uint32_t*>(this + 1); }

  static uint64_t lines;

  uint32_t width_;
  uint64_t line_;
  uint32_t version_ = 0;
  bool continued_ = false;  ///< another object is the next version
};

using epochs_reference = reference<group_epochs>;

/// The larger epoch of each lane of two of one group; one of the two itself where that has them all.
[[nodiscard]] epochs_reference larger(const epochs_reference& a, const epochs_reference& b);

class clock {
 public:
  struct entry {
    uint32_t group;
    epochs_reference epochs;
  };

  static void destroy(clock* c) { delete c; }

  [[nodiscard]] uint32_t of(uint32_t group, uint32_t lane) const;

  std::vector<entry> entries;  ///< by group, ascending
  uint32_t references = 0;
};

using clock_reference = reference<clock>;

/// Epoch of a thread in a clock that may be null.
[[nodiscard]] inline uint32_t epoch_of(const clock_reference& c, uint32_t group, uint32_t lane) {
  return c ? c->of(group, lane) : 0;
}

/// Joins `other` into `c`.
void join(clock_reference& c, const clock_reference& other);

/// Raises lane `lane` of a group of `width` threads to `epoch` in `c`.
void raise(clock_reference& c, uint32_t group, uint32_t width, uint32_t lane, uint32_t epoch);

/// Drops the entries of groups for which `gone` holds.
template <class Predicate>
void drop_groups(clock_reference& c, Predicate gone) {
  if (!c) return;
  clock_reference left(new clock);
  left->entries.reserve(c->entries.size());
  for (const clock::entry& e : c->entries) {
    if (!gone(e.group)) left->entries.push_back(e);
  }
  if (left->entries.size() != c->entries.size()) c = left;
}

/// Of what a thread knows and has done, what comes before a fence between two ways to one memory that is ordered so,
/// too.
struct fenced_clocks {
  clock_reference alias;  ///< between two addresses: `fence.proxy.alias`
  clock_reference async;  ///< before asynchronous copies: `fence.proxy.async`

  bool operator==(const fenced_clocks& other) const { return alias == other.alias && async == other.async; }
};
inline void join(fenced_clocks& c, const fenced_clocks& other) {
  join(c.alias, other.alias);
  join(c.async, other.async);
}

/// What one thread publishes at one moment: its clock with its own epoch. Costs one reference.
struct stamp {
  clock_reference base;
  fenced_clocks fenced;
  uint32_t group = 0;  ///< 0: the thread has no epoch of its own
  uint32_t width = 0;
  uint32_t lane = 0;
  uint32_t epoch = 0;
  uint64_t order = 0;  ///< later ones of one thread have larger ones

  [[nodiscard]] bool empty() const { return !base && group == 0; }
  bool operator==(const stamp& other) const {
    return base == other.base && fenced == other.fenced && group == other.group && lane == other.lane &&
           epoch == other.epoch;
  }
};

/// Joins `s` into `c`.
void join(clock_reference& c, const stamp& s);
/// Joins `s` into `all`, which has no epoch of its own.
void join(stamp& all, const stamp& s);

}  // namespace devcomm::simulator::race
