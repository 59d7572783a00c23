/// \file devcomm_litmus.hpp
/// What devcomm-litmus makes of its tests: the kernels' view of a test's memory, and the table of all tests.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

namespace litmus {

inline constexpr int max_threads = 8, max_registers = 16, max_locations = 16;

/// Words and registers of one instance of a test. A launch plays some, each block of a test as often as there are
/// copies, one instance after the other.
struct memory {
  std::uint32_t* words;
  std::uint32_t* registers;
  std::uint32_t* arrived = nullptr;  ///< for each instance, threads that are at it; null: they need not meet
  int stride = 32;                   ///< words from a location to the next

  static constexpr int registers_each = max_threads * max_registers;
  [[nodiscard]] __host__ __device__ int words_each() const { return max_locations * stride; }

  [[nodiscard]] __host__ __device__ memory instance(int number) const {
    return {words + number * words_each(), registers + number * registers_each,
            arrived == nullptr ? nullptr : arrived + number, stride};
  }
  [[nodiscard]] __host__ __device__ std::uint32_t* at(int location) const { return words + location * stride; }
  __device__ void keep(int thread, int index, std::uint32_t value) const {
    registers[thread * max_registers + index] = value;
  }
  /// Waits for the test's other threads, but not long: they may not be resident.
  __device__ void meet(unsigned threads) const {
    if (arrived == nullptr) return;
    atomicAdd(arrived, 1U);
    for (int polls = 0; polls < 2000 && *static_cast<volatile std::uint32_t*>(arrived) < threads; ++polls) {
    }
  }
};

/// Each thread of a test is the first of a warp.
__device__ inline bool is_thread(unsigned block, unsigned blocks, unsigned thread) {
  return blockIdx.x % blocks == block && threadIdx.x == thread * 32;
}

struct location {
  std::string name;
  std::uint32_t initial;
};

struct test {
  std::string name;
  void (*kernel)(memory, int instances, int gpu);
  std::vector<location> locations;
  std::vector<std::vector<std::string>> registers;  ///< of each thread
  std::vector<std::vector<unsigned>> blocks;        ///< of each GPU, the threads of each block
  std::vector<std::string> observed;                ///< registers and locations that make an outcome
};

std::vector<test> all_tests();

}  // namespace litmus
