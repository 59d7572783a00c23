/// Fibers that wait for memory to change or for time to pass.
///
/// A fiber that polls the same memory and keeps reading the same values is removed from the runnable set. The scheduler
/// polls in its place and wakes it when a value differs from what the fiber read. A loop may poll further words only
/// every few iterations, and a store may be delayed, so a fiber that would otherwise wait for ever is woken
/// `poll_retries()` times before it counts as stuck.
#include "base/random.hpp"
#include "engine/engine.hpp"
#include "engine/explorer.hpp"
#include "engine/fiber.hpp"
#include "engine/grid.hpp"
#include "engine/warp_operations.hpp"
#include "gpu/device_globals.hpp"
#include "gpu/host_accesses.hpp"

#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/simulator/detail/execution.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

constexpr uint32_t spin_limit = 16;
/// Nanoseconds before a wait reads host memory, and between two such reads of a rank: those of GPUs.
constexpr uint64_t first_host_turn = 200000;
constexpr uint64_t host_interval = 1 << 18;
/// Deadlines past it (292 years) never come, so that the clock cannot wrap around.
constexpr uint64_t end_of_time = never / 2;

bool exploring(const fiber& f) { return f.home->simulation.order.explores(); }

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

/// Whether one of the words that it watches has another value; those of its GPU may not be in place.
bool changed(const fiber& f) {
  return std::any_of(f.watches.entries.begin(), f.watches.entries.end(), [&](watch w) {
    w.address = global_of(f.home->device, w.address);
    return read(w) != w.value;
  });
}

/// Whether the host ends this wait, and no thread of the rank has set the abort word yet: by its own word, or because
/// the peer has left.
bool host_calls(const fiber& f) {
  if (f.label == nullptr || f.log == nullptr || read<uint32_t>(f.abort_word) != 0) return false;
  if (read<uint32_t>(&f.log->abort) != 0) return true;
  const int32_t peer = f.label->peer;
  return read<uint32_t>(&f.log->departures) != 0 && peer >= 0 &&
         (read<uint32_t>(f.log->departed_word(peer)) >> peer % 32 & 1) != 0;
}

bool awaits_no_more(const fiber& f) { return changed(f) || host_calls(f); }

bool same_word(const watch& a, const watch& b) { return a.address == b.address && a.bytes == b.bytes; }

void forget(watch_list& list) {
  list.entries.clear();
  list.cursor = 0;
  list.repeats = 0;
  list.retries = 0;
}

/// The index of that word in the list; its size if it is not there. Loops poll their words in a fixed order.
size_t find(const watch_list& list, const watch& seen) {
  if (list.cursor < list.entries.size() && same_word(list.entries[list.cursor], seen)) return list.cursor;
  const auto same = [&](const watch& known) { return same_word(known, seen); };
  return static_cast<size_t>(std::find_if(list.entries.begin(), list.entries.end(), same) - list.entries.begin());
}

/// Records one load of `f`; whether it found the value of the load before.
bool remember(fiber& f, const watch& seen) {
  watch_list& list = f.watches;
  size_t index = find(list, seen);
  const bool known = index < list.entries.size();
  const bool same = known && list.entries[index].value == seen.value;
  if (known) {
    list.entries[index].value = seen.value;
  } else {
    if (f.label == nullptr && index == watch_list::max_polled_words) {
      forget(list);
      index = 0;
    }
    sanitizer::append(list.entries, seen);
  }
  list.cursor = index + 1 < list.entries.size() ? index + 1 : 0;
  return same;
}

/// A word that has changed is either polled again soon, or the loop no longer polls it.
void forget_changed(watch_list& list) {
  std::erase_if(list.entries, [](const watch& w) { return read(w) != w.value; });
  list.cursor = 0;
  list.retries = 0;  // it may be far from what has changed
}

/// The running fiber sleeps until what it watches changes or `wake_time` comes.
void sleep_on_memory(fiber& f) {
  engine& e = f.home->simulation;
  // A poll by many lanes takes time, and may have read two values of one word.
  const bool called = f.waits_with_warp && (f.saw_change || awaited_by_lanes(*f.home, f));
  f.saw_change = false;
  if (called || f.watches.entries.empty() || changed(f) || host_calls(f)) {
    if (f.label == nullptr) forget_changed(f.watches);
    e.reschedule();
    return;
  }
  if (e.explored_by != nullptr) e.explored_by->poll_failed(f);
  f.home->suspend(f, fiber_state::polling);
  e.add_waiting(f);
  e.reschedule();
}

/// When to poll again at the latest: a loop that also reads the clock may end by itself.
void limit_sleep(fiber& f) {
  const uint64_t now = f.home->simulation.now;
  f.wake_time = f.reads_clock ? now + std::max<uint64_t>(1000, (now - f.wait_start) / 8) : never;
  f.reads_clock = false;
}

/// A load of the same words by the same instruction that finds the same values is an unsuccessful poll.
void loaded_exploring(fiber& f, std::span<const watch> words, const void* call_site) {
  if (f.labels) return;
  const engine& e = f.home->simulation;
  watch_list& list = f.watches;
  const sanitizer::unobserved hidden;
  bool same = true;
  bool again = true;
  for (const watch& seen : words) {
    same = remember(f, seen) && same;
    if (f.label != nullptr) continue;
    const size_t entry = list.cursor == 0 ? list.entries.size() - 1 : list.cursor - 1;
    f.call_sites.resize(std::max(f.call_sites.size(), entry + 1));
    again = again && f.call_sites[entry] == call_site;
    f.call_sites[entry] = call_site;
  }
  for (const watch& seen : words) {
    if (e.explored_by != nullptr) e.explored_by->touches(f, seen.address, seen.bytes, false, seen.value);
  }
  if (f.label != nullptr) return;
  if (same && again) {
    if (list.repeats++ == 0) f.wait_start = e.now;
    limit_sleep(f);
    sleep_on_memory(f);
    return;
  }
  if (!same) list.repeats = list.retries = 0;
  preempt();
}

/// Reports an access to a line to the exploration: its data, and the last word, which alone decides whether a poll
/// succeeds.
void touches_line(const void* line, bool writes) {
  if (this_fiber->home->simulation.explored_by == nullptr) return;
  explorer& e = *this_fiber->home->simulation.explored_by;
  const auto* const words = static_cast<const uint64_t*>(line);
  uint64_t data = 0;
  for (int i = 0; i < 15; ++i) data = random_choice(data ^ read<uint64_t>(words + i)).next();
  e.touches(*this_fiber, line, 15 * sizeof *words, writes, data);
  e.touches(*this_fiber, words + 15, sizeof *words, writes, read<uint64_t>(words + 15));
}

/// Ends an unsuccessful poll of a labeled wait: all words have been loaded, and the clock has been read. Called from
/// here and not from `pause_wait`, so that everything that follows belongs to the next poll.
void sleep_until_change(fiber& f) {
  const engine& e = f.home->simulation;
  f.paused = false;
  if (e.now >= f.deadline) return;
  f.wake_time = f.deadline;
  sleep_on_memory(f);
}

}  // namespace

void loaded(const void* address, std::size_t bytes, uint64_t value) {
  fiber* f = this_fiber;
  if (f == nullptr) return;
  count_access(address);
  if (exploring(*f)) {
    const watch seen{address, value, static_cast<uint32_t>(bytes)};
    loaded_exploring(*f, {&seen, 1}, __builtin_return_address(0));
    return;
  }
  watch_list& list = f->watches;
  const bool same = remember(*f, {address, value, static_cast<uint32_t>(bytes)});
  if (f->label != nullptr) {
    if (!same) list.retries = 0;
    return;  // pause_wait() is where it sleeps
  }
  if (same) {
    if (list.repeats == 0) f->wait_start = f->home->simulation.now;
    if (++list.repeats >= spin_limit) {
      limit_sleep(*f);
      sleep_on_memory(*f);
      return;
    }
  } else {
    list.repeats = 0;
    list.retries = 0;
  }
  preempt();
}

bool loads_at_once() noexcept { return this_fiber != nullptr && exploring(*this_fiber); }

void loaded_at_once(const uint64_t* address, const uint64_t* values, int count) {
  if (!loads_at_once()) return;
  watch words[max_loaded_at_once];
  for (int i = 0; i < count; ++i) words[i] = {address + i, values[i], sizeof *address};
  loaded_exploring(*this_fiber, {words, static_cast<size_t>(count)}, __builtin_return_address(0));
}

void stored(const void* address, std::size_t bytes) {
  fiber* f = this_fiber;
  if (f == nullptr) return;
  count_access(address);
  if (exploring(*f)) {
    explorer* const e = f->home->simulation.explored_by;
    if (e != nullptr) e->touches(*f, address, bytes, true, read({address, 0, static_cast<uint32_t>(bytes)}));
  }
  if (f->label == nullptr) forget(f->watches);
  preempt();
}

void begin_line() { sanitizer::stores_are_one(true); }

void stored_line(const void* line) {
  sanitizer::stores_are_one(false);
  touches_line(line, true);
  if (this_fiber->label == nullptr) forget(this_fiber->watches);
  preempt();
}

void loaded_line(const void* line) {
  touches_line(line, false);
  if (this_fiber->label == nullptr) preempt();
}

void loaded_with_warp(const void* address, uint64_t value) {
  fiber& f = *this_fiber;
  if (f.label == nullptr) return;
  f.waits_with_warp = true;
  if (remember(f, {address, value, sizeof value})) return;
  f.watches.retries = 0;
  f.saw_change = true;
}

void begin_label() { this_fiber->labels = exploring(*this_fiber); }
void end_label() { this_fiber->labels = false; }

void begin_wait(const devcomm::detail::wait_label& label, const uint32_t* abort_word, failure_log* log) {
  fiber& f = *this_fiber;
  forget(f.watches);
  f.labels = false;
  f.label = &label;
  f.abort_word = abort_word;
  f.log = log;
  f.paused = false;
  f.waits_with_warp = f.saw_change = false;
  f.deadline = never;
}

void end_wait() {
  fiber& f = *this_fiber;
  forget(f.watches);
  f.label = nullptr;
  if (!exploring(f)) return;
  // A successful poll would have ended the wait as aborted, had the abort word been set before.
  explorer* const e = f.home->simulation.explored_by;
  if (e != nullptr && f.abort_word != nullptr) {
    e->touches(f, f.abort_word, sizeof *f.abort_word, false, read<uint32_t>(f.abort_word));
  }
  preempt();
}

void pause_wait() {
  fiber& f = *this_fiber;
  // The first round only yields: by its end the loop has loaded all its words once.
  if (!f.paused || exploring(f)) {
    f.paused = true;
    if (!exploring(f)) f.home->simulation.reschedule();
    return;
  }
  f.wake_time = f.deadline;
  sleep_on_memory(f);
}

bool host_turn(uint64_t* turn, uint64_t now, uint64_t waited) {
  const fiber* f = this_fiber;
  if (f != nullptr && exploring(*f)) return host_calls(*f);  // time means nothing there
  if (waited < first_host_turn) return false;
  if (f != nullptr && host_calls(*f)) return true;
  const uint64_t current = now / host_interval + 1;  // never 0, which the word starts with
  return std::exchange(*turn, current) != current;   // blocks of a rank run one at a time
}

uint64_t read_clock(fiber& f) {
  const uint64_t now = f.home->simulation.read_clock();
  if (f.label != nullptr) {
    if (f.deadline == never && f.label->budget <= end_of_time - now) f.deadline = now + f.label->budget;
    if (exploring(f) && f.paused) sleep_until_change(f);
  } else {
    f.reads_clock = true;
    preempt();
  }
  return now;
}

void sleep_for(uint64_t nanoseconds) {
  fiber* f = this_fiber;
  if (f == nullptr || f->label != nullptr || exploring(*f)) return;  // a labeled wait sleeps until a word changes
  engine& e = f->home->simulation;
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
    const bool differs = f.state == fiber_state::polling && (f.spins ? may_see_change(f) : awaits_no_more(f));
    if (!differs && f.wake_time > now) {
      ++i;
      continue;
    }
    if (differs) f.watches.retries = 0;
    remove_waiting(f);
    f.home->wake(f);
    woken = true;
  }
  return woken;
}

/// A loop over memory that the simulator does not see may go on once others have done something; at once if nobody can
/// run.
bool engine::may_see_change(const fiber& f) const {
  const uint64_t done = progress - f.spin_progress;
  return done > (ready_blocks.empty() ? 0 : 64);
}

/// Each wakes all that wait, and takes a step at least: then every delayed store has been seen.
uint32_t engine::poll_retries() const {
  constexpr uint32_t usual = 600;
  constexpr uint32_t exploring = 2;
  return order.explores() ? exploring : usual + static_cast<uint32_t>(std::min<uint64_t>(config.store_delay, 1u << 20));
}

bool engine::wake_pollers() {
  bool woken = false;
  for (size_t i = 0; i < waiting.size();) {
    fiber& f = *waiting[i];
    if (f.state != fiber_state::polling || f.watches.retries >= poll_retries() || f.label != nullptr) {
      ++i;
      continue;
    }
    ++f.watches.retries;
    remove_waiting(f);
    f.home->wake(f);
    woken = true;
  }
  return woken;
}

uint64_t engine::next_wake_time(uint64_t end_of_limits) const {
  uint64_t first = never;
  for (const fiber* f : waiting) {
    // A wait that only the communicator's own limit would end is a deadlock, reported at once.
    if (f->label != nullptr && !f->label->has_deadline && f->wake_time > end_of_limits) continue;
    first = std::min(first, f->wake_time);
  }
  return first;
}

}  // namespace devcomm::simulator::detail
