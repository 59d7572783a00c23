#include "schedule/schedule.hpp"

#include "engine/explorer.hpp"
#include "engine/grid.hpp"

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

/// A number that is the same for one place of the program in every run of a seed.
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

uint64_t schedule::place_hash(uint64_t launch, int device, uint64_t block) {
  return hash(launch, static_cast<uint64_t>(device), block, 0);
}

// --- what happens ---

void schedule::started(block& b) {
  const auto device = static_cast<uint64_t>(b.launch.device);
  if (kind_ == schedule_kind::random) return;
  if (kind_ == schedule_kind::pct) {
    for (fiber& f : b.fibers) f.priority = hash(seed_ ^ b.launch.number, device, b.rank, f.rank) | uint64_t{1} << 63;
    return;
  }
  // The victim is the one with the smallest hash of all that there were, in this and in earlier launches.
  const uint32_t warps = kind_ == schedule_kind::starve_warp ? static_cast<uint32_t>(b.warps.size()) : 1;
  for (uint32_t warp = 0; warp < warps; ++warp) {
    const uint64_t h = hash(seed_, device, kind_ == schedule_kind::slow_rank ? 0 : b.rank, warp);
    if (h >= victim_hash_) continue;
    victim_hash_ = h;
    victim_device_ = b.launch.device;
    victim_block_ = b.rank;
    victim_warp_ = warp;
  }
}

void schedule::woken(fiber& f, fiber* running) {
  if (kind_ != schedule_kind::pct) return;
  block& b = *f.home;
  if (b.runnable.size() == 1 || (b.first != nullptr && f.priority > b.first->priority)) b.first = &f;
  if (running == nullptr || f.priority < running->priority) return;
  // The running one gives way at its next preemption point.
  running->granted -= running->quantum - 1;
  running->quantum = 1;
}

void schedule::suspended(fiber& f) {
  if (f.home->first == &f) f.home->first = nullptr;
}

void schedule::meets(fiber& f) {
  if (explorer_ != nullptr) explorer_->meets(f);
}

void schedule::ended(fiber& f) {
  if (explorer_ != nullptr) explorer_->ended(f);
}

void schedule::failed() {
  if (explorer_ != nullptr) explorer_->failed();
}

void schedule::stopped(fiber& f) {
  const uint32_t points = f.granted - f.quantum;
  const bool yields = f.quantum > 0 && f.state == fiber_state::runnable;
  f.points += points + (f.quantum > 0 ? 1 : 0);
  f.granted = f.quantum;
  if (explorer_ != nullptr) {
    stop_ = {key_of(f), f.points};
    explorer_->stopped(f);
    return;
  }
  if (log_ != nullptr) {
    stop_ = {key_of(f), f.points};
    stopped_ = &f;
    if (log_->reports()) schedule_log::keep_place(f);
    if (replays()) f.alone = f.state == fiber_state::runnable ? f.alone + points + (yields ? points_per_yield : 0) : 0;
  }
  if (kind_ != schedule_kind::pct || replays()) return;
  points_ += points;
  f.alone += points + (yields ? points_per_yield : 0);
  if (f.state != fiber_state::runnable) {
    f.alone = 0;
    return;
  }
  bool falls = f.alone >= patience;
  while (!changes_.empty() && points_ >= changes_.back()) {
    changes_.pop_back();
    falls = true;
  }
  if (points_ >= window_end_) begin_window();
  if (falls) fall_behind(f);
}

void schedule::begins() {
  stop_ = {{}, ++begun_};
  stopped_ = nullptr;
}

void schedule::take_log(schedule& earlier) {
  log_ = std::move(earlier.log_);
  explorer_ = earlier.explorer_;
  begun_ = earlier.begun_;
}

// --- who is next ---

bool schedule::looks_due(uint64_t steps, size_t waiting) const {
  if (exploring) return true;
  // A file may name a thread that has slept until now.
  if (replays() && log_->next(stop_) != nullptr) return true;
  return steps >= (kind_ == schedule_kind::pct ? 1 + waiting / 8 : 64 + 4 * waiting);
}

bool schedule::leaves(block& b, const std::vector<block*>& ready, uint64_t step) {
  if (kind_ == schedule_kind::pct || replays() || explorer_ != nullptr) return true;
  if (b.budget-- == 0) return true;
  if (kind_ == schedule_kind::random || ready.size() == 1) return false;
  hold_or_free(step);
  return holds_all(b);
}

block& schedule::choose_block(const std::vector<block*>& ready, uint64_t step) {
  if (explorer_ != nullptr) return explorer_->choose_block(ready);
  if (replays()) return replayed_block(ready);
  const auto count = static_cast<uint32_t>(ready.size());
  if (kind_ == schedule_kind::pct) {
    block* best = ready.front();
    for (block* b : ready) {
      if (b->runnable.empty()) return *b;  // has not started: the priorities of its threads are to be drawn
      if (top(*b).priority > top(*best).priority) best = b;
    }
    return *best;
  }
  uint32_t place = random_.below(count);
  if (kind_ != schedule_kind::random) {
    hold_or_free(step);
    const uint32_t free = first_from(place, count, [&](uint32_t i) { return !holds_all(*ready[i]); });
    if (free == count) phase_end_ = step;  // nobody else can run
    if (free < count) place = free;
  }
  block& b = *ready[place];
  const auto fibers = b.runnable.empty() ? b.launch.shape.threads() : static_cast<uint32_t>(b.runnable.size());
  b.budget = random_.below(2 * (fibers < 64 ? fibers : 64) + 1);
  return b;
}

fiber& schedule::choose_fiber(block& b) {
  if (explorer_ != nullptr) {
    fiber& f = explorer_->choose_fiber(b);
    f.granted = f.quantum;
    explorer_->record(stop_, key_of(f));
    return f;
  }
  fiber& f = replays() ? replayed_fiber(b) : chosen_fiber(b);
  f.granted = f.quantum;
  if (log_ != nullptr) {
    log_->record(stop_, key_of(f));
    if (log_->reports() && stopped_ != &f && log_->next(stop_) != nullptr) log_->report(stopped_, f);
  }
  return f;
}

fiber& schedule::chosen_fiber(block& b) {
  if (kind_ == schedule_kind::pct) {
    fiber& f = top(b);
    const uint64_t next = changes_.empty() ? window_end_ : changes_.back();
    f.quantum = static_cast<uint32_t>(std::min<uint64_t>(points_at_once, std::max<uint64_t>(next - points_, 1)));
    return f;
  }
  const auto count = static_cast<uint32_t>(b.runnable.size());
  uint32_t place = random_.below(count);
  if (kind_ != schedule_kind::random) {
    const uint32_t free = first_from(place, count, [&](uint32_t i) { return !holds(*b.runnable[i]); });
    if (free < count) place = free;
  }
  fiber& f = *b.runnable[place];
  f.quantum = 1 + random_.below(8);
  return f;
}

// --- from a file ---

/// Where the file says nothing, the running thread goes on; when it cannot, or may be spinning, the next one does.
block& schedule::replayed_block(const std::vector<block*>& ready) {
  const thread_key* const said = log_->next(stop_);
  const bool goes_on = stopped_ != nullptr && stopped_->state == fiber_state::runnable && stopped_->alone < patience;
  const thread_key wanted = said != nullptr ? *said : stop_.thread;
  block* after = nullptr;  // of the first runnable thread after the one that stopped, and of the first of all
  block* first = ready.front();
  thread_key after_key;
  thread_key first_key;  // none yet
  for (block* b : ready) {
    const thread_key start{b->launch.device, b->launch.of_device, b->rank, 0};
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
    for (const fiber* f : b->runnable) {
      const thread_key key = key_of(*f);
      if (key == wanted && (said != nullptr || goes_on)) {
        next_ = key;
        return *b;
      }
      visit(key);
    }
    if (said != nullptr && b->runnable.empty() && wanted >= start && wanted.device == start.device &&
        wanted.launch == start.launch && wanted.block == start.block) {
      next_ = wanted;
      return *b;
    }
  }
  if (goes_on) {
    next_ = stop_.thread;
    return *stopped_->home;
  }
  if (stopped_ != nullptr) stopped_->alone = 0;
  next_ = after != nullptr ? after_key : first_key;
  return after != nullptr ? *after : *first;
}

fiber& schedule::replayed_fiber(block& b) {
  fiber* f = b.runnable.front();
  for (fiber* candidate : b.runnable) {
    if (key_of(*candidate) == next_) f = candidate;
  }
  const uint64_t left = log_->next_point(key_of(*f), f->points) - f->points;
  f->quantum = static_cast<uint32_t>(std::min<uint64_t>(left, patience));
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

void schedule::fall_behind(fiber& f) {
  f.alone = 0;
  f.priority = --behind_all_;
  if (f.home->first == &f) f.home->first = nullptr;
}

fiber& schedule::top(block& b) const {
  if (b.first == nullptr) {
    b.first = *std::max_element(b.runnable.begin(), b.runnable.end(),
                                [](const fiber* x, const fiber* y) { return x->priority < y->priority; });
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

bool schedule::holds(const block& b) const {
  if (!holding_ || b.launch.device != victim_device_) return false;
  return kind_ == schedule_kind::slow_rank || b.rank == victim_block_;
}

bool schedule::holds(const fiber& f) const {
  return holds(*f.home) && (kind_ != schedule_kind::starve_warp || f.rank / 32 == victim_warp_);
}

bool schedule::holds_all(const block& b) const {
  if (!holds(b)) return false;
  return std::all_of(b.runnable.begin(), b.runnable.end(), [&](const fiber* f) { return holds(*f); });
}

}  // namespace devcomm::simulator::detail
