/// Which accesses race, in which memory, and what a report says.
#include "support.hpp"

#include <cstring>

namespace sim = devcomm::simulator;
using simulator_test::contains;

extern __shared__ int race_test_dynamic[];

namespace {

template <class T>
__global__ void write_neighbors(T* data) {
  data[threadIdx.x] = static_cast<T>(threadIdx.x);
}

template <class T>
__global__ void write_overlapping(T* data) {
  data[threadIdx.x] = 1;
  if (threadIdx.x == 5) data[6] = 2;
}

__global__ void count(unsigned* word, unsigned* out, bool plain) {
  atomicAdd(word, 1u);
  if (plain && threadIdx.x == 3) *out = *word;
}

/// All read one word; then thread 0 writes it, and only the reader that `skipped` names did not meet it.
__global__ void read_then_write(int* word, int* out, unsigned skipped) {
  out[threadIdx.x] = *word;
  if (threadIdx.x != skipped) __syncwarp(0xffffffffu & ~(1u << skipped));
  if (threadIdx.x == 0) *word = 1;
}

template <bool Sync>
__global__ void through_static(int* out) {
  __shared__ int slots[64];
  slots[threadIdx.x] = 1;
  if (Sync) __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = slots[63 - threadIdx.x];
}

template <bool Sync>
__global__ void through_dynamic(int* out) {
  race_test_dynamic[threadIdx.x] = 1;
  if (Sync) __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = race_test_dynamic[63 - threadIdx.x];
}

__global__ void copies(char* data) {
  char local[64] = {};
  std::memcpy(data + 64 * (threadIdx.x % 2), local, blockDim.x);
}

/// In a grid of 4,096 threads, one pair races.
__global__ void one_pair(int* data) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  data[me] = 1;
  __syncthreads();
  if (me == 4000) data[70] = 2;
}

std::uint64_t found() {
  const std::uint64_t reports = sim::race_reports();
  sim::clear_races();
  return reports;
}

/// `count` elements of device memory.
template <class T>
struct device_words {
  T* data = nullptr;
  explicit device_words(std::size_t n) {
    devcomm::check_cuda(cudaMalloc(&data, n * sizeof(T)), "cudaMalloc");
    devcomm::check_cuda(cudaMemset(data, 0, n * sizeof(T)), "cudaMemset");
    devcomm::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  device_words(const device_words&) = delete;
  device_words& operator=(const device_words&) = delete;
  ~device_words() { cudaFree(data); }
};

template <class T>
void try_neighbors() {
  const device_words<T> words(64);
  REQUIRE(simulator_test::run(write_neighbors<T>, {.block = 64}, words.data) == cudaSuccess);
  CHECK(found() == 0);
  REQUIRE(simulator_test::run(write_overlapping<T>, {.block = 64}, words.data) == cudaSuccess);
  CHECK(found() == 1);
}

}  // namespace

TEST_CASE("neighbors of one, two, four and eight bytes do not race, the same element does") {
  try_neighbors<unsigned char>();
  try_neighbors<unsigned short>();
  try_neighbors<unsigned>();
  try_neighbors<unsigned long long>();
}

TEST_CASE("atomics do not race with each other, a plain read races with them") {
  const device_words<unsigned> words(2);
  REQUIRE(simulator_test::run(count, {.grid = 4, .block = 64}, words.data, words.data + 1, false) == cudaSuccess);
  CHECK(found() == 0);
  REQUIRE(simulator_test::run(count, {.grid = 1, .block = 64}, words.data, words.data + 1, true) == cudaSuccess);
  CHECK(found() >= 1);
}

TEST_CASE("of many readers, each counts") {
  for (const unsigned skipped : {1u, 7u, 31u}) {
    const device_words<int> words(33);
    REQUIRE(simulator_test::run(read_then_write, {.block = 32}, words.data, words.data + 1, skipped) == cudaSuccess);
    CHECK(contains(sim::last_race(), "thread " + std::to_string(skipped) + ","));
    CHECK(found() == 1);
  }
}

TEST_CASE("shared memory races within a block, and never with another block's") {
  const device_words<int> out(64 * 200);
  REQUIRE(simulator_test::run(through_static<true>, {.grid = 200, .block = 64}, out.data) == cudaSuccess);
  REQUIRE(simulator_test::run(through_dynamic<true>, {.grid = 200, .block = 64, .shared_bytes = 256}, out.data) ==
          cudaSuccess);
  CHECK(found() == 0);
  REQUIRE(simulator_test::run(through_static<false>, {.block = 64}, out.data) == cudaSuccess);
  CHECK(contains(sim::last_race(), "shared memory"));
  CHECK(contains(sim::last_race(), "slots"));
  CHECK(found() == 1);
  REQUIRE(simulator_test::run(through_dynamic<false>, {.block = 64, .shared_bytes = 256}, out.data) == cudaSuccess);
  CHECK(contains(sim::last_race(), "of the 256 of shared memory"));
  CHECK(found() == 1);
}

TEST_CASE("memcpy in a kernel is an access of all its bytes") {
  const device_words<char> words(128);
  REQUIRE(simulator_test::run(copies, {.block = 2}, words.data) == cudaSuccess);
  CHECK(found() == 0);
  REQUIRE(simulator_test::run(copies, {.block = 3}, words.data) == cudaSuccess);
  CHECK(found() == 1);
}

TEST_CASE("freed memory is forgotten") {
  for (int round = 0; round < 10; ++round) {
    const device_words<int> words(64);
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(simulator_test::run(write_neighbors<int>, {.block = 64, .stream = stream}, words.data) == cudaSuccess);
  }
  CHECK(found() == 0);
}

TEST_CASE("a race between one single pair among 4,096 threads is found under every seed, and named") {
  const device_words<int> words(4096);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sim::set_seed(seed);
    REQUIRE(simulator_test::run(one_pair, {.grid = 32, .block = 128}, words.data) == cudaSuccess);
    const std::string text = sim::last_race();
    CHECK(contains(text, "seed " + std::to_string(seed)));
    CHECK(contains(text, "byte 280 of the 16384 of device memory of device 0"));
    CHECK(contains(text, "write of 4 bytes by device 0, block 31, thread 32, kernel "));
    CHECK(contains(text, "write of 4 bytes by device 0, block 0, thread 70, kernel "));
    CHECK(contains(text, "one_pair"));
    CHECK(contains(text, "memory_test.cu:"));
    CHECK(found() == 1);
  }
  sim::set_seed(1);
}
