#include "schedule/exploration.hpp"

#include "base/random.hpp"

#include <algorithm>

namespace devcomm::simulator::detail {
namespace {

bool contains(const std::vector<int>& threads, int thread) {
  return std::find(threads.begin(), threads.end(), thread) != threads.end();
}

template <class Steps>
bool has_step_of(const Steps& steps, int thread) {
  return std::any_of(steps.begin(), steps.end(), [&](const auto& step) { return step.thread == thread; });
}

bool conflict(const memory_access& a, const memory_access& b) {
  return (a.writes || b.writes) && !(a.commutes && b.commutes) && a.address < b.address + b.bytes &&
         b.address < a.address + a.bytes;
}

bool conflict(const std::vector<memory_access>& a, const std::vector<memory_access>& b) {
  for (const memory_access& x : a) {
    for (const memory_access& y : b) {
      if (conflict(x, y)) return true;
    }
  }
  return false;
}

uint64_t mixed(uint64_t hash, uint64_t part) { return random_choice(hash ^ part).next(); }

uint32_t at(const step_clock& clock, int thread) {
  const auto index = static_cast<size_t>(thread);
  return index < clock.size() ? clock[index] : 0;
}

}  // namespace

void join(step_clock& into, const step_clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

exploration::thread_state& exploration::state_of(int thread) {
  const auto index = static_cast<size_t>(thread);
  if (index >= threads_.size()) threads_.resize(index + 1);
  return threads_[index];
}

void exploration::comes_after(int thread, const step_clock& earlier) { join(state_of(thread).clock, earlier); }
const step_clock& exploration::clock_of(int thread) { return state_of(thread).clock; }

void exploration::begin() {
  ++executions_;
  depth_ = 0;
  threads_.clear();
  last_ = -1;
  free_ = false;
  cut_short_ = false;
}

// --- who is next ---

/// The state after the latest step.
void exploration::add_node() {
  node next;
  if (!path_.empty() && reduction_) {
    const node& before = path_.back();
    for (const auto* steps : {&before.asleep, &before.done}) {
      for (const taken_step& step : *steps) {
        if (step.thread != before.chosen && !conflict(step.accesses, before.accesses)) next.asleep.push_back(step);
      }
    }
  }
  path_.push_back(std::move(next));
}

int exploration::choose(const std::vector<int>& runnable) {
  if (!free_ && depth_ == path_.size()) {
    if (depth_ == max_steps_) {
      too_long_ = free_ = true;
    } else {
      add_node();
    }
  }
  if (free_) {  // in turn
    int next = -1;
    for (const int thread : runnable) {
      if (thread > last_ && (next < 0 || thread < next)) next = thread;
    }
    return last_ = next >= 0 ? next : *std::min_element(runnable.begin(), runnable.end());
  }
  node& n = path_[depth_];
  if (n.chosen >= 0) {
    // A choice that is repeated may have been made only after unsuccessful polls of others.
    return contains(runnable, n.chosen) ? n.chosen : runnable.front();
  }
  n.enabled.clear();
  int next = -1;
  int any = -1;
  for (const int thread : runnable) {
    if (contains(n.waiting, thread)) continue;
    n.enabled.push_back(thread);
    any = thread;
    if (has_step_of(n.asleep, thread)) continue;
    if (next < 0 || thread == last_ || (next != last_ && thread < next)) next = thread;
    if (!reduction_ && !contains(n.wanted, thread)) n.wanted.push_back(thread);
  }
  if (next < 0 && any >= 0) {
    free_ = cut_short_ = true;
    return any;
  }
  // When all threads wait, the simulator wakes some to poll again.
  if (next < 0) next = *std::min_element(runnable.begin(), runnable.end());
  n.chosen = next;
  if (!contains(n.wanted, next)) n.wanted.push_back(next);
  return last_ = next;
}

void exploration::waits(int thread, const std::vector<memory_access>& found) {
  if (free_) return;
  node& n = path_[depth_];
  if (!found.empty()) {
    note_initial(found);
    auto& known = unsuccessful_[past_of(thread)];
    const auto same = [&](const std::vector<memory_access>& earlier) {
      return earlier == found && std::equal(earlier.begin(), earlier.end(), found.begin(),
                                            [](const auto& a, const auto& b) { return a.value == b.value; });
    };
    if (std::none_of(known.begin(), known.end(), same)) known.push_back(found);
  }
  if (!contains(n.waiting, thread)) n.waiting.push_back(thread);
  std::erase(n.enabled, thread);
  if (n.chosen != thread || replays()) return;
  n.chosen = -1;
  if (depth_ + 1 > prefix_) return;
  n.chosen = untried(n);
  if (n.chosen < 0) free_ = cut_short_ = true;
}

/// A thread that is still to be tried there, or -1.
int exploration::untried(const node& n) {
  for (const int thread : n.wanted) {
    if (!has_step_of(n.done, thread) && !has_step_of(n.asleep, thread) && !contains(n.waiting, thread)) return thread;
  }
  return -1;
}

// --- what happens ---

void exploration::steps(int thread, const std::vector<memory_access>& accesses, bool awaits) {
  if (free_) return;
  node& n = path_[depth_];
  if (n.chosen != thread || (replays() && n.accesses != accesses)) {
    irregular_ = free_ = true;
    return;
  }
  n.accesses = accesses;
  n.taken = true;
  std::erase(n.waiting, thread);
  order(n, awaits);
  ++depth_;
  longest_ = std::max<uint64_t>(longest_, depth_);
}

bool exploration::is_before(const node& step, const step_clock& clock) { return at(clock, step.chosen) >= step.number; }

/// Finds what the step of `n`, the current node, comes after, and what it might as well come before.
void exploration::order(node& n, bool awaits) {
  thread_state& self = state_of(n.chosen);
  for (const memory_access& a : n.accesses) {
    if (a.follows) join_writes(a, self.clock);
  }
  const step_clock known = self.clock;
  step_clock clock = known;
  n.past = past_of(n.chosen);
  uint64_t history = self.history.empty() ? 0 : self.history.back();
  for (const memory_access& a : n.accesses) history = mixed(mixed(history, a.address), a.value);
  self.history.push_back(mixed(history, 1));
  n.number = static_cast<uint32_t>(self.history.size());
  note_initial(n.accesses);
  std::vector<size_t> races;
  for (size_t i = n.accesses.empty() ? 0 : depth_; i-- > 0;) {
    const node& earlier = path_[i];
    if (earlier.chosen == n.chosen || !conflict(earlier.accesses, n.accesses)) continue;
    if (!is_before(earlier, awaits ? known : clock)) races.push_back(i);
    join(clock, earlier.clock);
  }
  if (clock.size() <= static_cast<size_t>(n.chosen)) clock.resize(static_cast<size_t>(n.chosen) + 1);
  clock[static_cast<size_t>(n.chosen)] = n.number;
  n.clock = self.clock = clock;
  if (!reduction_ || replays()) return;
  for (const size_t first : races) {
    if (!awaits || !fails_without(first)) reverse(first);
  }
}

/// Of the steps so far that have written to it.
void exploration::join_writes(const memory_access& found, step_clock& into) const {
  for (size_t i = 0; i < depth_; ++i) {
    const auto writes = [&](const memory_access& w) { return w.writes && conflict(found, w); };
    const node& step = path_[i];
    if (std::any_of(step.accesses.begin(), step.accesses.end(), writes)) join(into, step.clock);
  }
}

/// What a thread has seen follows from the steps that it comes after and from their values.
uint64_t exploration::past_of(int thread) {
  const step_clock& clock = state_of(thread).clock;
  uint64_t hash = static_cast<uint64_t>(thread);
  for (size_t t = 0; t < clock.size(); ++t) {
    if (clock[t] != 0) hash = mixed(mixed(hash, t), threads_[t].history[clock[t] - 1]);
  }
  return hash;
}

/// Keeps the values of memory that no step has written to.
void exploration::note_initial(const std::vector<memory_access>& found) {
  for (const memory_access& a : found) {
    const auto touches = [&](const node& step) {
      return std::any_of(step.accesses.begin(), step.accesses.end(),
                         [&](const memory_access& w) { return w.writes && conflict(a, w); });
    };
    if (a.writes || std::any_of(path_.begin(), path_.begin() + static_cast<std::ptrdiff_t>(depth_), touches)) continue;
    initial_[{a.address, a.bytes}] = a.value;
  }
}

bool exploration::fails_without(size_t first) const {
  const node& here = path_[depth_];
  const auto known = unsuccessful_.find(here.past);
  if (known == unsuccessful_.end()) return false;
  const auto finds = [&](const memory_access& a) {
    const memory_access* latest = nullptr;
    for (size_t i = depth_; i-- > 0;) {
      const node& step = path_[i];
      const bool is_left_out = i >= first && is_before(path_[first], step.clock);
      if (is_left_out && latest == nullptr) continue;
      for (auto w = step.accesses.rbegin(); w != step.accesses.rend(); ++w) {
        if (!w->writes || !conflict(a, *w)) continue;
        if (is_left_out) return false;  // what comes of the latest one alone is not known
        if (latest == nullptr) latest = &*w;
        if (!w->commutes) return a.same_range(*latest) && a.value == latest->value;
      }
    }
    if (latest != nullptr) return a.same_range(*latest) && a.value == latest->value;
    const auto initial = initial_.find({a.address, a.bytes});
    return initial != initial_.end() && initial->second == a.value;
  };
  return std::any_of(known->second.begin(), known->second.end(), [&](const std::vector<memory_access>& vain) {
    return std::all_of(vain.begin(), vain.end(), finds);
  });
}

void exploration::reverse(size_t first) {
  node& there = path_[first];
  // Of each thread, the first of its steps from there on that does not come after the step of `there`.
  std::vector<const node*> begins(threads_.size());
  for (size_t i = first + 1; i <= depth_; ++i) {
    const node& step = path_[i];
    if (i < depth_ && is_before(there, step.clock)) continue;
    const node*& begin = begins[static_cast<size_t>(step.chosen)];
    if (begin == nullptr) begin = &step;
  }
  // Of these, such as come after none of the others.
  std::vector<int> initials;
  for (const node* step : begins) {
    if (step == nullptr) continue;
    const bool comes_after = std::any_of(begins.begin(), begins.end(), [&](const node* other) {
      return other != nullptr && other != step && is_before(*other, step->clock);
    });
    if (!comes_after) initials.push_back(step->chosen);
  }
  int choice = -1;
  for (const int thread : initials) {
    if (contains(there.waiting, thread)) return;  // cannot be the first: this order is not possible
    if (contains(there.wanted, thread) || has_step_of(there.asleep, thread)) return;
    if (contains(there.enabled, thread) && (choice < 0 || thread == path_[depth_].chosen)) choice = thread;
  }
  if (choice >= 0) there.wanted.push_back(choice);
}

bool exploration::advance() {
  if (cut_short_) ++redundant_;
  if (irregular_) return false;
  while (!path_.empty()) {
    node& n = path_.back();
    if (n.taken) n.done.push_back({n.chosen, std::move(n.accesses)});
    n.taken = false;
    n.accesses.clear();
    n.chosen = untried(n);
    if (n.chosen >= 0) {
      prefix_ = path_.size();
      return true;
    }
    path_.pop_back();
  }
  complete_ = !too_long_;
  return false;
}

}  // namespace devcomm::simulator::detail
