#include "race/clock.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace devcomm::simulator::race {

epochs_reference group_epochs::make(uint32_t width) {
  void* const memory = std::calloc(1, sizeof(group_epochs) + width * sizeof(uint32_t));
  if (memory == nullptr) throw std::bad_alloc();
  return epochs_reference(new (memory) group_epochs(width));
}

uint64_t group_epochs::lines = 0;

epochs_reference group_epochs::raised(uint32_t lane, uint32_t epoch) {
  epochs_reference next = make(width_);
  for (uint32_t i = 0; i < width_; ++i) next->values()[i] = values()[i];
  next->values()[lane] = epoch;
  if (!continued_) {
    next->line_ = line_;
    next->version_ = version_ + 1;
    continued_ = true;
  }
  return next;
}

void group_epochs::raise(uint32_t lane, uint32_t epoch) {
  values()[lane] = epoch;
  if (continued_) {  // the next version has not observed this
    line_ = ++lines;
    continued_ = false;
  }
  ++version_;
}

void group_epochs::destroy(group_epochs* e) { std::free(e); }

epochs_reference larger(const epochs_reference& a, const epochs_reference& b) {
  if (a == b) return a;
  if (a->line_ == b->line_) return a->version_ >= b->version_ ? a : b;
  const uint32_t width = a->width();
  const uint32_t* const x = a->values();
  const uint32_t* const y = b->values();
  uint32_t x_lacks = 0;
  uint32_t y_lacks = 0;
  for (uint32_t i = 0; i < width; ++i) {  // without branches: compilers make vectors of it
    x_lacks |= static_cast<uint32_t>(x[i] < y[i]);
    y_lacks |= static_cast<uint32_t>(y[i] < x[i]);
  }
  if (x_lacks == 0) return a;
  if (y_lacks == 0) return b;
  epochs_reference both = group_epochs::make(width);
  for (uint32_t i = 0; i < width; ++i) both->values()[i] = std::max(x[i], y[i]);
  return both;
}

namespace {

template <class Entries>
auto find(Entries& entries, uint32_t group) {
  return std::lower_bound(entries.begin(), entries.end(), group,
                          [](const clock::entry& e, uint32_t g) { return e.group < g; });
}

}  // namespace

uint32_t clock::of(uint32_t group, uint32_t lane) const {
  const auto at = find(entries, group);
  return at != entries.end() && at->group == group ? (*at->epochs)[lane] : 0;
}

void join(clock_reference& c, const clock_reference& other) {
  if (!other || c == other) return;
  if (!c) {
    c = other;
    return;
  }
  static auto& merged = *new std::vector<clock::entry>;
  merged.clear();
  bool c_has_all = true;
  bool other_has_all = true;
  auto a = c->entries.begin();
  auto b = other->entries.begin();
  const auto a_end = c->entries.end();
  const auto b_end = other->entries.end();
  while (a != a_end || b != b_end) {
    if (b == b_end || (a != a_end && a->group < b->group)) {
      merged.push_back(*a++);
      other_has_all = false;
    } else if (a == a_end || b->group < a->group) {
      merged.push_back(*b++);
      c_has_all = false;
    } else {
      merged.push_back({a->group, larger(a->epochs, b->epochs)});
      c_has_all &= merged.back().epochs == a->epochs;
      other_has_all &= merged.back().epochs == b->epochs;
      ++a;
      ++b;
    }
  }
  if (c_has_all) {
    // nothing new
  } else if (other_has_all) {
    c = other;
  } else {
    if (!c.alone()) c = clock_reference(new clock);
    c->entries.assign(merged.begin(), merged.end());
  }
  merged.clear();
}

void raise(clock_reference& c, uint32_t group, uint32_t width, uint32_t lane, uint32_t epoch) {
  if (epoch_of(c, group, lane) >= epoch) return;
  if (!c) {
    c = clock_reference(new clock);
  } else if (!c.alone()) {
    clock_reference copy(new clock);
    copy->entries = c->entries;
    c = copy;
  }
  auto at = find(c->entries, group);
  if (at == c->entries.end() || at->group != group) at = c->entries.insert(at, {group, group_epochs::make(width)});
  if (at->epochs.alone()) {
    at->epochs->raise(lane, epoch);
  } else {
    at->epochs = at->epochs->raised(lane, epoch);
  }
}

void join(clock_reference& c, const stamp& s) {
  join(c, s.base);
  if (s.group != 0) raise(c, s.group, s.width, s.lane, s.epoch);
}

void join(stamp& all, const stamp& s) {
  join(all.base, s);
  join(all.fenced, s.fenced);
}

}  // namespace devcomm::simulator::race
