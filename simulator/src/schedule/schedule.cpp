#include "schedule/schedule.hpp"

#include "base/sanitizer.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

struct kind_name {
  const char* name;
  schedule_kind kind;
};
constexpr kind_name kind_names[] = {{"random", schedule_kind::random},
                                    {"pct", schedule_kind::pct},
                                    {"slow_rank", schedule_kind::slow_rank},
                                    {"slow_block", schedule_kind::slow_block},
                                    {"starve_warp", schedule_kind::starve_warp}};

/// The same in every run of a seed.
uint64_t hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  uint64_t h = random_choice(seed ^ 0x6a09e667f3bcc908u).next();
  for (const uint64_t part : {a, b, c}) h = random_choice(h ^ part).next();
  return h;
}

/// Of any size up to `2 << most`, small ones as often as large ones.
uint64_t of_any_size(random_choice& random, uint32_t least, uint32_t most) {
  const uint32_t bits = least + random.below(most - least + 1);
  return (uint64_t{1} << bits) + random.below(1u << bits);
}

std::optional<uint32_t> number(std::string_view text, uint32_t least, uint32_t most) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) return std::nullopt;
  return value;
}

/// The first of the numbers below `count` for which `good` holds, from `start` on and then from 0; else `count`.
template <class Good>
uint32_t first_from(uint32_t start, uint32_t count, Good good) {
  for (uint32_t i = start; i < count; ++i) {
    if (good(i)) return i;
  }
  for (uint32_t i = 0; i < start; ++i) {
    if (good(i)) return i;
  }
  return count;
}

}  // namespace

std::optional<schedule_choice> schedule_choice::parse(std::string_view text) {
  schedule_choice choice;
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (text == "mixed") {
    choice.kind = std::nullopt;
    return choice;
  }
  const auto* const known =
      std::find_if(std::begin(kind_names), std::end(kind_names), [&](const kind_name& k) { return name == k.name; });
  if (known == std::end(kind_names)) return std::nullopt;
  choice.kind = known->kind;
  if (colon == std::string_view::npos) return choice;
  if (choice.kind != schedule_kind::pct) return std::nullopt;
  std::string_view numbers = text.substr(colon + 1);
  const size_t second = numbers.find(':');
  const auto depth = number(numbers.substr(0, second), 1, 1000);
  if (!depth) return std::nullopt;
  choice.depth = *depth;
  if (second == std::string_view::npos) return choice;
  const auto length = number(numbers.substr(second + 1), 1, 1000000000);
  if (!length) return std::nullopt;
  choice.length = *length;
  return choice;
}

std::string schedule_choice::text() const {
  if (!kind) return "mixed";
  const auto* const known =
      std::find_if(std::begin(kind_names), std::end(kind_names), [&](const kind_name& k) { return kind == k.kind; });
  if (kind != schedule_kind::pct) return known->name;
  return std::string(known->name) + ":" + std::to_string(depth) + (length == 0 ? "" : ":" + std::to_string(length));
}

schedule::schedule(const schedule_choice& choice, uint64_t seed, std::unique_ptr<schedule_log> log)
    : log_(std::move(log)),
      choice_(choice),
      kind_(choice.kind ? *choice.kind : kind_names[hash(seed, 0, 0, 0) % std::size(kind_names)].kind),
      seed_(seed),
      random_(seed) {
  if (kind_ == schedule_kind::pct) begin_window();
}

uint64_t schedule::block_hash(uint64_t launch, int device, uint64_t block) {
  return hash(launch, static_cast<uint64_t>(device), block, 0);
}

// --- what happens ---

void schedule::started(scheduled_block& b) {
  const auto device = static_cast<uint64_t>(b.device);
  if (kind_ == schedule_kind::random) return;
  if (kind_ == schedule_kind::pct) {
    for (scheduled_thread* t : b.runnable)
      t->priority = hash(seed_ ^ b.launch_number, device, b.rank, t->rank) | uint64_t{1} << 63;
    return;
  }
  // The victim is the one with the smallest hash of all that there were, in this and in earlier launches.
  const uint32_t warps = kind_ == schedule_kind::starve_warp ? (b.threads + 31) / 32 : 1;
  for (uint32_t warp = 0; warp < warps; ++warp) {
    const uint64_t h = hash(seed_, device, kind_ == schedule_kind::slow_rank ? 0 : b.rank, warp);
    if (h >= victim_hash_) continue;
    victim_hash_ = h;
    victim_device_ = b.device;
    victim_block_ = b.rank;
    victim_warp_ = warp;
  }
}

void schedule::woken(scheduled_thread& t, scheduled_thread* running) {
  if (kind_ != schedule_kind::pct) return;
  scheduled_block& b = *t.group;
  if (b.runnable.size() == 1 || (b.first != nullptr && t.priority > b.first->priority)) b.first = &t;
  if (running == nullptr || t.priority < running->priority) return;
  // The running thread yields at its next preemption point.
  running->granted -= running->quantum - 1;
  running->quantum = 1;
}

void schedule::suspended(scheduled_thread& t) {
  if (t.group->first == &t) t.group->first = nullptr;
}

void schedule::stopped(scheduled_thread& t) {
  after_network_ = false;
  const uint32_t points = t.granted - t.quantum;
  const bool yields = t.quantum > 0 && t.is_runnable();
  t.points += points + (t.quantum > 0 ? 1 : 0);
  t.granted = t.quantum;
  if (chooser_ != nullptr) {
    stop_ = {t.key(), t.points};
    chooser_->stopped(t);
    return;
  }
  if (log_ != nullptr) {
    stop_ = {t.key(), t.points};
    stopped_ = &t;
    if (log_->reports()) schedule_log::keep_frames(t);
    if (replays()) t.alone = t.is_runnable() ? t.alone + points + (yields ? points_per_yield : 0) : 0;
  }
  if (kind_ != schedule_kind::pct || replays()) return;
  points_ += points;
  t.alone += points + (yields ? points_per_yield : 0);
  if (!t.is_runnable()) {
    t.alone = 0;
    return;
  }
  bool drops = t.alone >= spin_limit;
  while (!changes_.empty() && points_ >= changes_.back()) {
    changes_.pop_back();
    drops = true;
  }
  if (points_ >= window_end_) begin_window();
  if (drops) drop_priority(t);
}

void schedule::begins() {
  if (after_network_) return;
  stop_ = {{}, ++begun_};
  stopped_ = nullptr;
}

void schedule::take_log(schedule& earlier) {
  log_ = std::move(earlier.log_);
  chooser_ = earlier.chooser_;
  exploring_ = earlier.exploring_;
  begun_ = earlier.begun_;
  after_network_ = earlier.after_network_;
}

// --- who is next ---

bool schedule::poll_due(uint64_t steps, size_t waiting) const {
  if (exploring_) return true;
  // A file may name a thread that has slept until now.
  if (replays() && log_->next(stop_) != nullptr) return true;
  return steps >= (kind_ == schedule_kind::pct ? 1 + waiting / 8 : 64 + 4 * waiting);
}

bool schedule::leaves(scheduled_block& b, const runnable_blocks& ready, uint64_t step) {
  if (kind_ == schedule_kind::pct || replays() || chooser_ != nullptr) return true;
  if (b.budget-- == 0) return true;
  if (kind_ == schedule_kind::random || ready.size() == 1) return false;
  hold_or_free(step);
  return holds_all(b);
}

scheduled_block& schedule::choose_block(const runnable_blocks& ready, uint64_t step) {
  if (chooser_ != nullptr) return chooser_->choose_block(ready);
  if (replays()) return replayed_block(ready);
  const auto count = static_cast<uint32_t>(ready.size());
  if (kind_ == schedule_kind::pct) {
    scheduled_block* best = ready.front();
    for (scheduled_block* b : ready) {
      if (b->runnable.empty()) return *b;  // has not started: the priorities of its threads are to be drawn
      if (top(*b).priority > top(*best).priority) best = b;
    }
    return *best;
  }
  uint32_t index = random_.below(count);
  if (kind_ != schedule_kind::random) {
    hold_or_free(step);
    const uint32_t free = first_from(index, count, [&](uint32_t i) { return !holds_all(*ready[i]); });
    if (free == count) phase_end_ = step;  // no other block can run
    if (free < count) index = free;
  }
  scheduled_block& b = *ready[index];
  const auto fibers = b.runnable.empty() ? b.threads : static_cast<uint32_t>(b.runnable.size());
  b.budget = random_.below(2 * (fibers < 64 ? fibers : 64) + 1);
  return b;
}

scheduled_thread& schedule::choose_thread(scheduled_block& b) {
  if (chooser_ != nullptr) {
    scheduled_thread& t = chooser_->choose_thread(b);
    t.granted = t.quantum;
    chooser_->record(stop_, t.key());
    return t;
  }
  scheduled_thread& t = replays() ? replayed_thread(b) : chosen_thread(b);
  t.granted = t.quantum;
  if (log_ != nullptr) {
    log_->record(stop_, t.key());
    if (log_->reports() && stopped_ != &t && log_->next(stop_) != nullptr) log_->report(stopped_, t);
  }
  return t;
}

scheduled_thread& schedule::chosen_thread(scheduled_block& b) {
  if (kind_ == schedule_kind::pct) {
    scheduled_thread& t = top(b);
    const uint64_t next = changes_.empty() ? window_end_ : changes_.back();
    t.quantum = static_cast<uint32_t>(std::min<uint64_t>(points_at_once, std::max<uint64_t>(next - points_, 1)));
    return t;
  }
  const auto count = static_cast<uint32_t>(b.runnable.size());
  uint32_t index = random_.below(count);
  if (kind_ != schedule_kind::random) {
    const uint32_t free = first_from(index, count, [&](uint32_t i) { return !holds(*b.runnable[i]); });
    if (free < count) index = free;
  }
  scheduled_thread& t = *b.runnable[index];
  t.quantum = 1 + random_.below(8);
  return t;
}

std::optional<size_t> schedule::choose_network(const runnable_blocks& ready, const std::vector<thread_key>& steps) {
  std::optional<size_t> chosen;
  if (chooser_ != nullptr) {
    chosen = chooser_->choose_network(ready, steps);
    if (chosen) chooser_->record(stop_, steps[*chosen]);
  } else if (replays()) {
    const thread_key* const entry = log_->next(stop_);
    const auto found = entry == nullptr ? steps.end() : std::find(steps.begin(), steps.end(), *entry);
    if (found != steps.end()) chosen = static_cast<size_t>(found - steps.begin());
  }
  if (!chosen && ready.empty()) chosen = 0;  // of a file from which lines were removed
  if (!chosen) return std::nullopt;
  stop_ = {steps[*chosen], 1};
  stopped_ = nullptr;
  after_network_ = true;
  return chosen;
}

// --- from a file ---

/// Where the file has no entry, the running thread continues; if it cannot, or may be spinning, the next one runs.
scheduled_block& schedule::replayed_block(const runnable_blocks& ready) {
  const thread_key* const entry = log_->next(stop_);
  const bool goes_on = stopped_ != nullptr && stopped_->is_runnable() && stopped_->alone < spin_limit;
  const thread_key wanted = entry != nullptr ? *entry : stop_.thread;
  scheduled_block* after = nullptr;  // of the first runnable thread after the one that stopped, and of the first of all
  scheduled_block* first = ready.front();
  thread_key after_key;
  thread_key first_key;  // none yet
  for (scheduled_block* b : ready) {
    const thread_key start{b->device, b->launch_of_device, b->rank, 0};
    const auto visit = [&](const thread_key& key) {
      if (first_key.device < 0 || key < first_key) {
        first = b;
        first_key = key;
      }
      if (key > stop_.thread && (after == nullptr || key < after_key)) {
        after = b;
        after_key = key;
      }
    };
    if (b->runnable.empty()) visit(start);
    for (const scheduled_thread* f : b->runnable) {
      const thread_key key = f->key();
      if (key == wanted && (entry != nullptr || goes_on)) {
        next_ = key;
        return *b;
      }
      visit(key);
    }
    if (entry != nullptr && b->runnable.empty() && wanted >= start && wanted.device == start.device &&
        wanted.launch == start.launch && wanted.block == start.block) {
      next_ = wanted;
      return *b;
    }
  }
  if (goes_on) {
    next_ = stop_.thread;
    return *stopped_->group;
  }
  if (stopped_ != nullptr) stopped_->alone = 0;
  next_ = after != nullptr ? after_key : first_key;
  return after != nullptr ? *after : *first;
}

scheduled_thread& schedule::replayed_thread(scheduled_block& b) {
  scheduled_thread* f = b.runnable.front();
  for (scheduled_thread* candidate : b.runnable) {
    if (candidate->key() == next_) f = candidate;
  }
  const uint64_t left = log_->next_point(f->key(), f->points) - f->points;
  f->quantum = static_cast<uint32_t>(std::min<uint64_t>(left, spin_limit));
  return *f;
}

// --- priorities ---

void schedule::begin_window() {
  const sanitizer::unobserved hidden;
  const uint64_t length = choice_.length != 0 ? choice_.length : of_any_size(random_, 6, 15);
  window_end_ = points_ + length;
  changes_.clear();
  for (uint32_t i = 1; i < choice_.depth; ++i) {
    changes_.push_back(points_ + 1 + random_.below(static_cast<uint32_t>(length)));
  }
  std::sort(changes_.begin(), changes_.end(), std::greater<>());
}

void schedule::drop_priority(scheduled_thread& t) {
  t.alone = 0;
  t.priority = --lowest_;
  if (t.group->first == &t) t.group->first = nullptr;
}

scheduled_thread& schedule::top(scheduled_block& b) {
  if (b.first == nullptr) {
    b.first = *std::max_element(
        b.runnable.begin(), b.runnable.end(),
        [](const scheduled_thread* x, const scheduled_thread* y) { return x->priority < y->priority; });
  }
  return *b.first;
}

// --- holding back ---

void schedule::hold_or_free(uint64_t step) {
  while (step >= phase_end_) {
    holding_ = !holding_;
    phase_end_ = step + (holding_ ? of_any_size(random_, 4, 13) : of_any_size(random_, 4, 11));
  }
}

bool schedule::holds(const scheduled_block& b) const {
  if (!holding_ || b.device != victim_device_) return false;
  return kind_ == schedule_kind::slow_rank || b.rank == victim_block_;
}

bool schedule::holds(const scheduled_thread& t) const {
  return holds(*t.group) && (kind_ != schedule_kind::starve_warp || t.rank / 32 == victim_warp_);
}

bool schedule::holds_all(const scheduled_block& b) const {
  if (!holds(b)) return false;
  return std::all_of(b.runnable.begin(), b.runnable.end(), [&](const scheduled_thread* f) { return holds(*f); });
}

}  // namespace devcomm::simulator::detail
