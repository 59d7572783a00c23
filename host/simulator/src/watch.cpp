/// Fibers that wait for memory to change or for time to pass.
///
/// A fiber that looks at the same memory again and again, and keeps finding the same, leaves the
/// runnable ones; the scheduler looks in its place, and wakes it when that memory differs from what it
/// found. As a loop may look at other things only every so many rounds, a fiber that would wait for
/// ever is woken `look_again` times in vain before it counts as stuck.
#include "engine.hpp"
#include "explorer.hpp"
#include "grid.hpp"
#include "host_accesses.hpp"
#include "random.hpp"
#include "warp.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <algorithm>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

constexpr uint32_t spins_before_sleep = 16;
constexpr uint32_t look_again = 600;
constexpr uint32_t look_again_exploring = 2;
/// Nanoseconds before a wait reads host memory, and from one such read of a rank to the next. Longer than on GPUs, as a
/// wait is told when the host has something to say.
constexpr uint64_t first_host_turn = 200000;
constexpr uint64_t host_interval = 1000000000;
/// Deadlines past it (292 years) never come, so that the clock cannot wrap around.
constexpr uint64_t end_of_time = never / 2;

template <class T>
uint64_t read(const void* p) {
  return __atomic_load_n(static_cast<const T*>(p), __ATOMIC_RELAXED);
}

uint64_t read(const watch& w) {
  switch (w.bytes) {
    case 1: return read<uint8_t>(w.address);
    case 2: return read<uint16_t>(w.address);
    case 4: return read<uint32_t>(w.address);
    default: return read<uint64_t>(w.address);
  }
}

bool changed(const watch_list& list) {
  return std::any_of(list.entries.begin(), list.entries.end(), [](const watch& w) { return read(w) != w.value; });
}

/// Whether the host has something to tell a wait, that no thread of its rank has told yet.
bool host_calls(const fiber& f) {
  return f.label != nullptr && f.host_word != nullptr && read<uint32_t>(f.host_word) != 0 &&
         read<uint32_t>(f.abort_word) == 0;
}

bool same_place(const watch& a, const watch& b) { return a.address == b.address && a.bytes == b.bytes; }

void forget(watch_list& list) {
  list.entries.clear();
  list.next = 0;
  list.repeats = 0;
  list.patience = 0;
}

/// Where in the list that place is; its size if nowhere. Loops look at their places in one order.
size_t find(const watch_list& list, const watch& seen) {
  if (list.next < list.entries.size() && same_place(list.entries[list.next], seen)) return list.next;
  const auto same = [&](const watch& known) { return same_place(known, seen); };
  return static_cast<size_t>(std::find_if(list.entries.begin(), list.entries.end(), same) - list.entries.begin());
}

/// Remembers one look of `f`; whether it found nothing new.
bool remember(fiber& f, const watch& seen) {
  watch_list& list = f.watches;
  size_t place = find(list, seen);
  const bool known = place < list.entries.size();
  const bool same = known && list.entries[place].value == seen.value;
  if (known) {
    list.entries[place].value = seen.value;
  } else {
    if (f.label == nullptr && place == watch_list::most_of_loop) {
      forget(list);
      place = 0;
    }
    sanitizer::append(list.entries, seen);
  }
  list.next = place + 1 < list.entries.size() ? place + 1 : 0;
  return same;
}

/// What has changed since it was looked at is looked at again soon, or the loop that goes on does not look at it.
void forget_changed(watch_list& list) {
  std::erase_if(list.entries, [](const watch& w) { return read(w) != w.value; });
  list.next = 0;
  list.patience = 0;  // it may be far from what has changed
}

/// The running fiber sleeps until what it watches changes or `wake_time` comes.
void sleep_on_memory(fiber& f) {
  engine& e = the_engine();
  // A look of many lanes takes time, and may have found two values in one place.
  const bool called = f.waits_with_warp && (f.saw_change || awaited_by_lanes(*f.home, f));
  f.saw_change = false;
  if (called || f.watches.entries.empty() || changed(f.watches) || host_calls(f)) {
    if (f.label == nullptr) forget_changed(f.watches);
    e.reschedule();
    return;
  }
  if (e.order.explored_by() != nullptr) e.order.explored_by()->found_nothing(f);
  f.home->suspend(f, fiber_state::polling);
  e.add_waiting(f);
  e.reschedule();
}

/// When to look again at the latest: a loop that also reads the clock may end by itself.
void limit_sleep(fiber& f) {
  const uint64_t now = the_engine().now;
  f.wake_time = f.reads_clock ? now + std::max<uint64_t>(1000, (now - f.wait_start) / 8) : never;
  f.reads_clock = false;
}

/// A look at the same memory from the same place in the program that finds the same is one in vain.
void looked_exploring(fiber& f, const watch& seen, const void* place) {
  if (f.labels) return;
  const engine& e = the_engine();
  watch_list& list = f.watches;
  const bool same = remember(f, seen);
  if (f.label != nullptr) {
    if (e.order.explored_by() != nullptr)
      e.order.explored_by()->touches(f, seen.address, seen.bytes, false, seen.value);
    return;
  }
  const sanitizer::unobserved hidden;
  const size_t entry = list.next == 0 ? list.entries.size() - 1 : list.next - 1;
  f.places.resize(std::max(f.places.size(), entry + 1));
  const bool again = same && f.places[entry] == place;
  f.places[entry] = place;
  if (again) {
    if (e.order.explored_by() != nullptr)
      e.order.explored_by()->touches(f, seen.address, seen.bytes, false, seen.value);
    if (list.repeats++ == 0) f.wait_start = e.now;
    limit_sleep(f);
    sleep_on_memory(f);
    return;
  }
  if (e.order.explored_by() != nullptr) e.order.explored_by()->touches(f, seen.address, seen.bytes, false, seen.value);
  if (!same) list.repeats = list.patience = 0;
  preempt();
}

/// Tells an exploration of a line: its data, and the last word, which alone decides whether a look is in vain.
void touches_line(const void* line, bool writes) {
  if (!exploring || the_engine().order.explored_by() == nullptr) return;
  explorer& e = *the_engine().order.explored_by();
  const auto* const words = static_cast<const uint64_t*>(line);
  uint64_t data = 0;
  for (int i = 0; i < 15; ++i) data = random_choice(data ^ read<uint64_t>(words + i)).next();
  e.touches(*this_fiber, line, 15 * sizeof *words, writes, data);
  e.touches(*this_fiber, words + 15, sizeof *words, writes, read<uint64_t>(words + 15));
}

/// The end of a labelled wait's look in vain: everything has been looked at, and the clock has been read. Here rather
/// than in `pause_wait`, so that what follows is all of the next look.
void sleep_until_worth_looking(fiber& f) {
  const engine& e = the_engine();
  f.paused = false;
  if (e.now >= f.deadline) return;
  f.wake_time = f.deadline;
  sleep_on_memory(f);
}

}  // namespace

void looked(const void* address, std::size_t bytes, uint64_t value) {
  fiber* f = this_fiber;
  if (f == nullptr) return;
  count_access(address);
  if (exploring) {
    looked_exploring(*f, {address, value, static_cast<uint32_t>(bytes)}, __builtin_return_address(0));
    return;
  }
  watch_list& list = f->watches;
  const bool same = remember(*f, {address, value, static_cast<uint32_t>(bytes)});
  if (f->label != nullptr) {
    if (!same) list.patience = 0;
    return;  // pause_wait() is where it sleeps
  }
  if (same) {
    if (list.repeats == 0) f->wait_start = the_engine().now;
    if (++list.repeats >= spins_before_sleep) {
      limit_sleep(*f);
      sleep_on_memory(*f);
      return;
    }
  } else {
    list.repeats = 0;
    list.patience = 0;
  }
  preempt();
}

void wrote(const void* address, std::size_t bytes) {
  fiber* f = this_fiber;
  if (f == nullptr) return;
  count_access(address);
  if (exploring) {
    explorer* const e = the_engine().order.explored_by();
    if (e != nullptr) e->touches(*f, address, bytes, true, read({address, 0, static_cast<uint32_t>(bytes)}));
  }
  if (f->label == nullptr) forget(f->watches);
  preempt();
}

void begin_line() { sanitizer::stores_are_one(true); }

void wrote_line(const void* line) {
  sanitizer::stores_are_one(false);
  touches_line(line, true);
  if (this_fiber->label == nullptr) forget(this_fiber->watches);
  preempt();
}

void looked_at_line(const void* line) {
  touches_line(line, false);
  if (this_fiber->label == nullptr) preempt();
}

void looked_with_others(const void* address, uint64_t value) {
  fiber& f = *this_fiber;
  if (f.label == nullptr) return;
  f.waits_with_warp = true;
  if (remember(f, {address, value, sizeof value})) return;
  f.watches.patience = 0;
  f.saw_change = true;
}

void begin_label() { this_fiber->labels = exploring; }

void begin_wait(const devcomm::detail::wait_label& label, const uint32_t* abort_word, const uint32_t* host_word) {
  fiber& f = *this_fiber;
  forget(f.watches);
  f.labels = false;
  f.label = &label;
  f.abort_word = abort_word;
  f.host_word = host_word;
  f.paused = false;
  f.waits_with_warp = f.saw_change = false;
  f.deadline = never;
}

void end_wait() {
  fiber& f = *this_fiber;
  forget(f.watches);
  f.label = nullptr;
  if (!exploring) return;
  // A look that has found what it waits for would have ended the wait without it, had the abort word been set.
  explorer* const e = the_engine().order.explored_by();
  if (e != nullptr && f.abort_word != nullptr) {
    e->touches(f, f.abort_word, sizeof *f.abort_word, false, read<uint32_t>(f.abort_word));
  }
  preempt();
}

void pause_wait() {
  fiber& f = *this_fiber;
  engine& e = the_engine();
  // The first round only gives way: by its end the loop has looked at everything once.
  if (!f.paused || exploring) {
    f.paused = true;
    if (!exploring) e.reschedule();
    return;
  }
  f.wake_time = f.deadline;
  sleep_on_memory(f);
}

bool host_turn(uint64_t* turn, uint64_t now, uint64_t waited) {
  const fiber* f = this_fiber;
  if (f != nullptr && host_calls(*f)) return true;
  if (exploring || waited < first_host_turn) return false;
  const uint64_t current = now / host_interval;
  return std::exchange(*turn, current) != current;  // blocks of a rank run by turns
}

uint64_t clock_now() {
  engine& e = the_engine();
  e.now += engine::step_time;
  e.follow_real_time();
  const uint64_t now = e.now;
  fiber* f = this_fiber;
  if (f == nullptr) return now;
  if (f->label != nullptr) {
    if (f->deadline == never && f->label->budget <= end_of_time - now) f->deadline = now + f->label->budget;
    if (exploring && f->paused) sleep_until_worth_looking(*f);
  } else {
    f->reads_clock = true;
    preempt();
  }
  return now;
}

void sleep_for(uint64_t nanoseconds) {
  fiber* f = this_fiber;
  if (f == nullptr || f->label != nullptr || exploring) return;  // a labelled wait sleeps until it is worth looking
  engine& e = the_engine();
  f->wake_time = e.now + std::min<uint64_t>(nanoseconds, 1000000);  // as on GPUs, at most a millisecond
  f->home->suspend(*f, fiber_state::sleeping);
  e.add_waiting(*f);
  e.reschedule();
}

void engine::add_waiting(fiber& f) {
  f.slot = static_cast<uint32_t>(waiting.size());
  sanitizer::append(waiting, &f);
}

void engine::remove_waiting(fiber& f) {
  fiber* last = waiting.back();
  waiting.pop_back();
  if (last != &f) {
    waiting[f.slot] = last;
    last->slot = f.slot;
  }
}

bool engine::peek() {
  bool woken = false;
  for (size_t i = 0; i < waiting.size();) {
    fiber& f = *waiting[i];
    const bool differs = f.state == fiber_state::polling && (changed(f.watches) || host_calls(f));
    if (!differs && f.wake_time > now) {
      ++i;
      continue;
    }
    if (differs) f.watches.patience = 0;
    remove_waiting(f);
    f.home->wake(f);
    woken = true;
  }
  return woken;
}

bool engine::wake_patient() {
  bool woken = false;
  for (size_t i = 0; i < waiting.size();) {
    fiber& f = *waiting[i];
    if (f.state != fiber_state::polling || f.watches.patience >= (exploring ? look_again_exploring : look_again) ||
        f.label != nullptr) {
      ++i;
      continue;
    }
    ++f.watches.patience;
    remove_waiting(f);
    f.home->wake(f);
    woken = true;
  }
  return woken;
}

uint64_t engine::next_wake_time() const {
  uint64_t first = never;
  for (const fiber* f : waiting) {
    // A wait that only the communicator's own limit would end is a deadlock, found at once.
    if (f->label != nullptr && !f->label->has_deadline) continue;
    first = std::min(first, f->wake_time);
  }
  return first;
}

}  // namespace devcomm::simulator::detail
