/// Loops over plain and volatile memory, which have no preemption points of their own.
#include "support.hpp"

#include <cstdint>

using namespace simulator_test;

namespace {

/// Thread 0 of block 0 waits for block 1, which waits for it.
__global__ void volatile_ping_pong(volatile int* words, int rounds) {
  if (threadIdx.x != 0) return;
  volatile int* const mine = words + blockIdx.x;
  volatile int* const theirs = words + (1 - blockIdx.x);
  for (int round = 1; round <= rounds; ++round) {
    if (blockIdx.x == 0) *mine = round;
    while (*theirs < round) {
    }
    if (blockIdx.x == 1) *mine = round;
  }
}

/// Each thread of a block waits for the one before.
__global__ void volatile_chain(volatile int* words) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  while (i > 0 && words[i - 1] == 0) {
  }
  words[i] = 1;
}

__device__ __noinline__ bool ready(const volatile int* flag) { return *flag != 0; }
__global__ void wait_in_function(int* words) {
  if (threadIdx.x == 0) {
    while (!ready(words)) {
    }
    words[1] = 5;
  } else {
    for (int i = 0; i < 1000; ++i) __syncwarp(1u << threadIdx.x);
    *const_cast<volatile int*>(words) = 1;
  }
}

/// The loop keeps count, so it might end by itself.
__global__ void count_rounds(volatile int* words, std::uint64_t* rounds) {
  if (threadIdx.x == 0) {
    std::uint64_t round = 0;
    while (*words == 0) ++round;
    *rounds = round;
  } else {
    __nanosleep(1000);
    *words = 1;
  }
}

__global__ void wait_for_ever(const volatile int* flag) {
  while (*flag == 0) {
  }
}
__global__ void wait_crosswise(volatile int* words) {
  while (words[1 - threadIdx.x] == 0) {
  }
  words[threadIdx.x] = 1;
}

/// Comes back with nothing of its own changed, and waits for nobody.
__global__ void count_in_memory(volatile int* word, int most) {
  while (*word < most) *word = *word + 1;
}

__global__ void add_up(const float* in, float* out, int count) {
  float sum = 0;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < count; ++i) sum += in[i];
  }
  *out = sum;
}

}  // namespace

TEST_CASE("threads that poll volatile words let others run") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    devcomm::simulator::set_seed(seed);
    const shared_array<int> words(256);
    REQUIRE(run(volatile_ping_pong, {.grid = 2, .block = 32}, words.get(), 20) == cudaSuccess);
    CHECK(words[0] == 20);
    CHECK(words[1] == 20);
    for (std::size_t i = 0; i < 256; ++i) words[i] = 0;
    REQUIRE(run(volatile_chain, {.grid = 4, .block = 64}, words.get()) == cudaSuccess);
    CHECK(words[255] == 1);
    words[0] = words[1] = 0;
    REQUIRE(run(wait_in_function, {.block = 2}, words.get()) == cudaSuccess);
    CHECK(words[1] == 5);
  }
  CHECK(devcomm::simulator::race_reports() == 0);  // flags are all that they share
  devcomm::simulator::set_seed(1);
}

TEST_CASE("a loop over a volatile word that keeps count is interrupted") {
  const shared_array<int> words(1);
  const shared_array<std::uint64_t> rounds(1);
  REQUIRE(run(count_rounds, {.block = 2}, words.get(), rounds.get()) == cudaSuccess);
  CHECK(words[0] == 1);
}

TEST_CASE("polls of volatile words that nobody writes are a deadlock") {
  const shared_array<int> words(2);
  devcomm::simulator::clear_failure();
  CHECK(run(wait_for_ever, {}, words.get()) == cudaErrorLaunchTimeout);
  CHECK(contains(devcomm::simulator::last_failure(), "deadlock: every thread waits and nothing can change"));
  CHECK(contains(devcomm::simulator::last_failure(), "polls plain or volatile memory, which does not change"));
  devcomm::simulator::clear_failure();
  CHECK(run(wait_crosswise, {.block = 2}, words.get()) == cudaErrorLaunchTimeout);
  CHECK(contains(devcomm::simulator::last_failure(), "deadlock"));
}

TEST_CASE("loops that change memory or compute are no waits") {
  const shared_array<int> word(1);
  REQUIRE(run(count_in_memory, {}, word.get(), 1000000) == cudaSuccess);
  CHECK(word[0] == 1000000);
  const shared_array<float> numbers(10001);
  for (std::size_t i = 0; i < 10000; ++i) numbers[i] = 1;
  REQUIRE(run(add_up, {}, numbers.get(), numbers.get() + 10000, 10000) == cudaSuccess);
  CHECK(numbers[10000] == 400000.0f);
}

namespace {

__device__ unsigned blocks_done;
__device__ volatile int turn = 1;
__constant__ int step[2] = {3, 4};

/// Of all blocks of a launch the last one tells how many it has counted, and sets the counter back.
__global__ void count_blocks(unsigned* seen) {
  if (atomicAdd(&blocks_done, 1u) + 1 != gridDim.x) return;
  *seen = blocks_done;
  blocks_done = 0;
}

/// Blocks take turns.
__global__ void take_turns(int* sum) {
  while (turn != static_cast<int>(blockIdx.x) + 1) {
  }
  __threadfence();
  sum[0] += step[blockIdx.x % 2];
  __threadfence();
  turn = static_cast<int>(blockIdx.x) + 2;
}

}  // namespace

TEST_CASE("each simulated GPU has its own __device__ and __constant__ variables, from launch to launch") {
  constexpr int devices = 3;
  constexpr unsigned blocks = 6;
  const shared_array<unsigned> seen(devices);
  const shared_array<int> sums(devices);
  for (int launches = 0; launches < 2; ++launches) {
    for (int d = 0; d < devices; ++d) {
      REQUIRE(cudaSetDevice(d) == cudaSuccess);
      devcomm::launch(count_blocks, {.grid = blocks + static_cast<unsigned>(d), .block = 1}, seen.get() + d);
      if (launches == 0) devcomm::launch(take_turns, {.grid = blocks, .block = 1}, sums.get() + d);
    }
    for (int d = 0; d < devices; ++d) {
      REQUIRE(cudaSetDevice(d) == cudaSuccess);
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
      CHECK(seen[static_cast<std::size_t>(d)] == blocks + static_cast<unsigned>(d));
      CHECK(sums[static_cast<std::size_t>(d)] == 21);
    }
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}
