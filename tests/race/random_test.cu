/// Random kernels: the race detector against the definition of a race, computed from what each run did.
#include <devcomm/arch/arch.cuh>

#include "support.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;
namespace sim = devcomm::simulator;

namespace {

constexpr int blocks = 2;
constexpr int threads_per_block = 2;
constexpr int threads = blocks * threads_per_block;
constexpr int rounds = 3;  // with a barrier of the block after each
constexpr int steps_per_round = 4;
constexpr int words = 4;

enum class kind { read, write, load, store, add, fence, arrive, leave };

struct step {
  kind what;
  memory_order order;
  int place;  ///< byte of a plain access, word of a strong one
  int bytes;
};

/// A step that ran; for barriers, which one.
struct event {
  int thread;
  step what;
  int barrier = 0;
};

struct program {
  step steps[threads][rounds * steps_per_round];
};

/// What the last program did, in the order in which it ran: nobody comes between a step and its line. Not memory of the
/// simulation, so not watched.
std::vector<event> log_of_run;

template <class T>
__device__ void access(char* at, bool writes) {
  auto* const place = reinterpret_cast<T*>(at);
  if (writes) {
    *place = T{1};
  } else {
    [[maybe_unused]] volatile T value = *place;
  }
}

template <memory_order Order>
__device__ void strong(const step& s, unsigned* word) {
  constexpr memory_order load_order = Order == memory_order::release ? memory_order::acquire : Order;
  constexpr memory_order store_order = Order == memory_order::acquire ? memory_order::release : Order;
  if (s.what == kind::load) {
    if constexpr (load_order == memory_order::acq_rel) {
      static_cast<void>(arch::load<memory_order::acquire, scope::system>(word));
    } else {
      static_cast<void>(arch::load<load_order, scope::system>(word));
    }
  } else if (s.what == kind::store) {
    if constexpr (store_order == memory_order::acq_rel) {
      arch::store<memory_order::release, scope::system>(word, 1u);
    } else {
      arch::store<store_order, scope::system>(word, 1u);
    }
  } else if (s.what == kind::add) {
    arch::fetch_add<Order, scope::system>(word, 1u);
  } else if constexpr (Order != memory_order::relaxed) {
    arch::fence<Order, scope::system>();
  }
}

__global__ void interpret(const program* p, unsigned* memory) {
  const int self = static_cast<int>(blockIdx.x * threads_per_block + threadIdx.x);
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < steps_per_round; ++i) {
      const step& s = p->steps[self][round * steps_per_round + i];
      log_of_run.push_back({self, s});
      if (s.what == kind::read || s.what == kind::write) {
        char* const at = reinterpret_cast<char*>(memory) + s.place;
        if (s.bytes == 1) access<std::uint8_t>(at, s.what == kind::write);
        if (s.bytes == 2) access<std::uint16_t>(at, s.what == kind::write);
        if (s.bytes == 4) access<std::uint32_t>(at, s.what == kind::write);
        continue;
      }
      if (s.order == memory_order::relaxed) strong<memory_order::relaxed>(s, memory + s.place);
      if (s.order == memory_order::acquire) strong<memory_order::acquire>(s, memory + s.place);
      if (s.order == memory_order::release) strong<memory_order::release>(s, memory + s.place);
      if (s.order == memory_order::acq_rel) strong<memory_order::acq_rel>(s, memory + s.place);
    }
    const int barrier = static_cast<int>(blockIdx.x) * rounds + round;
    log_of_run.push_back({self, {kind::arrive, memory_order::relaxed, 0, 0}, barrier});
    __syncthreads();
    log_of_run.push_back({self, {kind::leave, memory_order::relaxed, 0, 0}, barrier});
  }
}

program random_program(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  constexpr memory_order orders[] = {memory_order::relaxed, memory_order::acquire, memory_order::release,
                                     memory_order::acq_rel};
  const auto strong_of_twenty = static_cast<unsigned>(15 + below(5));  // the more of them, the rarer races
  program p;
  for (auto& thread : p.steps) {
    for (step& s : thread) {
      s.order = orders[below(4)];
      s.bytes = 1 << below(3);
      if (random() % 20 >= strong_of_twenty) {
        s.what = below(3) == 0 ? kind::write : kind::read;
        // Mostly words that are not flags.
        const int word = below(8) == 0 ? below(words) : 2 + below(words - 2);
        s.place = word * 4 + below(4u / static_cast<unsigned>(s.bytes)) * s.bytes;
      } else {
        constexpr kind strong_kinds[] = {kind::load, kind::load, kind::store, kind::add, kind::fence};
        s.what = strong_kinds[below(5)];
        s.place = below(2);
        if (s.what == kind::fence && s.order == memory_order::relaxed) s.order = memory_order::acq_rel;
      }
    }
  }
  return p;
}

bool releases(const step& s) {
  if (s.order == memory_order::relaxed) return false;
  if (s.what == kind::store) return true;  // see strong()
  return (s.what == kind::add || s.what == kind::fence) && s.order != memory_order::acquire;
}
bool acquires(const step& s) {
  if (s.order == memory_order::relaxed) return false;
  if (s.what == kind::load) return true;
  return (s.what == kind::add || s.what == kind::fence) && s.order != memory_order::release;
}
bool is_strong(const step& s) { return s.what == kind::load || s.what == kind::store || s.what == kind::add; }
bool changes(const step& s) { return s.what == kind::write || s.what == kind::store || s.what == kind::add; }

/// Happens-before over a run, as a relation of every pair.
class order_of {
 public:
  /// `keeps_release`: whether a relaxed store goes on with an earlier release of its own thread on the word, as in PTX,
  /// or not, as in C++20. The detector may do either once another thread has stored in between.
  order_of(const std::vector<event>& log, bool keeps_release)
      : log_(log), before_(log.size(), std::vector<bool>(log.size())) {
    std::vector<std::vector<std::size_t>> published(log.size());  // of a store: the events that it publishes up to
    std::vector<std::vector<std::size_t>> found(log.size());      // of a load
    for (std::size_t i = 0; i < log.size(); ++i) {
      const step& s = log[i].what;
      for (std::size_t j = 0; j < i; ++j) {
        const bool meets =
            s.what == kind::leave && log[j].what.what == kind::arrive && log[j].barrier == log[i].barrier;
        if (log[j].thread == log[i].thread || meets) follow(i, j);
      }
      const std::optional<std::size_t> last = latest_store(i);
      if (last && (s.what == kind::load || s.what == kind::add)) {
        found[i] = published[*last];
        if (acquires(s)) follow_all(i, found[i]);
      }
      if (s.what == kind::fence && acquires(s)) {
        for (std::size_t j = 0; j < i; ++j)
          if (log[j].thread == log[i].thread) follow_all(i, found[j]);
      }
      if (s.what == kind::store || s.what == kind::add) {
        if (s.what == kind::add && last) published[i] = published[*last];
        for (std::size_t j = 0; j <= i; ++j) {
          const step& earlier = log[j].what;
          if (log[j].thread != log[i].thread || !releases(earlier)) continue;
          const bool same_word = earlier.what != kind::fence && earlier.place == s.place;
          if (j == i || earlier.what == kind::fence || (keeps_release && same_word)) published[i].push_back(j);
        }
      }
    }
  }

  /// `observes`: whether a strong store or addition is before what follows a load of a value that was made of it, as in
  /// PTX. The detector knows that of the loading thread's latest values.
  [[nodiscard]] bool has_race(bool observes) const {
    for (std::size_t i = 0; i < log_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (conflict(log_[j].what, log_[i].what) && !before_[j][i] && !(observes && is_observed(j, i))) return true;
    return false;
  }

 private:
  /// Everything before `j`, and `j`, is before `i`.
  void follow(std::size_t i, std::size_t j) {
    before_[j][i] = true;
    for (std::size_t k = 0; k < j; ++k)
      if (before_[k][j]) before_[k][i] = true;
  }
  void follow_all(std::size_t i, const std::vector<std::size_t>& events) {
    for (const std::size_t j : events)
      if (j != i) follow(i, j);
  }
  [[nodiscard]] std::optional<std::size_t> latest_store(std::size_t i) const {
    for (std::size_t j = i; j-- > 0;) {
      const step& s = log_[j].what;
      if ((s.what == kind::store || s.what == kind::add) && s.place == log_[i].what.place) return j;
    }
    return std::nullopt;
  }
  /// Whether a load before `i` found a value that `j` made, or that additions made of it.
  [[nodiscard]] bool is_observed(std::size_t j, std::size_t i) const {
    if (!is_strong(log_[j].what) || !changes(log_[j].what)) return false;
    for (std::size_t load = j + 1; load < i; ++load) {
      const step& s = log_[load].what;
      if ((s.what != kind::load && s.what != kind::add) || s.place != log_[j].what.place || !before_[load][i]) continue;
      std::optional<std::size_t> from = latest_store(load);
      while (from && *from > j && log_[*from].what.what == kind::add) from = latest_store(*from);
      if (from == j) return true;
    }
    return false;
  }
  static bool conflict(const step& a, const step& b) {
    const auto accesses = [](const step& s) { return is_strong(s) || s.what == kind::read || s.what == kind::write; };
    if (!accesses(a) || !accesses(b) || (is_strong(a) && is_strong(b)) || (!changes(a) && !changes(b))) return false;
    const auto first = [](const step& s) { return is_strong(s) ? s.place * 4 : s.place; };
    const auto end = [&](const step& s) { return first(s) + (is_strong(s) ? 4 : s.bytes); };
    return first(a) < end(b) && first(b) < end(a);
  }

  const std::vector<event>& log_;
  std::vector<std::vector<bool>> before_;
};

}  // namespace

TEST_CASE("of random kernels exactly those with a race are reported") {
  constexpr std::uint32_t programs = 3000;
  unsigned* memory = nullptr;
  devcomm::check_cuda(cudaMalloc(&memory, words * sizeof(unsigned)), "cudaMalloc");
  const simulator_test::shared_array<program> current(1);
  std::uint32_t racy = 0;
  std::uint32_t clean = 0;
  for (std::uint32_t seed = 1; seed <= programs; ++seed) {
    current[0] = random_program(seed);
    log_of_run.clear();
    sim::set_seed(seed);
    sim::clear_races();
    const cudaError_t error =
        simulator_test::run(interpret, {.grid = blocks, .block = threads_per_block}, current.get(), memory);
    REQUIRE(error == cudaSuccess);
    const bool reported = sim::race_reports() > 0;
    const bool surely = order_of(log_of_run, true).has_race(true);
    const bool perhaps = order_of(log_of_run, false).has_race(false);
    INFO("program " << seed);
    if (surely) CHECK(reported);
    if (!perhaps) CHECK_FALSE(reported);
    racy += surely ? 1 : 0;
    clean += perhaps ? 0 : 1;
  }
  CHECK(racy > programs / 5);
  CHECK(clean > programs / 5);
  sim::clear_races();
  sim::set_seed(1);
  cudaFree(memory);
}
