/// What orders memory in a kernel, between kernels and with the host, and what does not.
#include <devcomm/arch/arch.cuh>

#include "support.hpp"

#include <cooperative_groups.h>

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;
namespace sim = devcomm::simulator;

namespace {

constexpr auto relaxed = memory_order::relaxed;
constexpr auto acquire = memory_order::acquire;
constexpr auto release = memory_order::release;

enum class fence_by { nobody, writer, reader, both };

/// Thread 0 of block 0 hands a word to thread 0 of block 1 by a flag.
template <memory_order Store, memory_order Load, fence_by Fence>
__global__ void hand_over(int* data, unsigned* flag, int* out) {
  if (blockIdx.x == 0) {
    *data = 1;
    if (Fence == fence_by::writer || Fence == fence_by::both) __threadfence();
    arch::store<Store, scope::device>(flag, 1u);
  } else {
    while (arch::load<Load, scope::device>(flag) == 0) {
    }
    if (Fence == fence_by::reader || Fence == fence_by::both) __threadfence();
    *out = *data;
  }
}

/// Between writer and reader a third block changes the flag: by an atomic, or by a store.
template <bool Atomic>
__global__ void hand_over_through(int* data, unsigned* flag, int* out) {
  if (blockIdx.x == 0) {
    *data = 1;
    arch::store<release, scope::device>(flag, 1u);
  } else if (blockIdx.x == 1) {
    while (arch::load<relaxed, scope::device>(flag) == 0) {
    }
    if (Atomic) {
      atomicAdd(flag, 1u);
    } else {
      arch::store<relaxed, scope::device>(flag, 2u);
    }
  } else {
    while (arch::load<relaxed, scope::device>(flag) < 2) {
    }
    static_cast<void>(arch::load<acquire, scope::device>(flag));
    *out = *data;
  }
}

enum class reset_by { last, first, last_at_block_scope };

/// Each block counts itself; one of them sets the counter back by a plain store: CUDA's threadFenceReduction.
template <reset_by Who>
__global__ void count_blocks(int*, unsigned* counter, int*) {
  const unsigned before = Who == reset_by::last_at_block_scope ? atomicAdd_block(counter, 1u) : atomicAdd(counter, 1u);
  if (before == (Who == reset_by::first ? 0 : gridDim.x - 1)) *counter = 0;
}

/// The same, and the last block reads what the others have written.
template <bool Fence>
__global__ void count_and_sum(int* data, unsigned* counter, int* out) {
  data[blockIdx.x] = 1;
  if (Fence) __threadfence();
  if (atomicAdd(counter, 1u) != gridDim.x - 1) return;
  if (Fence) __threadfence();
  int sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += data[i];
  *out = sum;
  *counter = 0;
}

/// A flag that its reader takes back.
__global__ void take_flag_back(int*, unsigned* flag, int*) {
  if (blockIdx.x == 0) {
    arch::store<relaxed, scope::device>(flag, 1u);
  } else {
    while (arch::load<relaxed, scope::device>(flag) == 0) {
    }
    *flag = 0;
  }
}

/// Two pairs of warps meet at one named barrier, one pair after the other.
__global__ void pairs_at_one_barrier(int* data, unsigned* flag, int* out) {
  const unsigned warp = threadIdx.x / 32;
  if (warp < 2) {
    data[threadIdx.x] = 1;
    arch::sync_named(1, 64);
    if (threadIdx.x == 0) arch::store<relaxed, scope::device>(flag, 1u);
  } else {
    while (arch::load<relaxed, scope::device>(flag) == 0) {
    }
    arch::sync_named(1, 64);
    arch::sync_named(1, 64);
    out[threadIdx.x] = data[threadIdx.x - 64];
  }
}

__global__ void votes(int* data, int* out) {
  data[threadIdx.x] = 1;
  if (__any_sync(0xffffffffu, 1)) out[threadIdx.x] = data[(threadIdx.x + 1) % 32];
}

__global__ void set(int* data, int value) { data[threadIdx.x] = value; }
__global__ void nothing() {}

struct words {
  int* data = nullptr;
  int* out = nullptr;
  unsigned* flag = nullptr;
  words() {
    sim::clear_races();
    devcomm::check_cuda(cudaMalloc(&data, 4096), "cudaMalloc");
    devcomm::check_cuda(cudaMalloc(&out, 4096), "cudaMalloc");
    devcomm::check_cuda(cudaMalloc(&flag, 4), "cudaMalloc");
    devcomm::check_cuda(cudaMemset(flag, 0, 4), "cudaMemset");
  }
  words(const words&) = delete;
  words& operator=(const words&) = delete;
  ~words() {
    cudaFree(data);
    cudaFree(out);
    cudaFree(flag);
  }
};

/// Reports of a kernel over some words.
template <class Kernel>
std::uint64_t reports(Kernel kernel, const devcomm::launch_config& config) {
  words w;
  REQUIRE(simulator_test::run(kernel, config, w.data, w.flag, w.out) == cudaSuccess);
  const std::uint64_t found = sim::race_reports();
  sim::clear_races();
  return found;
}

template <memory_order Store, memory_order Load, fence_by Fence = fence_by::nobody>
std::uint64_t hand_over_reports() {
  return reports(hand_over<Store, Load, Fence>, {.grid = 2, .block = 1});
}

cudaStream_t own_stream() {
  cudaStream_t stream = nullptr;
  devcomm::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

}  // namespace

TEST_CASE("a flag orders data when it is released and acquired, and else does not") {
  CHECK(hand_over_reports<release, acquire>() == 0);
  CHECK(hand_over_reports<relaxed, acquire>() == 1);
  CHECK(hand_over_reports<release, relaxed>() == 1);
  CHECK(hand_over_reports<relaxed, relaxed>() == 1);
}

TEST_CASE("a stand-alone fence orders as an order on the flag does, on each side") {
  CHECK(hand_over_reports<relaxed, acquire, fence_by::writer>() == 0);
  CHECK(hand_over_reports<release, relaxed, fence_by::reader>() == 0);
  CHECK(hand_over_reports<relaxed, relaxed, fence_by::both>() == 0);
  CHECK(hand_over_reports<relaxed, relaxed, fence_by::writer>() == 1);
  CHECK(hand_over_reports<relaxed, relaxed, fence_by::reader>() == 1);
}

TEST_CASE("an atomic of another thread goes on with a release sequence, its store ends it") {
  CHECK(reports(hand_over_through<true>, {.grid = 3, .block = 1}) == 0);
  CHECK(reports(hand_over_through<false>, {.grid = 3, .block = 1}) == 1);
}

TEST_CASE("an atomic is before what a thread does that has loaded a value made of it, and nothing else is") {
  CHECK(reports(count_blocks<reset_by::last>, {.grid = 5, .block = 1}) == 0);
  CHECK(reports(count_blocks<reset_by::first>, {.grid = 5, .block = 1}) >= 1);
  CHECK(reports(count_blocks<reset_by::last_at_block_scope>, {.grid = 5, .block = 1}) >= 1);
  CHECK(reports(count_and_sum<true>, {.grid = 5, .block = 1}) == 0);
  CHECK(reports(count_and_sum<false>, {.grid = 5, .block = 1}) >= 1);
  CHECK(reports(take_flag_back, {.grid = 2, .block = 1}) == 0);
}

TEST_CASE("a vote orders no memory") {
  words w;
  REQUIRE(simulator_test::run(votes, {.block = 32}, w.data, w.out) == cudaSuccess);
  CHECK(sim::race_reports() == 1);
  sim::clear_races();
}

TEST_CASE("one round of a named barrier tells those of a later one nothing") {
  CHECK(reports(pairs_at_one_barrier, {.block = 128}) == 1);
}

TEST_CASE("kernel completion orders the next launch of its stream, and not one of a peer's stream") {
  words w;
  const cudaStream_t mine = own_stream();
  const cudaStream_t peers = own_stream();
  devcomm::launch(set, {.block = 32, .stream = mine}, w.data, 1);
  devcomm::launch(set, {.block = 32, .stream = mine}, w.data, 2);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(sim::race_reports() == 0);
  devcomm::launch(set, {.block = 32, .stream = mine}, w.data, 3);
  devcomm::launch(set, {.block = 32, .stream = peers}, w.data, 4);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(sim::race_reports() == 1);
  sim::clear_races();
}

TEST_CASE("a host that has waited for one stream orders what it launches into another") {
  words w;
  const cudaStream_t first = own_stream();
  const cudaStream_t second = own_stream();
  for (int round = 0; round < 20; ++round) {
    devcomm::launch(set, {.block = 32, .stream = first}, w.data, 1);
    REQUIRE(cudaStreamSynchronize(first) == cudaSuccess);
    devcomm::launch(set, {.block = 32, .stream = second}, w.data, 2);
    REQUIRE(cudaStreamSynchronize(second) == cudaSuccess);
  }
  CHECK(sim::race_reports() == 0);
}

TEST_CASE("a host that has waited for another stream orders nothing") {
  words w;
  const cudaStream_t first = own_stream();
  const cudaStream_t second = own_stream();
  devcomm::launch(set, {.block = 32, .stream = first}, w.data, 1);
  devcomm::launch(nothing, {.stream = second});
  REQUIRE(cudaStreamSynchronize(second) == cudaSuccess);
  devcomm::launch(set, {.block = 32, .stream = second}, w.data, 2);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(sim::race_reports() == 1);
  sim::clear_races();
}

TEST_CASE("a copy is an access of its stream") {
  words w;
  int host[32] = {};
  const cudaStream_t stream = own_stream();
  devcomm::launch(set, {.block = 32, .stream = stream}, w.data, 1);
  REQUIRE(cudaMemcpyAsync(w.out, w.data, 128, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(host, w.out, 128, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(sim::race_reports() == 0);
  devcomm::launch(set, {.block = 32, .stream = stream}, w.data, 2);
  REQUIRE(cudaMemcpyAsync(w.out, w.data, 128, cudaMemcpyDeviceToDevice, own_stream()) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(sim::race_reports() >= 1);
  sim::clear_races();
}
