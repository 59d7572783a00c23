/// Programs whose failure needs a schedule, for devcomm-shrink.
/// usage: shrink_sim KERNEL
#include <devcomm/arch/arch.cuh>
#include <devcomm/launch.hpp>
#include <devcomm/simulator/simulator.hpp>

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;

namespace {

/// A sum in two steps: lost when another thread adds in between.
__global__ void add_in_two_steps(unsigned* sum) {
  for (int i = 0; i < 4; ++i) {
    const unsigned before = arch::load<memory_order::relaxed, scope::system>(sum);
    arch::store<memory_order::relaxed, scope::system>(sum, before + 1);
  }
}

/// Each of two ranks waits for the other's flag, one of them twice although it is raised once.
__global__ void take_turns(unsigned* flags, unsigned rank) {
  arch::store<memory_order::release, scope::system>(flags + rank, 1u);
  if (rank == 0) {
    while (arch::load<memory_order::acquire, scope::system>(flags + 1) == 0) {
    }
    return;
  }
  // Takes the flag back if it comes early.
  if (arch::load<memory_order::acquire, scope::system>(flags) == 0) {
    arch::store<memory_order::release, scope::system>(flags + 1, 0u);
    while (arch::load<memory_order::acquire, scope::system>(flags) == 0) {
    }
  }
}

bool lost_sum(unsigned* words) {
  devcomm::launch(add_in_two_steps, {.grid = 2, .block = 16}, words);
  return cudaDeviceSynchronize() == cudaSuccess && words[0] != 128;
}

bool stuck(unsigned* words) {
  bool failed[2] = {};
  std::vector<std::thread> hosts;
  for (unsigned rank = 0; rank < 2; ++rank) {
    hosts.emplace_back([&, rank] {
      failed[rank] = cudaSetDevice(static_cast<int>(rank)) != cudaSuccess;
      devcomm::launch(take_turns, {}, words, rank);
      failed[rank] = cudaDeviceSynchronize() != cudaSuccess || failed[rank];
    });
  }
  for (std::thread& host : hosts) host.join();
  return failed[0] || failed[1];
}

}  // namespace

int main(int argc, char** argv) {
  unsigned* words = nullptr;
  if (argc != 2 || cudaMallocHost(&words, 2 * sizeof(unsigned)) != cudaSuccess) return 2;
  words[0] = words[1] = 0;
  bool failed = false;
  if (std::strcmp(argv[1], "lost_sum") == 0) failed = lost_sum(words);
  if (std::strcmp(argv[1], "stuck") == 0) failed = stuck(words);
  if (failed) std::printf("%s: wrong\n", argv[1]);
  return failed ? 3 : 0;
}
