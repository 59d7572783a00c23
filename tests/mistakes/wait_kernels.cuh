/// \file wait_kernels.cuh
/// Ranks and threads that do not meet: order of barriers, early exits, lost notices, divergence, launches that
/// differ.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

/// Two barriers, which one rank takes in the other order.
__global__ void meet_twice(device_comm comm, bool wrong) {
  if (blockIdx.x != 0) return;
  lsa::barrier_session first{block{}, comm, wrong && comm.rank == 1 ? 1u : 0u};
  lsa::barrier_session second{block{}, comm, wrong && comm.rank == 1 ? 0u : 1u};
  first.sync();
  second.sync();
}
void barrier_order(const bench& b) {
  launch(meet_twice, bench::config(), b.comm(), b.wrong);
  b.finish();
}

/// One rank leaves the loop a round before the others.
__global__ void run_rounds(device_comm comm, int rounds, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  for (int round = 0; round < rounds; ++round) {
    if (wrong && comm.rank == 2 && round == rounds - 1) return;
    barrier.sync();
  }
}
void early_exit(const bench& b) {
  launch(run_rounds, bench::config(), b.comm(), 3, b.wrong);
  b.finish();
}

/// Every block counts itself in on rank 0, several times, and rank 0 waits for all. A load and a store, both atomic,
/// are no atomic addition: of two at a time one is lost.
__global__ void count_ranks_in(device_comm comm, sym_ptr<std::uint32_t> counter, bool wrong) {
  if (threadIdx.x != 0) return;
  std::uint32_t* const count = counter.lsa(0);
  constexpr unsigned times = 16;
  for (unsigned i = 0; i < times; ++i) {
    if (wrong) {
      atomicExch_system(count, atomicAdd_system(count, 0u) + 1);
    } else {
      atomicAdd_system(count, 1u);
    }
  }
  if (comm.rank != 0) return;
  while (atomicAdd_system(count, 0u) != static_cast<std::uint32_t>(comm.size) * gridDim.x * times) {
  }
}
void lost_notice(const bench& b) {
  launch(count_ranks_in, bench::config(), b.comm(), b.board, b.wrong);
  b.finish();
}

/// A sum over the warp in a branch that half of it does not take.
__global__ void sum_in_branch(std::uint32_t* out, bool wrong) {
  std::uint32_t sum = threadIdx.x;
  if (!wrong || threadIdx.x % 2 == 0) {
    for (unsigned step = 16; step != 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, static_cast<int>(step));
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
void divergence(const bench& b) {
  const test::device_array<std::uint32_t> out(words);
  launch(sum_in_branch, bench::config(), out.get(), b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t) { return threads * (threads - 1) / 2; });
}

std::vector<mistake> wait_kernels() {
  return {{"barrier_order", barrier_order},
          {"early_exit", early_exit},
          {"lost_notice", lost_notice},
          {"divergence", divergence}};
}

}  // namespace
}  // namespace mistakes
