/// Who runs when: seeds, waves, deadlocks, deadlines.
#include "support.hpp"

#include <devcomm/arch/arch.cuh>
#include <devcomm/assert.hpp>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

using namespace simulator_test;
namespace sim = devcomm::simulator;
namespace arch = devcomm::arch;
using devcomm::memory_order;
using devcomm::scope;

namespace {

constexpr std::uint64_t never_ends = ~std::uint64_t{0};

/// The order in which threads get their numbers depends on the schedule.
__global__ void take_numbers(unsigned* counter, unsigned* numbers) {
  const unsigned i = threadIdx.x + blockIdx.x * blockDim.x;
  numbers[i] = atomicAdd_system(counter, 1u);
}

std::vector<unsigned> numbers_with(std::uint64_t seed, std::uint64_t* hash) {
  const shared_array<unsigned> counter(1);
  const shared_array<unsigned> numbers(4 * 64);
  sim::set_seed(seed);
  REQUIRE(run(take_numbers, {.grid = 4, .block = 64}, counter.get(), numbers.get()) == cudaSuccess);
  *hash = sim::get_statistics().trace_hash;
  return std::vector<unsigned>(numbers.get(), numbers.get() + numbers.size());
}

/// Ranks meet by counting up; the count is looked at as a waiting thread would.
__global__ void meet(unsigned* counter, unsigned ranks) {
  if (threadIdx.x == 0) {
    arch::fetch_add<memory_order::acq_rel, scope::system>(counter, 1u);
    while (arch::load<memory_order::acquire, scope::system>(counter) < ranks) {
    }
  }
  __syncthreads();
}

__global__ void wait_for_flag(const unsigned* flag, unsigned* seen) {
  while (arch::load<memory_order::acquire, scope::system>(flag) == 0) {
  }
  *seen = 1;
}

/// Reads so many words in turn until none is 0, by a wait of devcomm's or by a loop of its own.
__device__ bool all_set(const unsigned* words, unsigned count) {
  unsigned set = 0;
  for (unsigned i = 0; i < count; ++i)
    set += arch::load<memory_order::acquire, scope::system>(words + i) != 0 ? 1u : 0u;
  return set == count;
}
__global__ void wait_for_words(const unsigned* words, unsigned count, bool labeled) {
  if (!labeled) {
    while (!all_set(words, count)) {
    }
    return;
  }
  arch::wait_scope waiting(
      [] {
        return devcomm::detail::wait_label{{devcomm::operation::ll_mailbox, 3, 2, 7}, 5, never_ends, false};
      },
      [] { return static_cast<const std::uint32_t*>(nullptr); });
  while (!all_set(words, count)) {
    waiting.pause();
    static_cast<void>(arch::global_time());
  }
}

/// Thread 0 reads once a word that thread 1 changes, and then another for ever.
__global__ void wait_after_news(unsigned* words) {
  if (threadIdx.x == 0) {
    if (arch::load<memory_order::acquire, scope::system>(words) == 0) {
      arch::store<memory_order::release, scope::system>(words + 1, 1u);
    }
    while (arch::load<memory_order::acquire, scope::system>(words + 2) == 0) {
    }
  } else {
    while (arch::load<memory_order::acquire, scope::system>(words + 1) == 0) {
    }
    arch::store<memory_order::release, scope::system>(words, 1u);
  }
}

__global__ void labeled_wait(const unsigned* flag, std::uint64_t budget, bool own_deadline, std::uint64_t* took) {
  arch::wait_scope waiting(
      [=] {
        return devcomm::detail::wait_label{{devcomm::operation::lsa_barrier, 3, 2, 7}, 5, budget, own_deadline};
      },
      [] { return static_cast<const std::uint32_t*>(nullptr); });
  const std::uint64_t start = arch::global_time();
  for (;;) {
    waiting.pause();
    if (arch::load<memory_order::relaxed, scope::system>(flag) != 0) break;
    if (arch::global_time() - start >= budget) break;
  }
  *took = arch::global_time() - start;
}

__global__ void broken(int thread) {
  DEVCOMM_ASSERT(static_cast<int>(threadIdx.x) != thread, "the thread was told not to be here");
  __syncthreads();
}

__global__ void throws() { throw std::runtime_error("no such luck"); }

__global__ void sleep_for(std::uint64_t* took, unsigned nanoseconds) {
  const long long start = clock64();
  __nanosleep(nanoseconds);
  *took = static_cast<std::uint64_t>(clock64() - start);
}

__global__ void spin_for(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

__global__ void count_threads(unsigned* total) { atomicAdd_system(total, 1u); }

__global__ void sum_floats(const float* in, std::size_t count, float* out) {
  __shared__ float part;
  if (threadIdx.x == 0) part = 0.0f;
  __syncthreads();
  float mine = 0.0f;
  for (std::size_t i = threadIdx.x + blockIdx.x * blockDim.x; i < count; i += blockDim.x * gridDim.x) mine += in[i];
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, step);
  if (threadIdx.x % 32 == 0) atomicAdd(&part, mine);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = part;
}

}  // namespace

TEST_CASE("equal seeds give equal schedules, different ones differ") {
  std::uint64_t first_hash = 0;
  std::uint64_t again_hash = 0;
  std::uint64_t other_hash = 0;
  const auto first = numbers_with(11, &first_hash);
  const auto again = numbers_with(11, &again_hash);
  const auto other = numbers_with(12, &other_hash);
  CHECK(first == again);
  CHECK(first_hash == again_hash);
  CHECK(first != other);
  CHECK(first_hash != other_hash);
  sim::set_seed(1);
}

TEST_CASE("kernels on all devices run together though one host thread launches them in turn") {
  int devices = 0;
  REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
  REQUIRE(devices >= 2);
  const shared_array<unsigned> counter(1);
  for (int d = 0; d < devices; ++d) {
    REQUIRE(cudaSetDevice(d) == cudaSuccess);
    devcomm::launch(meet, {.grid = 2, .block = 64}, counter.get(), static_cast<unsigned>(2 * devices));
  }
  for (int d = 0; d < devices; ++d) {
    REQUIRE(cudaSetDevice(d) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("kernels launched by one thread a device run together") {
  const shared_array<unsigned> counter(1);
  std::atomic<int> failures = 0;
  std::vector<std::thread> hosts;
  for (int d = 0; d < 4; ++d) {
    hosts.emplace_back([&, d] {
      if (cudaSetDevice(d) != cudaSuccess) ++failures;
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * d));  // the others wait for the late ones
      if (run(meet, {.block = 32}, counter.get(), 4u) != cudaSuccess) ++failures;
    });
  }
  for (std::thread& host : hosts) host.join();
  CHECK(failures == 0);
}

TEST_CASE("equal seeds give equal schedules however long each device's host thread takes") {
  constexpr int devices = 3;
  const shared_array<unsigned> counter(1);
  const shared_array<unsigned> numbers(devices * 64);
  std::vector<std::uint64_t> hashes;
  for (int late = 0; late < 2 * devices; ++late) {
    sim::set_seed(11);
    std::atomic<int> failures = 0;
    std::vector<std::thread> hosts;
    for (int d = 0; d < devices; ++d) {
      hosts.emplace_back([&, d] {
        if (cudaSetDevice(d) != cudaSuccess) ++failures;
        for (int round = 0; round < 3; ++round) {
          const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(d == late % devices ? 3 : 0);
          while (std::chrono::steady_clock::now() < until) {
          }
          if (run(take_numbers, {.block = 64}, counter.get(), numbers.get() + d * 64) != cudaSuccess) ++failures;
        }
      });
    }
    for (std::thread& host : hosts) host.join();
    REQUIRE(failures == 0);
    hashes.push_back(sim::get_statistics().trace_hash);
  }
  CHECK(hashes == std::vector<std::uint64_t>(hashes.size(), hashes.front()));
  sim::set_seed(1);
}

TEST_CASE("a host thread's write wakes a waiting kernel") {
  const shared_array<unsigned> words(2);
  std::thread helper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    __atomic_store_n(&words[0], 1u, __ATOMIC_RELEASE);
  });
  CHECK(run(wait_for_flag, {}, words.get(), words.get() + 1) == cudaSuccess);
  CHECK(words[1] == 1u);
  helper.join();
}

TEST_CASE("a kernel is deadlocked after the grace period though a host thread might help") {
  const shared_array<unsigned> words(2);
  sim::set_grace(std::chrono::milliseconds(100));
  std::thread helper([] { std::this_thread::sleep_for(std::chrono::seconds(2)); });
  const auto start = std::chrono::steady_clock::now();
  CHECK(run(wait_for_flag, {}, words.get(), words.get() + 1) == cudaErrorLaunchTimeout);
  const auto took = std::chrono::steady_clock::now() - start;
  CHECK(took >= std::chrono::milliseconds(100));
  CHECK(took < std::chrono::milliseconds(1500));
  sim::clear_failure();
  helper.join();
  sim::set_grace(std::chrono::seconds(10));
}

TEST_CASE("simulated time keeps to real time while a host thread might help") {
  const shared_array<unsigned> flag(1);
  const shared_array<std::uint64_t> took(1);
  std::thread helper([] { std::this_thread::sleep_for(std::chrono::milliseconds(600)); });
  const auto start = std::chrono::steady_clock::now();
  CHECK(run(labeled_wait, {}, flag.get(), std::uint64_t{200000000}, true, took.get()) == cudaSuccess);
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(150));
  CHECK(took[0] >= 200000000u);
  helper.join();
}

TEST_CASE("a deadlock ends the launch at once, and says who polls what") {
  const shared_array<unsigned> words(2);
  const auto start = std::chrono::steady_clock::now();
  CHECK(run(wait_for_flag, {}, words.get(), words.get() + 1) == cudaErrorLaunchTimeout);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  const std::string text = sim::last_failure();
  CHECK(contains(text, "deadlock"));
  CHECK(contains(text, "device 0, block 0, thread 0: polls byte 0 of the 8"));
  CHECK(contains(text, "which stays 0"));
  CHECK(contains(text, "(seed "));
  CHECK(run(count_threads, {.block = 32}, words.get() + 1) == cudaSuccess);  // the device goes on
  CHECK(words[1] == 32u);
}

TEST_CASE("a spinning thread is deadlocked though a word that it looked at before has changed") {
  const shared_array<unsigned> words(3);
  CHECK(run(wait_after_news, {.block = 2}, words.get()) == cudaErrorLaunchTimeout);
  CHECK(contains(sim::last_failure(), "polls byte 8 of"));
}

TEST_CASE("a labeled wait without a deadline of its own is a deadlock in the caller's terms") {
  const shared_array<unsigned> flag(1);
  const shared_array<std::uint64_t> took(1);
  CHECK(run(labeled_wait, {}, flag.get(), std::uint64_t{600000000000}, false, took.get()) == cudaErrorLaunchTimeout);
  CHECK(contains(sim::last_failure(),
                 "rank 5, block 0, thread 0: LSA barrier 3: waits for rank 2 to reach epoch 7, saw 0"));
}

TEST_CASE("a wait for many words is a deadlock, found at once, and ends when the last of them is set") {
  for (const bool labeled : {true, false}) {
    for (const unsigned count : {21u, 256u}) {
      const shared_array<unsigned> words(count);
      for (unsigned i = 0; i + 1 < count; ++i) words[i] = 1;
      CHECK(run(wait_for_words, {.block = 1}, words.get(), count, labeled) == cudaErrorLaunchTimeout);
      INFO(sim::last_failure());
      CHECK(contains(sim::last_failure(), "deadlock"));
      CHECK(contains(sim::last_failure(), labeled        ? "LL mailbox 3: waits for rank 2"
                                          : count == 21u ? "which stays 1, and 13 words more"
                                                         : "which stays 1, and 248 words more"));
      devcomm::launch(wait_for_words, {.block = 1}, words.get(), count, labeled);
      std::thread setter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::atomic_ref(words[count - 1]).store(1);
      });
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
      setter.join();
    }
  }
}

TEST_CASE("a deadline passes in simulated time") {
  const shared_array<unsigned> flag(1);
  const shared_array<std::uint64_t> took(1);
  const auto start = std::chrono::steady_clock::now();
  CHECK(run(labeled_wait, {}, flag.get(), std::uint64_t{3600000000000}, true, took.get()) == cudaSuccess);
  CHECK(took[0] >= 3600000000000u);
  CHECK(took[0] < 3600001000000u);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("a deadline that never comes leaves a deadlock, found at once") {
  const shared_array<unsigned> flag(1);
  const shared_array<std::uint64_t> took(1);
  for (const std::uint64_t budget : {~std::uint64_t{0}, ~std::uint64_t{0} - 1, std::uint64_t{1} << 63}) {
    CAPTURE(budget);
    CHECK(run(labeled_wait, {}, flag.get(), budget, true, took.get()) == cudaErrorLaunchTimeout);
    CHECK(contains(sim::last_failure(), "LSA barrier 3: waits for rank 2 to reach epoch 7, saw 0"));
  }
  // The clock goes on from where it was.
  CHECK(run(labeled_wait, {}, flag.get(), std::uint64_t{1000000}, true, took.get()) == cudaSuccess);
  CHECK(took[0] >= 1000000u);
  CHECK(took[0] < 2000000u);
}

TEST_CASE("a broken precondition ends the launch with its text and place") {
  CHECK(run(broken, {.grid = 2, .block = 64}, 37) == cudaErrorAssert);
  const std::string text = sim::last_failure();
  CHECK(contains(text, ", thread 37, kernel "));
  CHECK(contains(text, "schedule_test.cu:"));
  CHECK(run(throws, {}) == cudaErrorLaunchFailure);
  CHECK(contains(sim::last_failure(), "no such luck"));
  sim::clear_failure();
  CHECK(sim::last_failure().empty());
}

TEST_CASE("sleeping and spinning take simulated time") {
  const shared_array<std::uint64_t> took(1);
  REQUIRE(run(sleep_for, {}, took.get(), 5000u) == cudaSuccess);
  CHECK(took[0] >= 5000u);
  CHECK(took[0] < 6000u);
  CHECK(run(spin_for, {.block = 32}, 100000ll) == cudaSuccess);
}

TEST_CASE("a grid larger than the GPU runs in waves") {
  const shared_array<unsigned> total(1);
  int multiprocessors = 0;
  REQUIRE(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  const auto blocks = static_cast<unsigned>(multiprocessors) * 32 + 100;
  REQUIRE(run(count_threads, {.grid = blocks, .block = 32}, total.get()) == cudaSuccess);
  CHECK(total[0] == blocks * 32);
  CHECK_THROWS_AS(devcomm::launch(count_threads, {.grid = blocks, .block = 32, .cooperative = true}, total.get()),
                  devcomm::cuda_error);
  CHECK(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
}

TEST_CASE("4096 threads sum a million floats in seconds") {
  constexpr std::size_t count = 1 << 20;
  const shared_array<float> in(count);
  const shared_array<float> out(8 * 4);
  for (std::size_t i = 0; i < count; ++i) in[i] = 1.0f;
  const std::clock_t start = std::clock();  // processor time: the machine may be busy
  for (int d = 0; d < 8; ++d) {
    REQUIRE(cudaSetDevice(d) == cudaSuccess);
    devcomm::launch(sum_floats, {.grid = 4, .block = 128}, in.get(), count, out.get() + 4 * d);
  }
  for (int d = 0; d < 8; ++d) {
    REQUIRE(cudaSetDevice(d) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  for (std::size_t d = 0; d < 8; ++d) {
    CHECK(out[4 * d] + out[4 * d + 1] + out[4 * d + 2] + out[4 * d + 3] == static_cast<float>(count));
  }
  CHECK(seconds < 30);
}
