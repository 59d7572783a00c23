#include "engine/copies.hpp"

#include "engine/block.hpp"
#include "engine/engine.hpp"
#include "engine/failure.hpp"
#include "engine/grid.hpp"
#include "gpu/device_globals.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

constexpr uint32_t longest_delay_bits = 12;
constexpr int64_t largest_count = (1 << 20) - 1;  // of arrivals and of bytes

copy_engine& engine_of_copies() { return this_block->simulation.copies; }

/// The word of an mbarrier in that phase.
uint64_t word_of(uint64_t phase) { return uint64_t{0xba221e2} << 32 | (phase & ~uint32_t{0}); }

void set_word(void* at, uint64_t phase) {
  __atomic_store_n(static_cast<uint64_t*>(at), word_of(phase), __ATOMIC_RELAXED);
}

/// A value of the thread's own, which is gone when the copy would read it.
bool is_local(const void* from) { return stacks_of_block.contains(from); }

bool touches(const memory_range& range, const void* at) { return at != nullptr && range.contains(at); }

thread_copies& copies_of(fiber& f) {
  if (f.copies == nullptr) {
    const sanitizer::unobserved hidden;
    f.copies = std::make_unique<thread_copies>();
  }
  return *f.copies;
}

/// The group that copies join until it is committed.
copy_group& open_group(thread_copies::groups& all, const char* what, bool async_proxy) {
  const sanitizer::unobserved hidden;
  if (all.empty()) all.push_back(std::make_unique<copy_group>());
  copy_group& open = *all.back();
  if (open.identity == nullptr) {
    open.identity = sanitizer::new_copy_identity(what, async_proxy);
  } else {  // what the thread has done since comes before the next copy
    sanitizer::cell since;
    sanitizer::release(since);
    sanitizer::acquire_as(open.identity, since);
  }
  return open;
}

void commit(thread_copies::groups& all) {
  const sanitizer::unobserved hidden;
  if (all.empty()) all.push_back(std::make_unique<copy_group>());
  all.push_back(std::make_unique<copy_group>());
}

/// Until the word is 0. Then the fiber no longer watches it, as its group may be freed.
void wait_for(const uint32_t& word) {
  bool waited = false;
  while (const uint32_t left = __atomic_load_n(&word, __ATOMIC_RELAXED)) {
    waited = true;
    loaded(&word, sizeof word, left);
  }
  const sanitizer::unobserved hidden;
  if (waited) this_fiber->watches = {};
}

/// Waits for all committed groups but the latest `pending`. Those that are done are forgotten: who waits for the group
/// behind one sees what that wrote, too.
void await(thread_copies::groups& all, size_t pending, bool reads_only) {
  const size_t committed = all.empty() ? 0 : all.size() - 1;
  const size_t awaited = committed - std::min(committed, pending);
  for (size_t i = 0; i < awaited; ++i) {
    copy_group& each = *all[i];
    wait_for(reads_only ? each.unread : each.unwritten);
    sanitizer::acquire(reads_only ? each.read : each.written);
    each.waited = true;
  }
  const sanitizer::unobserved hidden;
  while (all.size() > 1 && all.front()->waited && all.front()->unwritten == 0) {
    if (all.front()->used) {
      void* const before = sanitizer::identity();
      sanitizer::become(all.front()->identity);
      sanitizer::acquire(all.front()->written);
      sanitizer::release(all[1]->written);
      sanitizer::become(before);
    }
    all.pop_front();
  }
}

}  // namespace

// --- copies ---

uint64_t copy_engine::delay() { return random_.below(1u << random_.below(longest_delay_bits + 1)); }

void copy_engine::begin(const char* instruction, const copy_chunk* chunks, size_t count, copy_reduction reduces,
                        copy_group* group, void* barrier) {
  if (engine_.order.explores())
    fail_misuse("explorations have no asynchronous copies; run such kernels under the race detector with many seeds");
  {
    void* const identity = group != nullptr ? group->identity : sanitizer::new_copy_identity(instruction, true);
    const sanitizer::unobserved hidden;
    auto one = std::make_unique<copy>();
    one->chunks.assign(chunks, chunks + count);
    one->reduces = reduces;
    one->home = this_block;
    one->identity = identity;
    one->group = group;
    one->barrier = barrier;
    one->due = engine_.steps + delay();
    if (group != nullptr) {
      group->used = true;
      ++group->unread;
      ++group->unwritten;
    }
    if (count == 1 && is_local(chunks->from)) read(*one);  // of st.async
    next_due_ = std::min(next_due_, one->due);
    under_way_.push_back(std::move(one));
  }
  preempt();
}

void copy_engine::run(bool one) {
  const sanitizer::unobserved hidden;
  if (under_way_.empty()) return;
  if (one) {
    const auto first = std::min_element(under_way_.begin(), under_way_.end(),
                                        [](const auto& a, const auto& b) { return a->due < b->due; });
    engine_.steps = std::max(engine_.steps, (*first)->due);
  }
  // Which of those that are due goes first is a choice, too.
  const auto start = random_.below(static_cast<uint32_t>(under_way_.size()));
  std::rotate(under_way_.begin(), under_way_.begin() + start, under_way_.end());
  for (size_t i = 0; i < under_way_.size();) {
    copy& c = *under_way_[i];
    if (c.due <= engine_.steps) advance(c);
    if (c.home != nullptr) {
      ++i;
    } else {
      under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  update_due();
}

void copy_engine::update_due() {
  next_due_ = ~uint64_t{0};
  for (const auto& c : under_way_) next_due_ = std::min(next_due_, c->due);
}

void copy_engine::advance(copy& c) {
  if (c.was_read) return finish(c);
  read(c);
  c.due = engine_.steps + delay();
}

void copy_engine::read(copy& c) {
  size_t bytes = 0;
  for (const copy_chunk& p : c.chunks) bytes += p.bytes;
  c.data.resize(bytes);
  void* const before = sanitizer::identity();
  sanitizer::become(c.identity);
  char* to = c.data.data();
  for (const copy_chunk& p : c.chunks) {
    if (p.from != nullptr) std::memcpy(to, global_of(c.home->device, p.from), p.bytes);
    to += p.bytes;
  }
  if (c.group != nullptr) sanitizer::release(c.group->read);
  sanitizer::become(before);
  c.was_read = true;
  if (c.group != nullptr) --c.group->unread;
}

void copy_engine::write(copy& c) {
  const char* from = c.data.data();
  for (const copy_chunk& p : c.chunks) {
    if (p.to != nullptr) {
      void* const to = const_cast<void*>(global_of(c.home->device, p.to));
      if (c.reduces != nullptr) {
        c.reduces(to, from, p.bytes);
      } else {
        std::memcpy(to, from, p.bytes);
      }
    }
    from += p.bytes;
  }
}

void copy_engine::finish(copy& c) {
  if (!c.was_read) read(c);
  void* const before = sanitizer::identity();
  sanitizer::become(c.identity);
  write(c);
  sanitizer::release(*c.home->launch.completion);
  if (c.group != nullptr) sanitizer::release(c.group->written);
  const auto barrier = c.barrier == nullptr ? mbarriers_.end() : mbarriers_.find(c.barrier);
  if (barrier != mbarriers_.end()) sanitizer::release(barrier->second.cells[barrier->second.phase & 1]);
  sanitizer::become(before);
  if (c.group == nullptr) sanitizer::drop_identity(c.identity);
  if (barrier != mbarriers_.end()) {
    barrier->second.bytes -= static_cast<int64_t>(c.data.size());
    complete(barrier->second, c.barrier);
  }
  if (c.group != nullptr && --c.group->unwritten == 0) arrive(c);
  c.home = nullptr;
}

/// The arrivals that wait for the copy's group, which is done.
void copy_engine::arrive(const copy& c) {
  for (const auto& each : c.group->arrivals) {
    const auto found = mbarriers_.find(each->at);
    if (found == mbarriers_.end()) continue;
    mbarrier& b = found->second;
    void* const before = sanitizer::identity();
    sanitizer::become(c.identity);
    sanitizer::release(b.cells[b.phase & 1]);
    sanitizer::become(before);
    if (--each->groups != 0) continue;
    --b.pending;
    complete(b, each->at);
  }
  c.group->arrivals.clear();
}

std::string copy_engine::end_block(block& b) {
  for (const fiber& f : b.fibers) {
    if (f.copies == nullptr) continue;
    for (const auto& group : f.copies->bulk) {
      if (!group->used || group->waited) continue;
      return "thread " + std::to_string(f.rank) +
             " ends without waiting for its bulk copies from shared memory, which goes with the block: execute "
             "cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 before the end";
    }
  }
  for (const auto& c : under_way_) {
    for (const copy_chunk& p : c->chunks) {
      const bool element = c->group != nullptr && touches(b.shared_range, p.to);
      const bool reads = !c->was_read && touches(b.shared_range, p.from);
      if (c->home == nullptr || element || (!reads && !touches(b.shared_range, p.to))) continue;
      return std::string("the block ends while a bulk copy still ") + (reads ? "reads" : "writes") +
             " its shared memory: wait for the copy's mbarrier before the end";
    }
  }
  for (const auto& c : under_way_) {
    if (c->home == &b) finish(*c);
  }
  std::erase_if(under_way_, [](const auto& c) { return c->home == nullptr; });
  update_due();
  return {};
}

void copy_engine::forget(const block& b) {
  for (const auto& c : under_way_) {
    if (c->home == &b && c->group == nullptr) sanitizer::drop_identity(c->identity);
  }
  std::erase_if(under_way_, [&](const auto& c) { return c->home == &b; });
  std::erase_if(mbarriers_, [&](const auto& each) { return each.second.home == &b; });
  update_due();
}

void copy_element(void* to, const void* from, size_t bytes, size_t used) {
  if (bytes != 4 && bytes != 8 && bytes != 16) fail_misuse("cp.async copies 4, 8 or 16 bytes");
  if (used > bytes) fail_misuse("cp.async has more source bytes than it copies");
  if (!shared_of_block.contains(to)) fail_misuse("cp.async copies to shared memory, and the destination is none");
  require_global(from);
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes != 0)
    fail_misuse("cp.async has an address that is no multiple of its size");
  copy_group& group = open_group(copies_of(*this_fiber).elements, "cp.async", false);
  const copy_chunk chunks[] = {{to, from, used}, {static_cast<char*>(to) + used, nullptr, bytes - used}};
  engine_of_copies().begin("cp.async", chunks, used == bytes ? 1 : 2, nullptr, &group, nullptr);
}

void commit_elements() { commit(copies_of(*this_fiber).elements); }

void await_elements(uint32_t pending) { await(copies_of(*this_fiber).elements, pending, false); }

void await_all_elements() {
  commit_elements();
  await_elements(0);
}

void arrive_after_elements(void* at, bool counted) {
  copy_engine& all = engine_of_copies();
  mbarrier& b = all.mbarrier_at(at);
  if (counted) {
    if (++b.pending > largest_count) fail_misuse("an mbarrier counts at most 1048575 arrivals");
  }
  thread_copies::groups& groups = copies_of(*this_fiber).elements;
  {
    const sanitizer::unobserved hidden;
    const auto arrival = std::make_shared<late_arrival>(late_arrival{at, 0});
    for (const auto& each : groups) {
      if (each->unwritten == 0) continue;
      ++arrival->groups;
      each->arrivals.push_back(arrival);
    }
    if (arrival->groups > 0) return;
  }
  for (const auto& each : groups) sanitizer::acquire(each->written);
  static_cast<void>(arrive_at_mbarrier(at, 1, 0, false, true));
}

void copy_bulk(const char* instruction, const copy_chunk* chunks, size_t count, copy_reduction reduces, void* barrier) {
  copy_engine& all = engine_of_copies();
  if (barrier != nullptr) static_cast<void>(all.mbarrier_at(barrier));
  copy_group* const group = barrier == nullptr ? &open_group(copies_of(*this_fiber).bulk, instruction, true) : nullptr;
  all.begin(instruction, chunks, count, reduces, group, barrier);
}

void store_async(void* to, const void* value, size_t bytes, void* barrier) {
  copy_engine& all = engine_of_copies();
  static_cast<void>(all.mbarrier_at(barrier));
  const copy_chunk chunk{to, value, bytes};
  all.begin("st.async", &chunk, 1, nullptr, nullptr, barrier);
}

void commit_bulk() { commit(copies_of(*this_fiber).bulk); }

void await_bulk(uint32_t pending, bool reads_only) { await(copies_of(*this_fiber).bulk, pending, reads_only); }

void fence_async() {
  sanitizer::async_fence();
  preempt();
}

// --- mbarriers ---

mbarrier& copy_engine::make_mbarrier(void* at, block& home) {
  const sanitizer::unobserved hidden;
  mbarriers_.erase(at);
  mbarrier& b = mbarriers_[at];
  b.home = &home;
  return b;
}

void copy_engine::drop_mbarrier(void* at) {
  const sanitizer::unobserved hidden;
  mbarriers_.erase(at);
}

mbarrier& copy_engine::mbarrier_at(const void* at) {
  const auto found = mbarriers_.find(at);
  if (found == mbarriers_.end())
    fail_misuse("there is no mbarrier: initialize it by mbarrier.init before any thread uses it");
  if (__atomic_load_n(static_cast<const uint64_t*>(at), __ATOMIC_RELAXED) != word_of(found->second.phase))
    fail_misuse("the mbarrier's memory was overwritten; other data may not lie there until mbarrier.inval");
  return found->second;
}

void copy_engine::complete(mbarrier& b, void* at) {
  if (b.pending != 0 || b.bytes != 0) return;
  b.pending = b.expected;
  ++b.phase;
  sanitizer::clear(b.cells[b.phase & 1]);
  set_word(at, b.phase);
}

std::string copy_engine::describe_mbarrier(const void* at) const {
  const auto found = mbarriers_.find(at);
  if (found == mbarriers_.end()) return {};
  const mbarrier& b = found->second;
  const auto offset = reinterpret_cast<uintptr_t>(at) - b.home->shared_range.first;
  std::string text = "the mbarrier at byte " + std::to_string(offset) + " of the shared memory of " +
                     describe_block(*b.home) + ", whose phase " + std::to_string(b.phase) + " lacks ";
  const std::string bytes = b.bytes < 0 ? "and has had " + std::to_string(-b.bytes) + " bytes more than it expects"
                                        : "and " + std::to_string(b.bytes) + " bytes";
  return text + std::to_string(b.pending) + " of " + std::to_string(b.expected) + " arrivals" +
         (b.bytes == 0 ? "" : " " + bytes);
}

void initialize_mbarrier(void* at, uint32_t count) {
  if (!shared_of_block.contains(at))
    fail_misuse("an mbarrier lies in the shared memory of the block that initializes it");
  if (reinterpret_cast<uintptr_t>(at) % 8 != 0) fail_misuse("an mbarrier lies at a multiple of 8 bytes");
  if (count == 0 || count > largest_count) fail_misuse("an mbarrier expects 1 to 1048575 arrivals");
  mbarrier& b = engine_of_copies().make_mbarrier(at, *this_block);
  b.pending = b.expected = count;
  set_word(at, 0);
  preempt();
}

void invalidate_mbarrier(void* at) {
  static_cast<void>(engine_of_copies().mbarrier_at(at));
  engine_of_copies().drop_mbarrier(at);
}

void expect_at_mbarrier(void* at, int64_t bytes) {
  mbarrier& b = engine_of_copies().mbarrier_at(at);
  b.bytes += bytes;
  if (b.bytes > largest_count || b.bytes < -largest_count)
    fail_misuse("an mbarrier counts at most 1048575 bytes in a phase");
  copy_engine::complete(b, at);
}

uint64_t arrive_at_mbarrier(void* at, uint32_t count, int64_t bytes, bool drop, bool releases) {
  mbarrier& b = engine_of_copies().mbarrier_at(at);
  const uint64_t state = b.phase << 20 | static_cast<uint64_t>(b.pending);
  if (count > b.pending)
    fail_misuse(("the mbarrier's phase " + std::to_string(b.phase) + " gets more than the " +
                 std::to_string(b.expected) + " arrivals that it expects")
                    .c_str());
  if (releases) sanitizer::release(b.cells[b.phase & 1]);
  b.bytes += bytes;
  if (b.bytes > largest_count) fail_misuse("an mbarrier counts at most 1048575 bytes in a phase");
  b.pending -= count;
  if (drop) b.expected -= count;
  copy_engine::complete(b, at);
  preempt();
  return state;
}

namespace {

bool passed(mbarrier& b, const void* at, bool ended, bool acquires) {
  if (!ended) {
    loaded(at, sizeof(uint64_t), word_of(b.phase));
    return false;
  }
  if (acquires) sanitizer::acquire(b.cells[(b.phase + 1) & 1]);
  preempt();
  return true;
}

}  // namespace

bool mbarrier_passed(const void* at, uint32_t parity, bool acquires) {
  mbarrier& b = engine_of_copies().mbarrier_at(at);
  return passed(b, at, (b.phase & 1) != (parity & 1), acquires);
}

bool mbarrier_left(const void* at, uint64_t state, bool acquires) {
  mbarrier& b = engine_of_copies().mbarrier_at(at);
  return passed(b, at, b.phase != state >> 20, acquires);
}

uint32_t pending_of(uint64_t state) noexcept { return static_cast<uint32_t>(state & (largest_count)); }

}  // namespace devcomm::simulator::detail
