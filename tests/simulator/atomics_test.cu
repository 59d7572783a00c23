/// Atomic functions, and the atomics of libcu++ where its headers are found.
#include "support.hpp"

#if __has_include(<cuda/atomic>)
#  include <cuda/atomic>
#endif

using namespace simulator_test;

namespace {

struct results {
  int added, subtracted, smallest, largest;
  unsigned anded, ored, xored, wrapped;
  unsigned long long wide;
  float floating;
  double doubled;
  int cas_wins;
};

__global__ void all_functions(results* r) {
  const int i = static_cast<int>(threadIdx.x + blockIdx.x * blockDim.x);
  const auto u = static_cast<unsigned>(i);
  atomicAdd(&r->added, i);
  atomicSub(&r->subtracted, 1);
  atomicMin(&r->smallest, 50 - i);
  atomicMax_system(&r->largest, i);
  atomicAnd(&r->anded, ~(1u << (u % 32)));
  atomicOr(&r->ored, 1u << (u % 20));
  atomicXor(&r->xored, u);
  atomicInc(&r->wrapped, 99u);
  atomicAdd(&r->wide, 1ull << 33);
  atomicAdd_system(&r->floating, 0.5f);
  atomicAdd(&r->doubled, 0.25);
  if (atomicCAS(&r->cas_wins, 0, i + 1) == 0) __threadfence();
}

/// A lock by compare-and-swap, which spins without any label.
__global__ void locked_increments(int* lock, int* counter, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    const int seen = atomicAdd(counter, 0);
    atomicExch(counter, seen + 1);
    atomicExch(lock, 0);
  }
}

#if __has_include(<cuda/atomic>)
/// Blocks take turns by a spin on an atomic_ref.
__global__ void turns(int* turn, int* order, int rounds) {
  cuda::atomic_ref<int, cuda::thread_scope_system> next(*turn);
  for (int round = 0; round < rounds; ++round) {
    const int mine = round * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    while (next.load(cuda::memory_order_acquire) != mine) {
    }
    order[mine] = static_cast<int>(blockIdx.x);
    next.store(mine + 1, cuda::memory_order_release);
  }
}

__global__ void atomic_object(cuda::atomic<unsigned, cuda::thread_scope_device>* counter) {
  counter->fetch_add(2u, cuda::memory_order_relaxed);
  unsigned seen = counter->load(cuda::memory_order_relaxed);
  while (!counter->compare_exchange_weak(seen, seen + 1u, cuda::memory_order_relaxed)) {
  }
}

__global__ void wait_for_ever(int* flag) {
  const cuda::atomic_ref<int, cuda::thread_scope_system> f(*flag);
  while (f.load(cuda::memory_order_relaxed) == 0) {
  }
}
#endif

}  // namespace

TEST_CASE("every atomic function updates once for each thread") {
  const shared_array<results> r(1);
  r[0].smallest = 1000;
  r[0].anded = 0xffffffffu;
  REQUIRE(run(all_functions, {.grid = 4, .block = 64}, r.get()) == cudaSuccess);
  CHECK(r[0].added == 256 * 255 / 2);
  CHECK(r[0].subtracted == -256);
  CHECK(r[0].smallest == 50 - 255);
  CHECK(r[0].largest == 255);
  CHECK(r[0].anded == 0u);
  CHECK(r[0].ored == 0xfffffu);
  CHECK(r[0].xored == 0u);
  CHECK(r[0].wrapped == 256u % 100u);
  CHECK(r[0].wide == 256ull << 33);
  CHECK(r[0].floating == 128.0f);
  CHECK(r[0].doubled == 64.0);
  CHECK(r[0].cas_wins >= 1);
  CHECK(r[0].cas_wins <= 256);
}

TEST_CASE("threads that spin on a lock let its holder go on") {
  const shared_array<int> words(2);
  REQUIRE(run(locked_increments, {.grid = 3, .block = 40}, words.get(), words.get() + 1, 3) == cudaSuccess);
  CHECK(words[1] == 3 * 40 * 3);
}

#if __has_include(<cuda/atomic>)
TEST_CASE("threads that spin on a cuda::atomic_ref let others go on") {
  const shared_array<int> turn(1);
  const shared_array<int> order(40);
  REQUIRE(run(turns, {.grid = 4}, turn.get(), order.get(), 10) == cudaSuccess);
  for (std::size_t i = 0; i < 40; ++i) CHECK(order[i] == static_cast<int>(i % 4));
}

TEST_CASE("cuda::atomic objects lose no update") {
  const shared_array<cuda::atomic<unsigned, cuda::thread_scope_device>> counter(1);
  REQUIRE(run(atomic_object, {.grid = 2, .block = 64}, counter.get()) == cudaSuccess);
  CHECK(counter[0].load() == 3u * 128u);
}

TEST_CASE("a cuda::atomic_ref that nobody writes is a deadlock") {
  const shared_array<int> flag(1);
  CHECK(run(wait_for_ever, {.block = 3}, flag.get()) == cudaErrorLaunchTimeout);
  CHECK(contains(devcomm::simulator::last_failure(), "threads 0-2: polls byte 0 of the 4"));
}
#endif
