/// Fibers that wait for memory to change or for time to pass.
///
/// A fiber that looks at the same memory again and again, and keeps finding the same, leaves the
/// runnable ones; the scheduler looks in its place, and wakes it when that memory differs from what it
/// found. As a loop may look at other things only every so many rounds, a fiber that would wait for
/// ever is woken `look_again` times in vain before it counts as stuck.
#include "engine.hpp"
#include "grid.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <algorithm>

namespace devcomm::simulator::detail {
namespace {

constexpr uint32_t spins_before_sleep = 16;
constexpr uint32_t look_again = 600;
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
  for (uint32_t i = 0; i < list.count; ++i) {
    if (read(list.entries[i]) != list.entries[i].value) return true;
  }
  return false;
}

/// Remembers one look; whether it found nothing new.
bool remember(watch_list& list, const watch& seen) {
  for (uint32_t i = 0; i < list.count; ++i) {
    watch& known = list.entries[i];
    if (known.address != seen.address || known.bytes != seen.bytes) continue;
    const bool same = known.value == seen.value;
    known.value = seen.value;
    return same;
  }
  if (list.count == watch_list::capacity) {
    list.overflowed = true;
  } else {
    list.entries[list.count++] = seen;
  }
  return false;
}

void forget(watch_list& list) {
  list.count = 0;
  list.repeats = 0;
  list.patience = 0;
  list.overflowed = false;
}

/// The running fiber sleeps until what it watches changes or `wake_time` comes.
void sleep_on_memory(fiber& f) {
  engine& e = the_engine();
  if (f.watches.overflowed || f.watches.count == 0 || changed(f.watches)) {
    e.reschedule();
    return;
  }
  f.home->suspend(f, fiber_state::polling);
  e.add_waiting(f);
  e.reschedule();
}

}  // namespace

void looked(const void* address, std::size_t bytes, uint64_t value) {
  fiber* f = this_fiber;
  if (f == nullptr) return;
  watch_list& list = f->watches;
  const bool same = remember(list, {address, value, static_cast<uint32_t>(bytes)});
  if (f->label != nullptr) {
    if (!same) list.patience = 0;
    return;  // pause_wait() is where it sleeps
  }
  if (same) {
    if (list.repeats == 0) f->wait_start = the_engine().now;
    if (++list.repeats >= spins_before_sleep) {
      // A loop that also reads the clock may end by itself.
      f->wake_time = never;
      if (f->reads_clock)
        f->wake_time = the_engine().now + std::max<uint64_t>(1000, (the_engine().now - f->wait_start) / 8);
      f->reads_clock = false;
      sleep_on_memory(*f);
      return;
    }
  } else {
    list.repeats = 0;
    list.patience = 0;
    if (list.overflowed) forget(list);
  }
  preempt();
}

void wrote() {
  fiber* f = this_fiber;
  if (f == nullptr) return;
  if (f->label == nullptr) forget(f->watches);
  preempt();
}

void begin_wait(const devcomm::detail::wait_label& label) {
  fiber& f = *this_fiber;
  forget(f.watches);
  f.label = &label;
  f.paused = false;
  f.deadline = never;
}

void end_wait() {
  fiber& f = *this_fiber;
  forget(f.watches);
  f.label = nullptr;
}

void pause_wait() {
  fiber& f = *this_fiber;
  engine& e = the_engine();
  // The first round only gives way: by its end the loop has looked at everything once.
  if (!f.paused) {
    f.paused = true;
    e.reschedule();
    return;
  }
  f.wake_time = f.deadline;
  sleep_on_memory(f);
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
  } else {
    f->reads_clock = true;
    preempt();
  }
  return now;
}

void sleep_for(uint64_t nanoseconds) {
  fiber* f = this_fiber;
  if (f == nullptr || f->label != nullptr) return;  // a labelled wait sleeps until it is worth looking
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
    const bool differs = f.state == fiber_state::polling && changed(f.watches);
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
    if (f.state != fiber_state::polling || f.watches.patience >= look_again || f.label != nullptr) {
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
