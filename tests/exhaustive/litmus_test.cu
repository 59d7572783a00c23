/// The exploration itself: how many executions there are of small programs, and what can come of them.
#include "simulator/support.hpp"

#include <devcomm/arch/arch.cuh>
#include <devcomm/simulator/explore.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <vector>

using namespace simulator_test;
namespace sim = devcomm::simulator;
namespace arch = devcomm::arch;
using devcomm::memory_order;
using devcomm::scope;

namespace {

__device__ unsigned load(const unsigned* word) { return arch::load<memory_order::acquire, scope::system>(word); }
__device__ void store(unsigned* word, unsigned value) {
  arch::store<memory_order::release, scope::system>(word, value);
}

constexpr std::size_t words = 16;
using outcome = std::vector<unsigned>;

/// What an exploration of `kernel` comes to: its threads are lanes of one block, or blocks of one thread.
struct explored {
  sim::exploration_result result;
  std::set<outcome> outcomes;
};
template <class Kernel>
explored explore(Kernel kernel, unsigned blocks, unsigned threads, bool reduction = true) {
  const shared_array<unsigned> memory(words);
  explored all;
  sim::explore_options options;
  options.reduction = reduction;
  options.schedule_file = "";
  all.result = sim::explore(options, [&] {
    for (std::size_t i = 0; i < words; ++i) memory[i] = 0;
    if (run(kernel, {.grid = blocks, .block = threads}, memory.get()) != cudaSuccess) {
      throw std::runtime_error("the kernel failed");
    }
    all.outcomes.insert(outcome(memory.get(), memory.get() + words));
  });
  return all;
}

/// Explores with and without reduction: the same must come of it.
template <class Kernel>
explored check(const char* name, Kernel kernel, unsigned blocks, unsigned threads) {
  const explored all = explore(kernel, blocks, threads, false);
  explored few = explore(kernel, blocks, threads);
  CAPTURE(name, all.result.executions, few.result.executions, few.result.redundant, all.outcomes.size());
  CHECK(all.result.failure.empty());
  CHECK(few.result.failure.empty());
  CHECK(all.result.complete);
  CHECK(few.result.complete);
  CHECK(few.outcomes == all.outcomes);
  CHECK(few.result.executions <= all.result.executions);
  return few;
}

__global__ void write_apart(unsigned* m) { store(m + threadIdx.x + 4 * blockIdx.x, 1); }
__global__ void write_together(unsigned* m) { store(m, 1 + threadIdx.x + 4 * blockIdx.x); }
__global__ void write_and_trap(unsigned* m) {
  store(m, 1);
  __trap();
}
__global__ void read_one_write(unsigned* m) {
  if (threadIdx.x == 0) {
    store(m, 1);
  } else {
    m[threadIdx.x] = 1 + load(m);
  }
}
__global__ void store_then_load(unsigned* m) {
  const unsigned self = threadIdx.x + blockIdx.x;
  store(m + self, 1);
  m[2 + self] = 1 + load(m + 1 - self);
}
__global__ void pass_message(unsigned* m) {
  if (threadIdx.x == 0) {
    store(m, 1);
    store(m + 1, 1);
  } else {
    m[2] = 1 + load(m + 1);
    m[3] = 1 + load(m);
  }
}
__global__ void add_in_two_steps(unsigned* m) {
  const unsigned before = load(m);
  store(m, before + 1);
}
__global__ void wait_for_flag(unsigned* m) {
  if (threadIdx.x == 0) {
    store(m + 1, 1);
    store(m, 1);
  } else {
    while (load(m) == 0) {
    }
    m[2 + threadIdx.x] = 1 + load(m + 1);
  }
}
__global__ void meet_between(unsigned* m) {
  store(m + threadIdx.x, 1);
  __syncthreads();
  m[4 + threadIdx.x] = 1 + load(m + 1 - threadIdx.x);
}
__global__ void take_turns(unsigned* m) {
  for (int round = 0; round < 2; ++round) {
    while (atomicCAS(m, 0u, 1u) != 0) {
    }
    __threadfence();
    m[1] = 2 * m[1] + threadIdx.x;
    store(m, 0);
  }
}

/// A wait as the library's: for both of two words, until another ends it.
__device__ unsigned wait_for_both(const unsigned* two, const unsigned* abort_word) {
  arch::wait_scope waiting(
      [] {
        return devcomm::detail::wait_label{{devcomm::operation::lsa_barrier, 0, 1, 1}, 0, 1000000000, false};
      },
      [=] { return abort_word; });
  for (;;) {
    const unsigned first = load(two);
    const unsigned second = load(two + 1);
    if (first != 0 && second != 0) return 1;
    waiting.pause();
    if (load(abort_word) != 0) return 2;
    static_cast<void>(arch::global_time());
  }
}
__global__ void wait_or_be_aborted(unsigned* m) {
  if (threadIdx.x == 0) {
    store(m, 1);
    store(m + 1, 1);
  } else if (threadIdx.x == 1) {
    m[8] = wait_for_both(m, m + 2);
  } else {
    store(m + 2, 1);
  }
}
__global__ void wait_for_all(unsigned* m, unsigned count) {
  if (threadIdx.x == 0) return store(m + count - 1, 1);
  arch::wait_scope waiting(
      [] {
        return devcomm::detail::wait_label{{devcomm::operation::ll_mailbox, 0, 1, 1}, 0, 1000000000, false};
      },
      [=] { return m + count; });
  for (;;) {
    unsigned missing = 0;
    for (unsigned i = 0; i < count; ++i) missing += load(m + i) == 0 ? 1u : 0u;
    if (missing == 0) return;
    waiting.pause();
    static_cast<void>(load(m + count));
    static_cast<void>(arch::global_time());
  }
}
__global__ void wait_in_turn(unsigned* m) {
  if (threadIdx.x == 0) {
    store(m, 1);
    m[8] = wait_for_both(m + 4, m + 2);
  } else if (threadIdx.x == 1) {
    m[9] = wait_for_both(m, m + 2);
    store(m + 4, 1);
  } else {
    store(m + 1, 1);
    store(m + 2, 1);
    store(m + 5, 1);
  }
}

// --- lines: four that a warp stores or loads by one instruction, then a word for each lane ---

constexpr std::size_t line_words = 128;
__device__ unsigned* own_part(unsigned* lines) { return lines + std::size_t{4} * threadIdx.x; }
__device__ void fill_lines(unsigned* lines, unsigned value) {
  arch::store_lines(own_part(lines), {value, value, value, value});
}

__global__ void store_lines_together(unsigned* lines) { fill_lines(lines, 1 + blockIdx.x); }
__global__ void store_and_load_lines(unsigned* lines) {
  if (blockIdx.x == 0) return fill_lines(lines, 1);
  const arch::vec16 got = arch::load_lines(own_part(lines));
  const bool whole = got.x == got.y && got.x == got.z && got.x == got.w;
  lines[line_words + threadIdx.x] = whole ? 1 + got.x : 9;
}
__global__ void store_lines_and_load_words(unsigned* lines) {
  if (blockIdx.x == 0) return fill_lines(lines, 1);
  if (threadIdx.x != 0) return;
  for (unsigned line = 0; line < 4; ++line) {  // 8 bytes at a time, as lines are stored
    const auto* const pair = reinterpret_cast<const std::uint64_t*>(lines + 32 * line + 30);
    const auto got = arch::load<memory_order::acquire, scope::system>(pair);
    lines[line_words + line] = 1 + static_cast<unsigned>(got >> 32 * (line % 2));
  }
}
__global__ void wait_for_lines_or_be_aborted(unsigned* lines) {
  unsigned* const abort_word = lines + line_words + 32;
  if (blockIdx.x == 0) return fill_lines(lines, 1);
  if (blockIdx.x == 2) {
    if (threadIdx.x == 0) store(abort_word, 1);
    return;
  }
  arch::wait_scope waiting(
      [] {
        return devcomm::detail::wait_label{{devcomm::operation::ll128_mailbox, 0, 1, 1}, 0, 1000000000, false};
      },
      [=] { return abort_word; });
  for (;;) {
    const arch::vec16 got = arch::load_lines(own_part(lines));
    if (!arch::any(arch::full_mask, got.w == 0)) {
      lines[line_words + threadIdx.x] = 1;
      return;
    }
    waiting.pause();
    const bool aborted = load(abort_word) != 0;
    static_cast<void>(arch::global_time());
    if (arch::any(arch::full_mask, aborted)) {
      arch::fetch_add<memory_order::relaxed, scope::system>(lines + line_words + 33, 1u);
      lines[line_words + threadIdx.x] = 2;
      return;
    }
  }
}

/// Explores a kernel of warps; random schedules find nothing else.
template <class Kernel>
explored explore_lines(Kernel kernel, unsigned blocks) {
  const shared_array<unsigned> memory(line_words + 64);
  explored all;
  const auto once = [&](std::set<outcome>& outcomes) {
    for (std::size_t i = 0; i < line_words + 64; ++i) memory[i] = 0;
    if (run(kernel, {.grid = blocks, .block = 32}, memory.get()) != cudaSuccess)
      throw std::runtime_error(sim::last_failure());
    outcomes.insert(outcome(memory.get(), memory.get() + line_words + 64));
  };
  sim::explore_options options;
  options.schedule_file = "";
  all.result = sim::explore(options, [&] { once(all.outcomes); });
  CHECK(all.result.failure.empty());
  CHECK(all.result.complete);
  std::set<outcome> sampled;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    sim::set_seed(seed);
    once(sampled);
  }
  CHECK(sampled.size() > 1);
  CHECK(std::includes(all.outcomes.begin(), all.outcomes.end(), sampled.begin(), sampled.end()));
  return all;
}

}  // namespace

TEST_CASE("independent threads have one execution") {
  CHECK(check("two writers of two words", write_apart, 1, 2).result.executions == 1);
  CHECK(explore(write_apart, 2, 2).result.executions == 1);
}

TEST_CASE("each order of conflicting steps has one execution") {
  CHECK(check("two writers of a word", write_together, 1, 2).result.executions == 2);
  CHECK(check("three writers of a word", write_together, 1, 3).result.executions == 6);
  CHECK(explore(write_together, 2, 2).result.executions == 24);
  CHECK(check("a writer and two readers", read_one_write, 1, 3).result.executions == 4);
  CHECK(explore(read_one_write, 1, 4).result.executions == 8);
}

TEST_CASE("what comes of programs is what sequential consistency allows") {
  check("store buffering", store_then_load, 1, 2);
  check("store buffering, two blocks", store_then_load, 2, 1);
  check("message passing", pass_message, 1, 2);
  check("addition in two steps, two threads", add_in_two_steps, 1, 2);
  check("addition in two steps, three threads", add_in_two_steps, 1, 3);
  check("waiting for a flag", wait_for_flag, 1, 2);
  check("waiting for a flag, three threads", wait_for_flag, 1, 3);
  check("a barrier between", meet_between, 1, 2);
  check("a lock, two rounds of two threads", take_turns, 1, 2);
  CHECK(check("a wait that may be aborted", wait_or_be_aborted, 1, 3).outcomes.size() == 2);
  CHECK(check("waits that hang together and may be aborted", wait_in_turn, 1, 3).outcomes.size() >= 3);
}

TEST_CASE("a wait may look at many words") {
  constexpr unsigned count = 100;
  const shared_array<unsigned> memory(count + 1);
  sim::explore_options options;
  options.schedule_file = "";
  const auto result = sim::explore(options, [&] {
    for (unsigned i = 0; i < count; ++i) memory[i] = i + 1 < count ? 1 : 0;
    if (run(wait_for_all, {.block = 2}, memory.get(), count) != cudaSuccess)
      throw std::runtime_error(sim::last_failure());
  });
  CHECK(result.failure.empty());
  CHECK(result.complete);
}

TEST_CASE("lines are seen whole, and in any order") {
  const explored stored = explore_lines(store_lines_together, 2);
  CHECK(stored.outcomes.size() == 16);  // each line is that of one warp or the other
  CHECK(stored.result.executions == 16);
  for (const outcome& o : stored.outcomes) {
    for (std::size_t i = 0; i < line_words; ++i) CHECK(o[i] == o[i / 32 * 32]);
  }
  const explored loaded = explore_lines(store_and_load_lines, 2);
  CHECK(loaded.outcomes.size() == 16);
  CHECK(loaded.result.executions == 16);
  for (const outcome& o : loaded.outcomes) {
    for (std::size_t lane = 0; lane < 32; ++lane) {
      CHECK(o[line_words + lane] != 9);
      CHECK(o[line_words + lane] == o[line_words + lane / 8 * 8]);
    }
  }
  const explored by_word = explore_lines(store_lines_and_load_words, 2);
  CHECK(by_word.outcomes.size() == 16);
  CHECK(by_word.result.executions == 16);
}

TEST_CASE("the lanes of a warp wait for lines in step") {
  const explored all = explore_lines(wait_for_lines_or_be_aborted, 3);
  CHECK(all.outcomes.size() == 2);
  for (const outcome& o : all.outcomes) {
    for (std::size_t lane = 0; lane < 32; ++lane) CHECK(o[line_words + lane] == o[line_words]);
    CHECK(o[line_words + 33] == (o[line_words] == 1 ? 0 : 32));
  }
}

TEST_CASE("memory that the body allocates is fresh, and at the same addresses, in each execution") {
  std::set<unsigned*> addresses;
  int runs = 0;
  const auto result = sim::explore({.schedule_file = ""}, [&] {
    unsigned* kept = nullptr;  // until the next execution
    unsigned* freed = nullptr;
    devcomm::check_cuda(cudaMalloc(&kept, 64), "cudaMalloc");
    devcomm::check_cuda(cudaMallocHost(&freed, 64), "cudaMallocHost");
    if (freed[0] != ~0u) throw std::runtime_error("memory has what an execution before has left");
    freed[0] = 0;
    run(write_together, {.grid = 2, .block = 2}, freed);
    addresses.insert({kept, freed});
    devcomm::check_cuda(cudaFreeHost(freed), "cudaFreeHost");
    ++runs;
  });
  CHECK(result.complete);
  CHECK(result.failure.empty());
  CHECK(runs == 24);
  CHECK(addresses.size() == 2);
}

TEST_CASE("an exploration that ends early says why") {
  const shared_array<unsigned> memory(words);
  const auto race = [&] {
    memory[0] = 0;
    REQUIRE(run(write_together, {.block = 3}, memory.get()) == cudaSuccess);
  };
  sim::explore_options options;
  options.schedule_file = "";
  SECTION("executions") {
    options.executions = 5;
    const auto result = sim::explore(options, race);
    CHECK_FALSE(result.complete);
    CHECK(result.executions == 5);
    CHECK(contains(result.failure, "5 executions were not all"));
  }
  SECTION("steps") {
    options.steps = 4;
    const auto result = sim::explore(options, race);
    CHECK_FALSE(result.complete);
    CHECK(contains(result.failure, "an execution has more than 4 steps"));
  }
  SECTION("a wrong result") {
    const auto result = sim::explore(options, [&] {
      race();
      if (memory[0] == 2) throw std::runtime_error("thread 1 was last");
    });
    CHECK_FALSE(result.complete);
    CHECK(contains(result.failure, " fails: thread 1 was last"));
  }
  SECTION("a body that does something else each time") {
    unsigned calls = 0;
    const auto result = sim::explore(
        options, [&] { REQUIRE(run(write_together, {.block = 3}, memory.get() + calls++) == cudaSuccess); });
    CHECK_FALSE(result.complete);
    CHECK(contains(result.failure, "execution 2 does not repeat an earlier one"));
  }
  SECTION("a kernel that ends in the middle of a step, while that of another device goes on") {
    const auto result = sim::explore(options, [&] {
      for (int device = 0; device < 2; ++device) {
        devcomm::check_cuda(cudaSetDevice(device), "cudaSetDevice");
        devcomm::launch(device == 0 ? write_and_trap : add_in_two_steps, {}, memory.get() + device);
      }
      static_cast<void>(cudaDeviceSynchronize());
      devcomm::check_cuda(cudaSetDevice(0), "cudaSetDevice");
      static_cast<void>(cudaDeviceSynchronize());
    });
    CHECK(contains(result.failure, "execution 1 fails: device 0, block 0, thread 0, kernel "));
  }
  SECTION("misuse") {
    const auto result = sim::explore(options, [&] { static_cast<void>(sim::explore(options, race)); });
    CHECK(contains(result.failure, "called from within an exploration"));
  }
  CHECK(sim::explore({}, race).complete);  // the next one begins anew
}
