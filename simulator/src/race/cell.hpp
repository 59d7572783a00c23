/// \file cell.hpp
/// Four bytes of memory: every access that a later one could still race with.
#pragma once

#include "race/record.hpp"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace devcomm::simulator::race {

/// Two records in place; more of them in lists by kind, so that a thread that does the same
/// as thousands before it visits none of theirs.
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
  static constexpr std::size_t few = 32;                   // records to scan rather than find by key

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
  if (slots_[0] == now || slots_[1] == now) return;
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
  auto* all = new lists;
  for (const record& r : {slots_[0], slots_[1], now}) add(all->of[kind_of(r)], r);
  slots_[0] = record();
  slots_[1] = record();
  slots_[0].how = reinterpret_cast<uint64_t>(all);
  slots_[0].group = in_lists;
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
  slots_[0] = record();
  slots_[1] = record();
}

}  // namespace devcomm::simulator::race
