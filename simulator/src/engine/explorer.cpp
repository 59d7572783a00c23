#include "engine/explorer.hpp"

#include "engine/block.hpp"
#include "engine/grid.hpp"
#include "engine/task.hpp"

#include <link.h>

#include <algorithm>
#include <cstdio>
#include <span>

namespace devcomm::simulator::detail {

namespace {

uint64_t executions = 0;  // begun by all explorers

/// What a host thread has waited for in this execution.
struct host_state {
  uint64_t execution = 0;
  step_clock clock;
};
thread_local host_state host;

step_clock& host_clock() {
  if (host.execution != executions) host = {executions, {}};
  return host.clock;
}

/// Bytes of the variables that each OS thread has.
size_t thread_local_bytes() {
  static const size_t bytes = [] {
    size_t sum = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* object, size_t, void* total) {
          for (int i = 0; i < object->dlpi_phnum; ++i) {
            if (object->dlpi_phdr[i].p_type == PT_TLS) *static_cast<size_t*>(total) += object->dlpi_phdr[i].p_memsz;
          }
          return 0;
        },
        &sum);
    return sum;
  }();
  return bytes;
}

/// Shared memory lies in variables of the block's OS thread, wherever that is in this execution.
uintptr_t location_of(const fiber& f, const void* address) {
  const auto own = reinterpret_cast<uintptr_t>(&this_block);
  const auto at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t distance = at > own ? at - own : own - at;
  if (distance > thread_local_bytes()) return at;
  const grid& g = f.home->launch;
  const uint64_t block = schedule::block_hash(g.of_device, g.device, f.home->rank);
  return (block << 32 | uintptr_t{1} << 63) + (at - own + (uintptr_t{1} << 30));
}

std::span<fiber> lanes_of(const fiber& f) {
  const std::span<fiber> all = f.home->fibers;
  const size_t first = f.rank / 32 * 32;
  return all.subspan(first, std::min<size_t>(32, all.size() - first));
}

/// The lane that continues when the warp of `f` waits in lockstep; null when none does.
fiber* next_in_step(const fiber& f) {
  for (fiber& lane : lanes_of(f)) {
    if (lane.label != nullptr && lane.waits_with_warp && lane.state == fiber_state::runnable) return &lane;
  }
  return nullptr;
}

/// Whether it is there already, with its value.
bool has(const std::vector<memory_access>& all, const memory_access& access) {
  return std::any_of(all.begin(), all.end(),
                     [&](const memory_access& a) { return a == access && a.value == access.value; });
}

}  // namespace

void explorer::begin() {
  ++executions;
  search_.begin();
  introduced_.assign(numbers_.size(), false);
  pending_.clear();
  unsuccessful_.clear();
  rendezvous_.clear();
  awaits_ = polls_ = false;
  running_ = nullptr;
  next_block_ = nullptr;
  network_.clear();
  schedule_.clear();
}

bool explorer::end() { return search_.advance(); }

bool explorer::write_schedule(const std::string& path) const {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  for (const auto& [from, to] : schedule_) schedule_log::print(file, from, to);
  return std::fclose(file) == 0;
}

int explorer::number_of(const thread_key& key) {
  return numbers_.try_emplace(key, static_cast<int>(numbers_.size())).first->second;
}

int explorer::number_of(const thread_key& key, const block& home) {
  const int found = number_of(key);
  const auto number = static_cast<size_t>(found);
  if (number >= introduced_.size()) introduced_.resize(number + 1);
  if (!introduced_[number]) {
    introduced_[number] = true;
    search_.comes_after(found, home.launch.owner->comes_after);
  }
  return found;
}

int explorer::number_of(fiber& f) {
  if (f.number < 0) f.number = number_of(f.key(), *f.home);
  return f.number;
}

// --- the running thread ---

void explorer::touches(const fiber& f, const void* address, size_t bytes, bool writes, uint64_t value) {
  const auto on_stack = static_cast<size_t>(static_cast<const char*>(address) - f.home->stack_bottom(f));
  if (on_stack < f.home->stack_bytes()) return;
  const sanitizer::unobserved hidden;
  awaits_ = awaits_ || f.label != nullptr || f.watches.repeats > 0;
  stored_ = stored_ || writes;
  const memory_access access{location_of(f, address), static_cast<uint32_t>(bytes), writes, value};
  if (!polls_ || !has(pending_, access)) pending_.push_back(access);
}

void explorer::poll_failed(const fiber& f) {
  const sanitizer::unobserved hidden;
  pending_.clear();
  if (!polls_) unsuccessful_.clear();
  for (const watch& w : f.watches.entries) {
    const memory_access access{location_of(f, w.address), w.bytes, false, w.value};
    if (!has(unsuccessful_, access)) unsuccessful_.push_back(access);
  }
}

void explorer::synchronizes(fiber& f) {
  const sanitizer::unobserved hidden;
  const void* call_site = nullptr;
  uint64_t number = 0;
  switch (f.state) {
    case fiber_state::at_barrier: number = f.barrier; break;
    case fiber_state::at_warp: number = f.mask; break;
    case fiber_state::at_converge: call_site = f.call_site; break;
    default: return;
  }
  number |= static_cast<uint64_t>(f.state) << 32;
  const block* const home = f.state == fiber_state::at_barrier && f.barrier == barrier_of_grid ? nullptr : f.home;
  for (rendezvous& m : rendezvous_) {
    if (m.home != home || m.call_site != call_site || m.number != number) continue;
    m.threads.push_back(number_of(f));
    return;
  }
  rendezvous_.push_back({home, call_site, number, {number_of(f)}});
}

void explorer::stopped(scheduled_thread& t) {
  auto& f = static_cast<fiber&>(t);
  if (running_ != &f) return;
  const sanitizer::unobserved hidden;
  if (polls_) return continue_polling();
  const bool nothing = pending_.empty() && rendezvous_.empty();
  if (nothing && f.state == fiber_state::runnable) return;
  if (nothing && (f.state == fiber_state::polling || f.state == fiber_state::sleeping)) {
    running_ = nullptr;
    search_.waits(number_of(f), unsuccessful_);
    unsuccessful_.clear();
    return;
  }
  end_step(f);
}

void explorer::continue_polling() {
  const std::span<fiber> lanes = lanes_of(*running_);
  if (const fiber* const next = next_in_step(*running_); next != nullptr && !stored_) {
    running_ = next;
    return;
  }
  polls_ = false;
  const auto sleeps = [](const fiber& f) { return f.state == fiber_state::polling; };
  if (!stored_ && std::any_of(lanes.begin(), lanes.end(), sleeps)) {
    running_ = nullptr;
    pending_.clear();
    rendezvous_.clear();
    awaits_ = false;
    search_.waits(number_of(lanes.front()), unsuccessful_);
    unsuccessful_.clear();
    return;
  }
  rendezvous all{running_->home, nullptr, 0, {}};
  for (fiber& f : lanes) all.threads.push_back(number_of(f));
  rendezvous_.push_back(std::move(all));
  end_step(lanes.front());
}

void explorer::ended(fiber& f) {
  const sanitizer::unobserved hidden;
  if (running_ == &f) end_step(f);
  join(f.home->launch.owner->ends_after, search_.clock_of(number_of(f)));
}

void explorer::end_step(fiber& f) {
  const int self = number_of(f);
  search_.steps(self, pending_, awaits_);
  for (const rendezvous& m : rendezvous_) {
    step_clock all = search_.clock_of(self);
    for (const int thread : m.threads) join(all, search_.clock_of(thread));
    for (const int thread : m.threads) search_.comes_after(thread, all);
    search_.comes_after(self, all);
  }
  pending_.clear();
  rendezvous_.clear();
  awaits_ = false;
  running_ = nullptr;
}

void explorer::failed() {
  search_.run_free();
  // Its threads are abandoned in the middle of a step.
  const sanitizer::unobserved hidden;
  running_ = nullptr;
  polls_ = false;
  pending_.clear();
  rendezvous_.clear();
}

// --- who is next ---

std::vector<int> explorer::list(const runnable_blocks& ready) {
  std::vector<int> runnable;
  candidates_.clear();
  for (scheduled_block* const each : ready) {
    auto* const b = static_cast<block*>(each);
    const auto add = [&](const thread_key& key, int number) {
      runnable.push_back(number);
      candidates_.emplace_back(b, key);
    };
    if (b->fibers.empty()) {  // has not run
      thread_key key{b->device, b->launch_of_device, b->rank, 0};
      for (; key.thread < b->threads; ++key.thread) add(key, number_of(key, *b));
    }
    for (scheduled_thread* const t : b->runnable) {
      auto* const f = static_cast<fiber*>(t);
      const fiber* const in_step = next_in_step(*f);
      if (in_step == nullptr || in_step == f) add(f->key(), number_of(in_step == nullptr ? *f : lanes_of(*f).front()));
    }
  }
  return runnable;
}

size_t explorer::choose(const std::vector<int>& runnable) {
  const int chosen = search_.choose(runnable);
  return static_cast<size_t>(std::find(runnable.begin(), runnable.end(), chosen) - runnable.begin());
}

std::optional<size_t> explorer::choose_network(const runnable_blocks& ready, const std::vector<thread_key>& steps) {
  const sanitizer::unobserved hidden;
  if (running_ != nullptr) return std::nullopt;
  std::vector<int> runnable = list(ready);
  for (const thread_key& key : steps) runnable.push_back(number_of(key));
  const size_t index = choose(runnable);
  if (index >= candidates_.size()) return index - candidates_.size();
  next_ = candidates_[index].second;
  next_block_ = candidates_[index].first;
  return std::nullopt;
}

scheduled_block& explorer::choose_block(const runnable_blocks& ready) {
  const sanitizer::unobserved hidden;
  if (running_ != nullptr) {  // stopped in the middle of a step
    next_ = running_->key();
    return *running_->home;
  }
  if (next_block_ != nullptr) return *std::exchange(next_block_, nullptr);
  const size_t index = choose(list(ready));
  next_ = candidates_[index].second;
  return *candidates_[index].first;
}

scheduled_thread& explorer::choose_thread(scheduled_block& b) {
  fiber& f = static_cast<block&>(b).fibers[next_.thread];
  f.quantum = 1;
  if (running_ == nullptr && next_in_step(f) != nullptr) {
    polls_ = true;
    stored_ = false;
    unsuccessful_.clear();
  }
  running_ = &f;
  return f;
}

// --- the network's proxies ---

void explorer::network_stepped(const thread_key& key, const network_step& what,
                               const std::vector<memory_access>& accesses) {
  constexpr uint64_t max_under_way = 64;  // operations of a proxy, and pieces of its memory
  const sanitizer::unobserved hidden;
  network_step named = what;
  named.context = static_cast<uint32_t>(key.block);
  const int number = number_of(key);
  search_.comes_after(number, network_.before(key.device, named));
  std::vector<memory_access> all = accesses;
  // Parts of one operation are counted.
  if (what.what == network_step::kind::write) {
    const auto counter = uintptr_t{1} << 62 | schedule::block_hash(key.launch, key.device, key.block) >> 3 << 1;
    all.push_back({counter, 1, true, 0});
  }
  search_.steps(number, all, false);
  network_.taken(key.device, named, search_.clock_of(number));
  if (network_.under_way() >= max_under_way || network_.parts() >= max_under_way) too_much_under_way_ = true;
}

// --- what orders launches ---

void explorer::submitted(task& t) const {
  const sanitizer::unobserved hidden;
  t.execution = executions;
  t.comes_after = host_clock();
}

void explorer::begins(task& t) const {
  const sanitizer::unobserved hidden;
  for (const task_ref& earlier : t.before) {
    if (earlier->execution == executions) join(t.comes_after, earlier->ends_after);
  }
  t.ends_after = t.comes_after;
}

void explorer::awaited(const task& t) const {
  const sanitizer::unobserved hidden;
  if (t.execution == executions) join(host_clock(), t.ends_after);
}

}  // namespace devcomm::simulator::detail
