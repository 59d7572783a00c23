/// \file cell.hpp
/// Four bytes of memory: every access that a later one could still race with.
#pragma once

#include "race/record.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>

namespace devcomm::simulator::race {

/// Two records in place; up to sixteen in an array, as where each rank reads what one has written; more of them in
/// lists by kind, so that a thread that does the same as thousands before it visits none of theirs.
class cell {
 public:
  /// Records `now`. `ordered(r)`: whether `r` happens before it; `race(r)` is called for each record
  /// that conflicts with it and does not.
  template <class Ordered, class Race>
  void access(const record& now, Ordered ordered, Race race);
  template <class Visit>
  void for_each(Visit visit) const;
  void clear();
  [[nodiscard]] std::size_t records() const;

 private:
  static constexpr uint32_t in_lists = ~uint32_t{0} >> 1;  // as the group of the first slot
  static constexpr uint32_t in_array = in_lists - 1;
  static constexpr std::size_t few = 32;  // records to scan rather than find by key

  struct array {
    static constexpr uint32_t least = 4, most = 16;
    uint32_t count;
    uint32_t capacity;
    record records[1];  // and more

    [[nodiscard]] static array* make(uint32_t capacity) {
      auto* const made = static_cast<array*>(::operator new(sizeof(array) + (capacity - 1) * sizeof(record)));
      made->count = 0;
      made->capacity = capacity;
      return made;
    }
  };
  struct list {
    std::vector<record> records;
    std::size_t prune_at = 4;
    uint32_t shapes = 0;  ///< of the records, and of some that are gone
    std::unique_ptr<std::unordered_map<uint64_t, uint32_t>> index_by_key;  ///< by key, once there are many
  };
  struct lists {
    list of[8];  ///< by kind: reads, writes, then atomic reads and changes at each scope
  };

  [[nodiscard]] static uint32_t kind_of(const record& r) { return static_cast<uint32_t>(r.how >> 4 & 7); }
  [[nodiscard]] bool spilled() const { return slots_[0].group == in_lists; }
  [[nodiscard]] lists* spill() const { return reinterpret_cast<lists*>(slots_[0].how); }
  [[nodiscard]] bool has_array() const { return slots_[0].group == in_array; }
  [[nodiscard]] array* own_array() const { return reinterpret_cast<array*>(slots_[0].how); }
  void point_to(void* place, uint32_t kind) {
    slots_[0] = slots_[1] = record();
    slots_[0].how = reinterpret_cast<uint64_t>(place);
    slots_[0].group = kind & in_lists;
  }
  /// Whether the same was recorded in the same epoch, so that what came in between was compared with it. Not of atomic
  /// changes: who found the value of an earlier one may access the word, and a later one still races with that.
  [[nodiscard]] bool knows(const record& now) const {
    if (now.is_atomic() && now.writes()) return false;
    if (!has_array()) return slots_[0] == now || slots_[1] == now;
    const array& all = *own_array();
    return std::find(all.records, all.records + all.count, now) != all.records + all.count;
  }
  template <class Ordered, class Race>
  void access_array(const record& now, Ordered ordered, Race race);
  void add_to_array(const record& now);
  template <class Ordered, class Race>
  void access_lists(const record& now, Ordered ordered, Race race);
  static void add(list& l, const record& r) {
    l.records.push_back(r);
    l.shapes |= r.shape();
  }
  /// Whether a record was replaced.
  [[nodiscard]] static bool replace(list& l, const record& now);
  void unspill();

  record slots_[2];
};

static_assert(sizeof(cell) == 32);

template <class Ordered, class Race>
void cell::access(const record& now, Ordered ordered, Race race) {
  if (knows(now)) return;
  if (has_array()) {
    access_array(now, ordered, race);
    return;
  }
  if (spilled()) {
    access_lists(now, ordered, race);
    return;
  }
  record* room = nullptr;
  for (record& old : slots_) {
    if (!old.empty()) {
      const bool matters = conflict(old, now);
      const bool covered = covers(now, old);
      if (!matters && !covered) continue;
      const bool before = ordered(old);
      if (!before && matters) race(old);
      if (!before || !covered) continue;
      old = record();
    }
    if (room == nullptr) room = &old;
  }
  if (room != nullptr) {
    *room = now;
    return;
  }
  array* const all = array::make(array::least);
  for (const record& r : {slots_[0], slots_[1], now}) all->records[all->count++] = r;
  point_to(all, in_array);
}

template <class Ordered, class Race>
void cell::access_array(const record& now, Ordered ordered, Race race) {
  array& all = *own_array();
  uint32_t kept = 0;
  for (uint32_t i = 0; i < all.count; ++i) {
    const record old = all.records[i];
    const bool matters = conflict(old, now);
    // As in lists, atomic accesses of other threads stay: who has found the value of a later one is ordered with that
    // one alone.
    const bool of_others = old.is_atomic() && now.is_atomic() && (old.group != now.group || old.lane() != now.lane());
    const bool covered = !of_others && covers(now, old);
    bool drop = false;
    if (matters || covered) {
      const bool before = ordered(old);
      if (!before && matters) race(old);
      drop = covered && before;
    }
    if (!drop) all.records[kept++] = old;
  }
  all.count = kept;
  add_to_array(now);
}

inline void cell::add_to_array(const record& now) {
  array* all = own_array();
  if (all->count < 2) {
    const record only = all->count == 1 ? all->records[0] : now;
    const record other = all->count == 1 ? now : record();
    ::operator delete(all);
    slots_[0] = only;
    slots_[1] = other;
    return;
  }
  if (all->count == array::most) {
    auto* const more = new lists;
    for (uint32_t i = 0; i < all->count; ++i) add(more->of[kind_of(all->records[i])], all->records[i]);
    add(more->of[kind_of(now)], now);
    ::operator delete(all);
    point_to(more, in_lists);
    return;
  }
  if (all->count == all->capacity) {
    array* const larger = array::make(2 * all->capacity);
    for (uint32_t i = 0; i < all->count; ++i) larger->records[larger->count++] = all->records[i];
    ::operator delete(all);
    point_to(all = larger, in_array);
  }
  all->records[all->count++] = now;
}

template <class Ordered, class Race>
void cell::access_lists(const record& now, Ordered ordered, Race race) {
  lists& all = *spill();
  for (uint32_t kind = 0; kind < 8; ++kind) {
    list& l = all.of[kind];
    const bool other_sizes = (l.shapes & ~now.shape()) != 0;
    const record any = record::make(1, 0, 0, 0, uint64_t{kind} << 4 | (now.is_wide != 0 ? record::wide : 0),
                                    other_sizes ? record::all_bytes : now.bytes());
    const bool compares =
        conflict(any, now) || (other_sizes && any.is_atomic() && now.is_atomic() && (any.writes() || now.writes()));
    const bool prune = l.records.size() >= l.prune_at;
    if (l.records.empty() || (!compares && !prune)) continue;
    std::size_t kept = 0;
    const bool busy = l.records.size() > few;
    for (const record& old : l.records) {
      const bool matters = compares && conflict(old, now);
      const bool covered = covers(now, old);
      bool drop = false;
      if (matters || covered) {
        const bool before = ordered(old);
        if (!before && matters) race(old);
        // Where so many threads race, those reported are not kept for further reports.
        drop = covered && (before || (busy && matters));
      }
      if (!drop) l.records[kept++] = old;
    }
    if (kept != l.records.size()) {
      l.records.resize(kept);
      l.index_by_key.reset();
    }
    if (kept == 0) l.shapes = 0;
    l.prune_at = 2 * kept + 4;
  }
  list& own = all.of[kind_of(now)];
  if (!replace(own, now)) add(own, now);
  if (now.writes() && !now.is_atomic()) unspill();
}

inline bool cell::replace(list& l, const record& now) {
  if (l.records.size() <= few) {
    for (record& old : l.records) {
      if (old.key() != now.key()) continue;
      old = now;
      return true;
    }
    return false;
  }
  if (!l.index_by_key) {
    l.index_by_key = std::make_unique<std::unordered_map<uint64_t, uint32_t>>();
    for (uint32_t i = 0; i < l.records.size(); ++i) l.index_by_key->emplace(l.records[i].key(), i);
  }
  const auto [at, fresh] = l.index_by_key->try_emplace(now.key(), static_cast<uint32_t>(l.records.size()));
  if (!fresh) l.records[at->second] = now;
  return !fresh;
}

template <class Visit>
void cell::for_each(Visit visit) const {
  if (has_array()) {
    for (uint32_t i = 0; i < own_array()->count; ++i) visit(own_array()->records[i]);
    return;
  }
  if (!spilled()) {
    for (const record& r : slots_) {
      if (!r.empty()) visit(r);
    }
    return;
  }
  for (const list& l : spill()->of) {
    for (const record& r : l.records) visit(r);
  }
}

inline std::size_t cell::records() const {
  if (has_array()) return own_array()->count;
  if (!spilled()) return (slots_[0].empty() ? 0u : 1u) + (slots_[1].empty() ? 0u : 1u);
  std::size_t sum = 0;
  for (const list& l : spill()->of) sum += l.records.size();
  return sum;
}

/// Back in place when little is left.
inline void cell::unspill() {
  if (records() > 2) return;
  const std::unique_ptr<lists> all(spill());
  slots_[0] = record();
  record* to = slots_;
  for (const list& l : all->of) {
    for (const record& r : l.records) *to++ = r;
  }
}

inline void cell::clear() {
  if (spilled()) delete spill();
  if (has_array()) ::operator delete(own_array());
  slots_[0] = record();
  slots_[1] = record();
}

}  // namespace devcomm::simulator::race
