/// Kinds of schedule: each repeats, lets right kernels end, and finds what it is for.
#include "support.hpp"

#include <devcomm/arch/arch.cuh>

#include <cstdint>
#include <functional>
#include <stdexcept>

using namespace simulator_test;
namespace sim = devcomm::simulator;
namespace arch = devcomm::arch;
using devcomm::memory_order;
using devcomm::scope;

namespace {

constexpr const char* kinds[] = {"random", "pct:3", "pct:2:1000", "slow_rank", "slow_block", "starve_warp", "mixed"};

/// The first schedule again, however the test ends.
struct usual_schedule {
  usual_schedule() = default;
  ~usual_schedule() {
    sim::set_schedule("random");
    sim::set_seed(1);
  }
  usual_schedule(const usual_schedule&) = delete;
  usual_schedule& operator=(const usual_schedule&) = delete;
};

// --- kernels without a mistake ---

__global__ void take_numbers(unsigned* counter, unsigned* numbers) {
  const unsigned i = threadIdx.x + blockIdx.x * blockDim.x;
  __syncthreads();
  numbers[i] = atomicAdd_system(counter, 1u);
}

/// Adds up under a lock that threads spin for in a way that no runtime can see through.
__global__ void add_under_lock(unsigned* lock, unsigned* sum) {
  for (int round = 0; round < 3; ++round) {
    while (atomicExch_system(lock, 1u) != 0) {
    }
    const unsigned before = arch::load<memory_order::relaxed, scope::system>(sum);
    arch::store<memory_order::relaxed, scope::system>(sum, before + 1);
    atomicExch_system(lock, 0u);
  }
}

/// The last thread of the grid writes more words than a waiting loop is watched for.
__global__ void wait_for_many(unsigned* words, unsigned count) {
  if (threadIdx.x == blockDim.x - 1 && blockIdx.x == gridDim.x - 1) {
    for (unsigned i = 0; i < count; ++i) atomicExch_system(words + i, 1u);
    return;
  }
  for (;;) {
    unsigned sum = 0;
    for (unsigned i = 0; i < count; ++i) sum += arch::load<memory_order::acquire, scope::system>(words + i);
    if (sum == count) break;
  }
}

/// A flag that is set late, polled with a clock and with sleep between.
__global__ void wait_by_clock(unsigned* flag) {
  if (threadIdx.x == 40) {
    const long long start = clock64();
    while (clock64() - start < 50000) {
    }
    atomicExch_system(flag, 1u);
  } else if (threadIdx.x < 20) {
    while (clock64() > 0 && arch::load<memory_order::acquire, scope::system>(flag) == 0) {
    }
  } else {
    while (atomicCAS(flag, 7u, 8u) == 0) __nanosleep(100);
  }
}

// --- kernels with one ---

enum class apart { ranks, blocks, warps };

constexpr unsigned slots = 128;
constexpr unsigned items = 1000;
struct ring {
  unsigned filled;
  unsigned values[slots];
  unsigned mixed_up;
};

/// A ring that is filled without waiting for free slots: right as long as the reader keeps up.
__device__ void fill(ring* r) {
  for (unsigned i = 0; i < items; ++i) {
    arch::store<memory_order::relaxed, scope::system>(&r->values[i % slots], i);
    arch::store<memory_order::release, scope::system>(&r->filled, i + 1);
    for (int pause = 0; pause < 4; ++pause) atomicAdd_system(&r->mixed_up, 0u);  // producing takes time
  }
}
__device__ void drain(ring* r) {
  for (unsigned i = 0; i < items; ++i) {
    while (arch::load<memory_order::acquire, scope::system>(&r->filled) <= i) {
    }
    if (arch::load<memory_order::relaxed, scope::system>(&r->values[i % slots]) != i)
      atomicAdd_system(&r->mixed_up, 1u);
  }
}
__global__ void pass_through_ring(ring* r, apart how, bool second_device) {
  const bool reader = how == apart::ranks    ? second_device
                      : how == apart::blocks ? blockIdx.x == 1
                                             : threadIdx.x / 32 == 1;
  if (threadIdx.x % 32 != 0) return;
  if (reader) {
    drain(r);
  } else {
    fill(r);
  }
}

bool ring_fails(apart how) {
  const shared_array<ring> r(1);
  const int devices = how == apart::ranks ? 2 : 1;
  for (int d = 0; d < devices; ++d) {
    REQUIRE(cudaSetDevice(d) == cudaSuccess);
    devcomm::launch(pass_through_ring,
                    {.grid = how == apart::blocks ? 2u : 1u, .block = how == apart::warps ? 64u : 32u}, r.get(), how,
                    d == 1);
  }
  for (int d = 0; d < devices; ++d) {
    REQUIRE(cudaSetDevice(d) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  return r[0].mixed_up != 0;
}

/// A counter is read twice with nothing in between: wrong for who takes the two for one, if another thread
/// goes on far between them.
__global__ void read_twice(unsigned* counter, unsigned* apart) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < 300; ++i) atomicAdd_system(counter, 1u);
  } else {
    const unsigned first = arch::load<memory_order::relaxed, scope::system>(counter);
    const unsigned second = arch::load<memory_order::relaxed, scope::system>(counter);
    if (second - first > 250) atomicAdd_system(apart, 1u);
  }
}

bool reads_differ() {
  const shared_array<unsigned> words(2);
  REQUIRE(run(read_twice, {.block = 32}, words.get(), words.get() + 1) == cudaSuccess);
  return words[1] != 0;
}

__global__ void give_up() { throw std::runtime_error("gave up"); }

unsigned failures(const char* kind, unsigned seeds, const std::function<bool()>& fails) {
  const usual_schedule afterwards;
  sim::set_schedule(kind);
  unsigned found = 0;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    sim::set_seed(seed);
    if (fails()) ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("every kind of schedule repeats from its seed, and differs with it") {
  const usual_schedule afterwards;
  for (const char* kind : kinds) {
    CAPTURE(kind);
    sim::set_schedule(kind);
    const auto order = [](std::uint64_t seed) {
      const shared_array<unsigned> counter(1);
      const shared_array<unsigned> numbers(4 * 64);
      sim::set_seed(seed);
      REQUIRE(run(take_numbers, {.grid = 4, .block = 64}, counter.get(), numbers.get()) == cudaSuccess);
      std::vector<unsigned> taken(numbers.get(), numbers.get() + numbers.size());
      taken.push_back(static_cast<unsigned>(sim::get_statistics().trace_hash));
      return taken;
    };
    const auto first = order(11);
    CHECK(order(11) == first);
    CHECK(order(12) != first);
  }
}

TEST_CASE("right kernels end under every kind of schedule, however they spin") {
  const usual_schedule afterwards;
  for (const char* kind : kinds) {
    CAPTURE(kind);
    sim::set_schedule(kind);
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(seed);
      sim::set_seed(seed);
      const shared_array<unsigned> words(320);
      CHECK(run(add_under_lock, {.grid = 2, .block = 48}, words.get(), words.get() + 1) == cudaSuccess);
      CHECK(words[1] == 3 * 96);
      CHECK(run(wait_for_many, {.grid = 2, .block = 4}, words.get() + 8, 300u) == cudaSuccess);
      CHECK(run(wait_by_clock, {.block = 64}, words.get() + 4) == cudaSuccess);
    }
  }
}

TEST_CASE("a slow rank, a slow block and a starved warp show what random schedules do not") {
  constexpr unsigned seeds = 20;
  const struct {
    apart how;
    const char* kind;
  } cases[] = {{apart::ranks, "slow_rank"}, {apart::blocks, "slow_block"}, {apart::warps, "starve_warp"}};
  for (const auto& c : cases) {
    CAPTURE(c.kind);
    const auto fails = [&] { return ring_fails(c.how); };
    const unsigned by_chance = failures("random", seeds, fails);
    const unsigned found = failures(c.kind, seeds, fails);
    INFO(c.kind << ": " << found << " of " << seeds << " seeds, random " << by_chance);
    CHECK(by_chance == 0);
    CHECK(found >= 5);
  }
}

TEST_CASE("priorities show what needs one thread to stop at one place for long") {
  constexpr unsigned seeds = 200;
  const unsigned by_chance = failures("random", seeds, reads_differ);
  const unsigned any_length = failures("pct:2", seeds, reads_differ);
  const unsigned known_length = failures("pct:2:362", seeds, reads_differ);
  INFO("random " << by_chance << ", pct " << any_length << ", with the length " << known_length);
  CHECK(by_chance == 0);
  CHECK(any_length >= 1);
  CHECK(known_length >= 4);
}

TEST_CASE("a failure says how to repeat its schedule") {
  const usual_schedule afterwards;
  sim::set_schedule("pct:4");
  sim::set_seed(77);
  CHECK(sim::schedule() == "pct:4");
  CHECK(run(give_up, {}) == cudaErrorLaunchFailure);
  CHECK(contains(sim::last_failure(), "gave up (seed 77, DEVCOMM_SIM_SCHEDULE=pct:4)"));
  sim::set_schedule("random");
  CHECK(run(give_up, {}) == cudaErrorLaunchFailure);
  CHECK(contains(sim::last_failure(), "gave up (seed 77)"));
}

TEST_CASE("delayed stores are refused where stores are not instrumented") {
  if (sim::detects_races()) {
    sim::set_store_delay(5);
    CHECK(sim::store_delay() == 5);
    sim::set_store_delay(0);
  } else {
    CHECK_THROWS_AS(sim::set_store_delay(1), std::logic_error);
  }
  CHECK(sim::store_delay() == 0);
}

TEST_CASE("a schedule of an unknown name is refused") {
  for (const char* text : {"", "rand", "pct:", "pct:0", "pct:3:", "pct:3:0", "pct:3:5:7", "slow_rank:2", "Mixed"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(sim::set_schedule(text), std::invalid_argument);
  }
  CHECK(sim::schedule() == "random");
}
