/// Barriers of blocks and grids.
#include "support.hpp"

#include <cooperative_groups.h>
#include <devcomm/arch/arch.cuh>

#include <exception>
#include <string>

using namespace simulator_test;
namespace cg = cooperative_groups;

namespace {

/// Each round, thread i reads what its neighbor wrote in the round before.
__global__ void pass_around(int* out, int rounds) {
  __shared__ int slots[2][96];
  const int i = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  slots[0][i] = i;
  for (int round = 0; round < rounds; ++round) {
    __syncthreads();
    slots[(round + 1) % 2][i] = slots[round % 2][(i + 1) % threads];
  }
  __syncthreads();
  out[i] = slots[rounds % 2][i];
}

__global__ void reducing_barriers(int* out) {
  const bool even = threadIdx.x % 2 == 0;
  const int count = __syncthreads_count(even);
  const int some = __syncthreads_or(threadIdx.x == 40);
  const int each = __syncthreads_and(threadIdx.x < 64);
  const int none = __syncthreads_or(0);
  out[threadIdx.x] = count * 1000 + some * 100 + each * 10 + none;
}

__global__ void some_leave(int* out) {
  if (threadIdx.x >= 50) return;
  __syncthreads();
  out[threadIdx.x] = __syncthreads_count(1);
}

/// Two halves of a block meet at barriers of their own, a different number of times.
__global__ void named(int* out) {
  namespace arch = devcomm::arch;
  const bool first = threadIdx.x < 64;
  bool any = false;
  for (int round = 0; round < (first ? 5 : 3); ++round) {
    any |= arch::sync_named_or(first ? 1 : 2, 64, !first && threadIdx.x == 70);
  }
  out[threadIdx.x] = any ? 1 : 0;
  arch::sync_block();
}

__global__ void grid_sum(unsigned* cells, unsigned* out) {
  const cg::grid_group grid = cg::this_grid();
  cells[grid.thread_rank()] = static_cast<unsigned>(grid.thread_rank());
  grid.sync();
  if (grid.thread_rank() == 0) {
    unsigned sum = 0;
    for (unsigned i = 0; i < grid.size(); ++i) sum += cells[i];
    *out = sum;
  }
  grid.sync();
}

__global__ void tiles(unsigned* out) {
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  unsigned sum = tile.thread_rank();
  for (unsigned step = 4; step > 0; step /= 2) sum += tile.shfl_xor(sum, step);
  out[block.thread_rank()] = sum * 100 + tile.meta_group_rank();
  block.sync();
  if (block.thread_rank() % 3 == 0) {
    const cg::coalesced_group here = cg::coalesced_threads();
    out[block.thread_rank()] += 10000 * here.size() + 1000000 * (here.shfl(here.thread_rank(), 2) == 2 ? 1u : 0u);
  }
}

__global__ void wrong_count() { devcomm::arch::sync_named(1, 33); }
__global__ void divergent_barrier() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    devcomm::arch::sync_named(3, 64);
  }
}

/// Branches that both have a barrier; the threads from `first` on take the second.
struct synchronizes_at_end {
  ~synchronizes_at_end() noexcept(false) {
    if (std::uncaught_exceptions() == 0) __syncthreads();
  }
};
constexpr int line_of_early_return = __LINE__ + 3;
__global__ void leaves_early(unsigned first, int* out) {
  const synchronizes_at_end end;
  if (threadIdx.x < first) return;
  out[threadIdx.x] = 1;
}
__global__ void exits_early(unsigned first) {
  if (threadIdx.x < first) return;
  const synchronizes_at_end end;
}

__global__ void barriers_in_branches(unsigned first, int* out) {
  const unsigned i = threadIdx.x;
  if (i < first) {
    __syncthreads();
    out[i] = 1;
  } else {
    __syncthreads();
    out[blockDim.x - 1 - i + first] = 2;
  }
}
/// The same by barriers that lanes of a warp may reach by different ways.
__global__ void barriers_apart(unsigned first, int* out) {
  const unsigned i = threadIdx.x;
  if (i < first) {
    devcomm::arch::sync_block_apart();
    out[i] = 1;
  } else {
    devcomm::arch::sync_block_apart();
    out[blockDim.x - 1 - i + first] = 2;
  }
}
/// Branches that differ by their barriers alone, which a compiler may make one.
__global__ void equal_branches(unsigned first) {
  if (threadIdx.x < first) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

}  // namespace

TEST_CASE("__syncthreads orders each round before the next") {
  const shared_array<int> out(96);
  REQUIRE(run(pass_around, {.block = 96}, out.get(), 7) == cudaSuccess);
  for (int i = 0; i < 96; ++i) CHECK(out[static_cast<std::size_t>(i)] == (i + 7) % 96);
}

TEST_CASE("reducing barriers give every thread the same result") {
  const shared_array<int> out(64);
  REQUIRE(run(reducing_barriers, {.block = 64}, out.get()) == cudaSuccess);
  for (std::size_t i = 0; i < 64; ++i) CHECK(out[i] == 32110);
}

TEST_CASE("barriers count only threads that have not exited") {
  const shared_array<int> out(64);
  REQUIRE(run(some_leave, {.block = 64}, out.get()) == cudaSuccess);
  for (std::size_t i = 0; i < 50; ++i) CHECK(out[i] == 50);
}

TEST_CASE("named barriers are apart from each other") {
  const shared_array<int> out(128);
  REQUIRE(run(named, {.block = 128}, out.get()) == cudaSuccess);
  for (std::size_t i = 0; i < 128; ++i) CHECK(out[i] == (i < 64 ? 0 : 1));
}

TEST_CASE("all threads of a cooperative grid synchronize") {
  const shared_array<unsigned> cells(8 * 64);
  const shared_array<unsigned> out(1);
  REQUIRE(run(grid_sum, {.grid = 8, .block = 64, .cooperative = true}, cells.get(), out.get()) == cudaSuccess);
  CHECK(out[0] == 512 * 511 / 2);
  CHECK(run(grid_sum, {.grid = 8, .block = 64}, cells.get(), out.get()) == cudaErrorAssert);
  CHECK(contains(devcomm::simulator::last_failure(), "cooperative launch"));
}

TEST_CASE("tiles and coalesced groups of cooperative groups work") {
  const shared_array<unsigned> out(64);
  REQUIRE(run(tiles, {.block = 64}, out.get()) == cudaSuccess);
  for (unsigned i = 0; i < 64; ++i) {
    unsigned expected = 2800 + i / 8;
    if (i % 3 == 0) expected += 1000000 + 10000 * (i < 32 ? 11u : 11u);
    CHECK(out[i] == expected);
  }
}

TEST_CASE("a barrier that not all threads reach is a deadlock that names who waits") {
  CHECK(run(divergent_barrier, {.block = 64}) == cudaErrorLaunchTimeout);
  const std::string text = devcomm::simulator::last_failure();
  CHECK(contains(text, "threads 0-31: in __syncthreads, 32 of 64 arrived"));
  CHECK(contains(text, "threads 32-63: at named barrier 3, 32 of 64 arrived"));
}

TEST_CASE("warps may meet at different calls of __syncthreads, and lanes of one warp may not") {
  const shared_array<int> out(64);
  REQUIRE(run(barriers_in_branches, {.block = 64}, 32u, out.get()) == cudaSuccess);
  for (std::size_t i = 0; i < 64; ++i) CHECK(out[i] == (i < 32 ? 1 : 2));
  REQUIRE(run(barriers_apart, {.block = 64}, 16u, out.get()) == cudaSuccess);
  for (std::size_t i = 0; i < 64; ++i) CHECK(out[i] == (i < 16 ? 1 : 2));
  CHECK(run(barriers_in_branches, {.block = 64}, 16u, out.get()) == cudaErrorAssert);
  const std::string text = devcomm::simulator::last_failure();
  INFO(text);
  CHECK(contains(text, "threads of one warp are at two calls of __syncthreads"));
  CHECK(contains(text, " is at "));
  CHECK(contains(text, "called at "));
  CHECK(contains(text, "barrier_test.cu:"));
  REQUIRE(run(equal_branches, {.block = 64}, 32u) == cudaSuccess);
  CHECK(run(equal_branches, {.block = 64}, 16u) == cudaErrorAssert);
  CHECK(contains(devcomm::simulator::last_failure(), "threads of one warp are at two calls of __syncthreads"));
}

TEST_CASE("a __syncthreads in a destructor is not reached by an early return of part of a warp") {
  const shared_array<int> out(64);
  REQUIRE(run(leaves_early, {.block = 64}, 32u, out.get()) == cudaSuccess);
  for (std::size_t i = 0; i < 64; ++i) CHECK(out[i] == (i < 32 ? 0 : 1));
  CHECK(run(leaves_early, {.block = 64}, 16u, out.get()) == cudaErrorAssert);
  const std::string text = devcomm::simulator::last_failure();
  INFO(text);
  CHECK(contains(text, "reach a __syncthreads in a destructor by different ways"));
  CHECK(contains(text, "returned at line " + std::to_string(line_of_early_return)));
  CHECK(contains(text, "has not returned early"));
  REQUIRE(run(exits_early, {.block = 64}, 16u) == cudaSuccess);
}

TEST_CASE("misuse of barriers is named") {
  CHECK(run(wrong_count, {.block = 64}) == cudaErrorAssert);
  CHECK(contains(devcomm::simulator::last_failure(), "multiple of 32"));
}
