#include "race/detector.hpp"

#include "gpu/device_globals.hpp"
#include "gpu/device_memory.hpp"

#include "base/race_port.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>

extern "C" char end;  // of the program's variables, by the linker

namespace devcomm::simulator::race {
namespace {

bool locked = false;
__thread bool holding = false;
__thread actor* current = nullptr;

}  // namespace

guard::guard() {
  // Short, and nearly never contended: simulated threads run one at a time.
  for (int tries = 0; __atomic_exchange_n(&locked, true, __ATOMIC_ACQUIRE); ++tries) {
    if (tries > 50) sched_yield();
  }
  holding = true;
}

guard::~guard() {
  holding = false;
  __atomic_store_n(&locked, false, __ATOMIC_RELEASE);
}

void guard::survive_forks() {
  pthread_atfork(
      [] {
        while (__atomic_exchange_n(&locked, true, __ATOMIC_ACQUIRE)) sched_yield();
      },
      [] { __atomic_store_n(&locked, false, __ATOMIC_RELEASE); },
      [] { __atomic_store_n(&locked, false, __ATOMIC_RELEASE); });
}

bool guard::held() { return holding; }

detector& the_detector() {
  static detector* only = nullptr;  // never ends: hosts' destructors still access memory
  detector* d = __atomic_load_n(&only, __ATOMIC_ACQUIRE);
  if (d != nullptr) return *d;
  const guard hold;
  d = only;
  if (d == nullptr) {
    d = new detector;
    __atomic_store_n(&only, d, __ATOMIC_RELEASE);
  }
  return *d;
}

actor& self() {
  actor* a = current;
  if (a == nullptr) current = a = new actor;
  return *a;
}

void become(actor* a) { current = a; }

bool detector::ordered(const record& r, const actor& after) const {
  if (r.group == after.group && r.lane() == after.lane) return true;
  return known_done(r, after.known);
}

bool detector::known_done(const record& r, const clock_reference& known) const {
  if (!known) return false;
  if (known->of(r.group, r.lane()) >= r.epoch) return true;
  const group_facts& g = groups[r.group];
  if (g.width == 0) return false;
  const task_facts& t = tasks[g.task];
  return known->of(t.chain, 0) >= t.epoch;
}

bool detector::fenced(const record& r, const actor& after) const {
  if (epoch_of(after.fenced.alias, r.group, r.lane()) >= r.epoch) return true;
  // Copies and the host see launches that have ended.
  return groups[after.group].width == 0 || of_ended_launch(r, after);
}

bool detector::of_ended_launch(const record& r, const actor& after) const {
  const group_facts& g = groups[r.group];
  if (g.width == 0) return true;
  const task_facts& t = tasks[g.task];
  return epoch_of(after.known, t.chain, 0) >= t.epoch;
}

bool detector::lacks_async_fence(const record& r, const record& now, const actor& after) const {
  if (!after.async_proxy || !r.writes() || (r.bytes() & now.bytes()) == 0) return false;
  return epoch_of(after.fenced.async, r.group, r.lane()) < r.epoch && !of_ended_launch(r, after);
}

void detector::read_only(const actor& a, uintptr_t address, size_t bytes, uint64_t code, bool restricted) {
  if (a.ignored > 0 || a.group == 0 || groups[a.group].width == 0) return;
  const uintptr_t end = address + bytes;
  for (uintptr_t at = address; at < end; at = at / 4 * 4 + 4) {
    page* const p = memory.find(at);
    if (p == nullptr || !p->watched(at)) continue;
    const uintptr_t next = std::min(end, at / 4 * 4 + 4);
    const uint64_t mask = ((uint64_t{1} << (next - at)) - 1) << (at % 4);
    const record now = record::make(a.group, a.lane, a.epoch, code, 0, mask);
    size_of(code) = {code, bytes};
    p->at(at).for_each([&](const record& r) {
      if (r.writes() && (r.bytes() & mask) != 0 && !known_done(r, a.at_launch))
        report_not_coherent(r, now, at, restricted);
    });
  }
}

/// Atomic accesses need no order among themselves where the scope of each includes the other's thread and both are of
/// one size.
bool detector::races(const record& earlier, const record& now) const {
  if (!earlier.is_atomic() || !now.is_atomic() || overlap_in_part(earlier, now)) return true;
  return !include_each_other(place_of(earlier), static_cast<reach>(earlier.scope()), place_of(now),
                             static_cast<reach>(now.scope()));
}

place detector::place_of(const record& r) const { return {r.group, task_of(r).device}; }

const task_facts& detector::task_of(const record& r) const {
  const group_facts& g = groups[r.group];
  uint32_t task = g.task;
  for (const auto& [first, number] : g.tasks) {
    if (first <= r.epoch) task = number;
  }
  return tasks[task];
}

namespace {

/// Whether `r` is an atomic store or change from which a value comes that the thread has loaded: the last block, whose
/// addition found those of all others, may reset the counter by a plain store.
bool is_in_history(const record& r, const actor& a, uintptr_t address) {
  if (!r.is_atomic() || !r.writes()) return false;
  const value_history* const history = a.history_at(r.is_wide != 0 ? address / 8 * 8 : address / 4 * 4);
  return history != nullptr && history->has(r.group, r.lane(), r.epoch);
}

}  // namespace

void detector::take_operation(const actor& a, uint32_t context, uint64_t number, uintptr_t word) {
  network_operation taken{a.epoch, context, number, {}, posts[word]};
  if (const publication* const post = variable_at(word, -1).released(); post != nullptr)
    taken.posted = record::make(post->what.group, post->what.lane, post->what.epoch, post->code, 0, 0);
  keep_operation(a, taken);
}

void detector::begin_copy(actor& copy, actor& by, const char* what, bool async_proxy) {
  copy.acquire(by.publish());
  copy.device = by.device;
  copy.async_proxy = async_proxy;
  task_facts facts;
  facts.device = by.device;
  facts.copy = what;
  join_chain(copy, facts);
  network_operation issued{};
  issued.epoch = copy.epoch;
  issued.posted = record::make(by.group, by.lane, by.epoch, 0, 0, 0);
  issued.poster.take();
  keep_operation(copy, issued);
}

void detector::keep_operation(const actor& a, const network_operation& one) {
  constexpr size_t most = 512;
  std::vector<network_operation>& own = operations[a.group];
  if (own.size() == most) own.erase(own.begin(), own.begin() + most / 2);
  own.push_back(one);
}

void detector::describe_operation(const actor& a, uint32_t context, uint64_t number, int peer, bool puts) {
  for (network_operation& each : operations[a.group]) {
    if (each.context != context || each.number != number) continue;
    each.peer = peer;
    each.puts = puts;
  }
}

void detector::access(actor& a, uintptr_t address, size_t bytes, uint64_t kind, uint64_t code) {
  if (a.ignored > 0) return;
  const uintptr_t end = address + bytes;
  page* p = nullptr;
  uintptr_t p_end = 0;
  while (address < end) {
    if (address >= p_end) {
      p = memory.find(address);
      p_end = address / page::bytes * page::bytes + page::bytes;
    }
    if (p == nullptr) {
      address = p_end;
      continue;
    }
    const uintptr_t next = std::min(end, address / 4 * 4 + 4);
    if (p->watched(address)) {
      if (a.group == 0) join_chain(a, task_facts());
      const uint64_t mask = (uint64_t{1} << (next - address)) - 1;
      record now = record::make(a.group, a.lane, a.epoch, code, kind, mask << (address % 4));
      if (a.multicast) now.how |= record::multicast;
      a.dirty = true;
      size_of(code) = {code, bytes};
      if (!p->ended().empty() && a.device != detail::network_device && !ordered(p->ended(), a))
        report_ended(now, p->ended(), address);
      p->at(address).access(
          now,
          [&](const record& r) {
            const bool before = ordered(r, a) || (!now.is_atomic() && is_in_history(r, a, address));
            if (before && needs_alias_fence(r, now) && !fenced(r, a)) report_alias(r, now, address);
            if (before && lacks_async_fence(r, now, a)) report_async(r, now, address);
            return before;
          },
          [&](const record& r) {
            if (races(r, now)) report(r, now, a, address);
          });
    } else {
      const uint64_t mask = ((uint64_t{1} << (next - address)) - 1) << (address % 4);
      check_end(a, record::make(a.group, a.lane, a.epoch, code, kind, mask), address, bytes);
    }
    address = next;
  }
}

namespace {

/// Allocations lie in one piece behind the program's variables: the detector's constructor sees to that.
bool is_on_heap(uintptr_t address) {
  const auto begin = reinterpret_cast<uintptr_t>(&end);
  constexpr uintptr_t most = uintptr_t{1} << 40;  // stacks and mappings are farther away
  return address >= begin && address - begin < most && address < reinterpret_cast<uintptr_t>(sbrk(0));
}

}  // namespace

void detector::check_side(uintptr_t address, size_t bytes, uint64_t kind, const void* code) {
  actor& a = self();
  if (a.ignored > 0) return;
  const bool on_heap = is_on_heap(address);
  if (!a.host && !on_heap) return;
  const guard hold;
  const auto place = reinterpret_cast<uint64_t>(code);
  const uint64_t mask = ((uint64_t{1} << std::min<size_t>(bytes, 4 - address % 4)) - 1) << (address % 4);
  const auto by = [&] { return record::make(a.group, a.lane, a.epoch, place, kind, mask); };
  auto next = spans.upper_bound(address);
  const span* const s = next != spans.begin() && address < std::prev(next)->first + std::prev(next)->second.bytes
                            ? &std::prev(next)->second
                            : nullptr;
  if (!a.host) {
    if (a.group == 0 || groups[a.group].width == 0 || s != nullptr) return;
    if (detail::is_host_range(reinterpret_cast<const void*>(address))) return;
    size_of(place) = {place, bytes};
    return report_side(by(), address, "a kernel accesses the host's heap",
                       "on a GPU this fails: copy it to device memory, or allocate it by cudaMallocHost");
  }
  if (s == nullptr || s->device < 0 || std::string_view(s->kind) == "pinned memory") return;
  report_side(by(), address, "the host accesses device memory",
              "on a GPU this fails: copy it by cudaMemcpy, or allocate it by cudaMallocHost");
}

void detector::check_end(const actor& a, const record& now, uintptr_t address, size_t bytes) {
  const group_facts& g = groups[a.group];
  if (a.group == 0 || (g.width == 0 && tasks[g.task].copy == nullptr)) return;
  if (end_before(address) == 0 && !is_behind_host_array(address)) return;
  size_of(now.code()) = {now.code(), bytes};
  report_end(now, address);
}

uintptr_t detector::end_before(uintptr_t address) const {
  const auto next = poisoned.upper_bound(address);
  if (next == poisoned.begin() || address >= std::prev(next)->first + std::prev(next)->second) return 0;
  return std::prev(next)->first;
}

bool detector::is_behind_host_array(uintptr_t address) const {
  const auto next = spans.upper_bound(address);
  if (next == spans.begin() || std::prev(next)->second.kind != std::string_view(detail::array_of_host)) return false;
  // Up to the next allocation of the heap, which may have what launches keep: 8 bytes are the C library's own, and the
  // next begins at a multiple of 16.
  const uintptr_t end = std::prev(next)->first + std::prev(next)->second.bytes;
  return address >= end && address < (end + 8 + 15) / 16 * 16;
}

variable& detector::variable_at(uintptr_t address, int device) {
  page* const p = memory.find(address);
  if (p != nullptr && p->watched(address)) return p->variable_at(address);
  constexpr int address_bits = 48;
  const bool of_device = detail::is_global(reinterpret_cast<const void*>(address));
  return elsewhere[of_device ? address | static_cast<uintptr_t>(device + 1) << address_bits : address];
}

void detector::watch(uintptr_t base, const span& s) {
  // The host reads pinned memory without instrumentation.
  memory.watch(base, s.bytes, std::string_view(s.kind) != "pinned memory");
  spans[base] = s;
}

void detector::forget(uintptr_t base, size_t bytes) {
  memory.forget(base, bytes);
  spans.erase(base);
}

void detector::poison(uintptr_t base, size_t bytes) {
  // Words are watched as a whole.
  const uintptr_t end = base + bytes;
  base = (base + 3) / 4 * 4;
  if (base >= end) return;
  memory.forget(base, end - base);
  poisoned[base] = end - base;
}

void detector::unpoison(uintptr_t base, size_t bytes) {
  poisoned.erase(poisoned.lower_bound(base), poisoned.lower_bound(base + bytes));
}

void detector::join_chain(actor& a, const task_facts& facts) {
  uint32_t chain = 0;
  if (a.known) {
    for (const clock::entry& e : a.known->entries) {
      const group_facts& g = groups[e.group];
      if (g.width != 0 || g.open || (*e.epochs)[0] < g.last_epoch) continue;
      chain = e.group;
      break;
    }
  }
  if (chain == 0) {
    chain = static_cast<uint32_t>(groups.size());
    groups.emplace_back();
  }
  group_facts& g = groups[chain];
  a.group = chain;
  a.lane = 0;
  a.width = 1;
  a.epoch = g.last_epoch + 1;
  a.dirty = false;
  g.open = true;
  g.tasks.emplace_back(a.epoch, static_cast<uint32_t>(tasks.size()));
  tasks.push_back(facts);
  tasks.back().chain = chain;
}

void detector::leave_chain(actor& a) {
  if (a.group == 0 || groups[a.group].width != 0) return;
  group_facts& g = groups[a.group];
  g.open = false;
  g.last_epoch = a.epoch;
}

uint32_t detector::new_block(const actor& launch, uint64_t block, uint32_t threads, uint64_t key) {
  group_facts g;
  g.key = key;
  g.task = groups[launch.group].tasks.back().second;
  g.block = static_cast<uint32_t>(block);
  g.width = threads;
  groups.push_back(std::move(g));
  return static_cast<uint32_t>(groups.size() - 1);
}

uint32_t detector::new_counter() {
  groups.emplace_back();
  groups.back().open = true;  // never continued
  return static_cast<uint32_t>(groups.size() - 1);
}

void detector::finish_task(const actor& a, clock_reference& known) {
  const uint32_t task = groups[a.group].tasks.back().second;
  tasks[task].epoch = a.epoch;
  raise(known, a.group, 1, 0, a.epoch);
  prune(known);
}

void detector::prune(clock_reference& c) const {
  if (!c) return;
  const clock_reference all = c;
  drop_groups(c, [&](uint32_t group) {
    const group_facts& g = groups[group];
    if (g.width == 0) return false;
    const task_facts& t = tasks[g.task];
    return all->of(t.chain, 0) >= t.epoch;
  });
}

}  // namespace devcomm::simulator::race
