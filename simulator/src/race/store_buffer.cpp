#include "race/store_buffer.hpp"

#include "race/detector.hpp"

#include "base/random.hpp"

#include <algorithm>

namespace devcomm::simulator::race {
namespace {

template <class Visit>
void for_each_cell(uintptr_t address, size_t bytes, Visit visit) {
  for (uintptr_t at = address / 4 * 4; at < address + bytes; at += 4) visit(at);
}

uint32_t value_at(uintptr_t address) {
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(address), __ATOMIC_RELAXED);
}

}  // namespace

void store_buffer::set(uint64_t longest, uint64_t seed, const uint64_t* step) {
  seed_ = detail::random_choice(seed).next();
  step_ = step;
  for (fence_line& line : lines_) line.recent.clear();
  released_ = clock_reference();
  observers_.clear();
  __atomic_store_n(&longest_, longest, __ATOMIC_RELAXED);
}

/// Half of all stores have no delay; the delays of the others are log-uniform. The same store of the same thread
/// has the same delay in every run of a seed.
store_buffer::drawn store_buffer::draw(actor& a) const {
  detail::random_choice random(seed_ ^ detector_.groups[a.group].key ^ uint64_t{a.lane} << 40 ^ ++a.stores);
  const uint64_t first = random.next();
  if ((first & 1) != 0) return {0, 0};
  const auto bits = static_cast<uint32_t>(64 - __builtin_clzll(longest_));
  const uint64_t delay = std::min(longest_, random.next() >> (64 - 1 - random.below(bits)));
  return {delay, static_cast<uint32_t>(first >> 32)};
}

void store_buffer::store(actor& a, uintptr_t address, size_t bytes, const variable* at, const void* before,
                         bool change) {
  const bool by_kernel = a.group != 0 && detector_.groups[a.group].width != 0;
  const bool continues = a.at_once && a.one_store != 0;
  const drawn chosen = by_kernel && bytes <= 16 && !continues ? draw(a) : drawn{};
  const uint64_t delayed = continues ? a.one_delay : chosen.delay;
  const uint64_t number = continues ? a.one_store : ++stores_;
  if (a.at_once) {
    a.one_store = number;
    a.one_delay = delayed;
  }
  page* p = nullptr;
  for_each_cell(address, bytes, [&](uintptr_t cell) {
    if (p == nullptr || cell % page::bytes == 0) p = detector_.memory.find(cell);
    if (p == nullptr || !p->stores_may_be_delayed() || !p->watched(cell)) return;
    if (delayed == 0) {
      if (replaced* const all = p->replaced_cells()) drain(all, cell);
      return;
    }
    replaced& r = p->make_replaced_cells()[cell % page::bytes / 4];
    uint32_t value = value_at(cell);
    if (before != nullptr) {
      for (uintptr_t i = 0; i < sizeof value; ++i) {
        const uintptr_t offset = cell + i - address;  // wraps below `address`
        if (offset < bytes)
          reinterpret_cast<unsigned char*>(&value)[i] = static_cast<const unsigned char*>(before)[offset];
      }
    }
    const uintptr_t eight = cell / 8 * 8;
    const bool wide = address <= eight && eight + 8 <= address + bytes;
    // The stores of a line are seen early together, as those of one delay are.
    const uint32_t draw = a.at_once ? static_cast<uint32_t>(delayed) : chosen.draw;
    r = {number, *step_ + delayed, value, a.group, a.lane, a.epoch, draw, wide, a.at_once, change};
    if (at != nullptr && cell == address / 4 * 4) p->keep_older(address, {number, *at});
  });
}

variable* store_buffer::come_before(actor& a, uintptr_t address, const uint32_t (&words)[2], size_t bytes,
                                    const variable& now) {
  if (a.at_once || a.group == 0 || detector_.groups[a.group].width == 0 || address % bytes != 0) return nullptr;
  page* const p = detector_.memory.find(address);
  replaced* const all = p == nullptr ? nullptr : p->replaced_cells();
  if (all == nullptr) return nullptr;
  replaced* const r = &all[address % page::bytes / 4];
  const bool whole = bytes == 8 ? r[0].wide && r[1].store == r[0].store : !r[0].wide;
  if (r[0].store == 0 || r[0].line || r[0].change || !whole || visible(r[0], a)) return nullptr;
  if (epoch_of(released_, r[0].group, r[0].lane) >= r[0].epoch) return nullptr;
  detail::random_choice random(seed_ ^ detector_.groups[a.group].key ^ uint64_t{a.lane} << 40 ^ ++a.stores);
  if ((random.next() & 1) != 0) return nullptr;
  for (size_t i = 0; i < bytes / 4; ++i) r[i].value = words[i];
  const older_variable_of* const kept = p->older(address);
  if (kept == nullptr || kept->store != r[0].store) p->keep_older(address, {r[0].store, now});
  return &p->older(address)->what;
}

bool store_buffer::visible(const replaced& r, const actor& a) const {
  if (*step_ >= r.until) return true;
  if (detector_.tasks[detector_.groups[r.group].task].done()) return true;
  if (follows(a, r.group, r.lane, r.epoch)) return true;
  return std::any_of(observers_.begin(), observers_.end(),
                     [&](const observer& o) { return o.store == r.store && follows(a, o.group, o.lane, o.epoch); });
}

bool store_buffer::follows(const actor& a, uint32_t group, uint32_t lane, uint32_t epoch) const {
  if (a.group == group && a.lane == lane) return true;
  if (!a.known) return false;
  if (a.known->of(group, lane) >= epoch) return true;
  return std::any_of(lines_.begin(), lines_.end(), [&](const fence_line& line) {
    const uint32_t passed = a.known->of(line.group, 0);
    if (line.recent.empty() || passed < line.recent.front().number) return false;
    return line.recent[passed - line.recent.front().number].before->of(group, lane) >= epoch;
  });
}

/// One block in four.
bool store_buffer::early(const replaced& r, const actor& a) const {
  return (detail::random_choice(seed_ ^ detector_.groups[a.group].key ^ uint64_t{r.draw} << 20).next() & 3) == 0;
}

void store_buffer::note_observer(const replaced& r, actor& a) {
  const auto past = [&](const observer& o) { return *step_ >= o.until; };
  observers_.erase(std::remove_if(observers_.begin(), observers_.end(), past), observers_.end());
  observers_.push_back({r.store, r.until, a.group, a.lane, a.epoch});
  a.dirty = true;  // so that others who learn of it know this epoch
}

replaced* store_buffer::find(actor& a, uintptr_t address, size_t bytes) {
  page* const p = detector_.memory.find(address);
  replaced* const all = p == nullptr ? nullptr : p->replaced_cells();
  if (all == nullptr) return nullptr;
  replaced* const first = &all[address % page::bytes / 4];
  const size_t cells = bytes > 4 ? 2 : 1;
  if (a.group != 0 && detector_.groups[a.group].width != 0 && first->store != 0 && !visible(*first, a) &&
      !early(*first, a) && (cells == 1 || first[1].store == first->store)) {
    return first;
  }
  observe(a, address, bytes);
  return nullptr;
}

void store_buffer::observe(actor& a, uintptr_t address, size_t bytes) {
  page* p = nullptr;
  for_each_cell(address, bytes, [&](uintptr_t cell) {
    if (p == nullptr || cell % page::bytes == 0) p = detector_.memory.find(cell);
    replaced* const all = p == nullptr ? nullptr : p->replaced_cells();
    if (all == nullptr) return;
    const replaced& r = all[cell % page::bytes / 4];
    if (r.store == 0 || visible(r, a)) return;
    if (a.group != 0 && early(r, a))
      note_observer(r, a);
    else
      drain(all, cell);
  });
}

void store_buffer::drain(replaced* cells, uintptr_t address) {
  replaced& r = cells[address % page::bytes / 4];
  replaced& other = cells[(address ^ 4) % page::bytes / 4];
  if (other.store == r.store) other.store = 0;
  r.store = 0;
}

/// Eight bytes that one store wrote are read as one; others are not.
void store_buffer::show_previous(actor& a, uintptr_t address, size_t bytes) {
  const uintptr_t end = address + bytes;
  for (uintptr_t at = address / 4 * 4; at < end;) {
    page* const p = detector_.memory.find(at);
    replaced* const all = p == nullptr ? nullptr : p->replaced_cells();
    if (all == nullptr) {
      at = at / page::bytes * page::bytes + page::bytes;
      continue;
    }
    const replaced* const cell = &all[at % page::bytes / 4];
    const bool both = at % 8 == 0 && at + 4 < end && (cell[0].wide || cell[1].wide);
    show_cells(a, at, both ? 8 : 4);
    at += both ? 8 : 4;
  }
}

void store_buffer::show_cells(actor& a, uintptr_t address, size_t bytes) {
  const replaced* const r = find(a, address, bytes);
  if (r == nullptr) return;
  for (size_t i = 0; i < bytes / 4; ++i) {
    auto* const word = reinterpret_cast<uint32_t*>(address) + i;
    shown_.push_back({word, r[i].value, *word});
    __atomic_store_n(word, r[i].value, __ATOMIC_RELAXED);
  }
}

void store_buffer::restore_shown() {
  for (const shown& s : shown_) {
    // Code that is not instrumented may have stored meanwhile.
    uint32_t expected = s.value;
    __atomic_compare_exchange_n(s.address, &expected, s.kept, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  }
  shown_.clear();
}

variable* store_buffer::older_variable(uintptr_t address, uint64_t store, variable* now) const {
  older_variable_of* const kept = detector_.memory.find(address)->older(address);
  return kept != nullptr && kept->store == store ? &kept->what : now;
}

/// A line begins with the first fence of its scope; the wider ones before that are in the next wider line.
store_buffer::fence_line* store_buffer::line_of(reach scope, const place& where, bool make) {
  const uint64_t key = scope == reach::system   ? 0
                       : scope == reach::device ? uint64_t{1} << 32 | static_cast<uint32_t>(where.device)
                                                : uint64_t{2} << 32 | where.group;
  const auto found = std::find_if(lines_.begin(), lines_.end(), [&](const fence_line& l) { return l.key == key; });
  if (found != lines_.end()) return &*found;
  if (!make) return nullptr;
  fence_line made{key, detector_.new_counter(), 0, {}};
  if (scope != reach::system) {
    const fence_line* wider = scope == reach::block ? line_of(reach::device, where, false) : nullptr;
    if (wider == nullptr) wider = line_of(reach::system, where, false);
    if (wider != nullptr && !wider->recent.empty())
      made.recent.push_back({++made.fences, wider->recent.back().step, wider->recent.back().before});
  }
  lines_.push_back(std::move(made));
  return &lines_.back();
}

void store_buffer::join_line(fence_line& line, actor& a) {
  while (!line.recent.empty() && line.recent.front().step + longest_ < *step_) line.recent.pop_front();
  clock_reference before = line.recent.empty() ? clock_reference() : line.recent.back().before;
  join(before, a.publish());
  if (!before) before = clock_reference(new clock);
  line.recent.push_back({++line.fences, *step_, before});
  raise(a.known, line.group, 1, 0, line.fences);
}

void store_buffer::release(const actor& a) {
  if (a.group == 0 || a.scope == reach::block) return;
  join(released_, a.known);
  raise(released_, a.group, a.width, a.lane, a.dirty ? a.epoch : a.epoch - 1);
}

void store_buffer::sequential_fence(actor& a) {
  if (a.group == 0) return;
  for (const reach scope : {reach::system, reach::device, reach::block}) {
    if (scope > a.scope) continue;
    if (fence_line* const line = line_of(scope, a.at(), scope == a.scope)) join_line(*line, a);
  }
}

}  // namespace devcomm::simulator::race
