/// \file wait_bugs.cuh
/// Ranks and threads that do not meet: order of barriers, early exits, lost notices, divergence, launches that
/// differ.
#pragma once

#include "planted/planted.hpp"

namespace planted {
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
__global__ void count_in(device_comm comm, sym_ptr<std::uint32_t> counter, bool wrong) {
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
  launch(count_in, bench::config(), b.comm(), b.board, b.wrong);
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

/// An arrival that no wait follows.
__global__ void arrive_only(device_comm comm, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.arrive();
  if (!wrong) barrier.wait();
}
void arrive_without_wait(const bench& b) {
  launch(arrive_only, bench::config(), b.comm(), b.wrong);
  b.finish();
}

/// One rank launches another grid than the rest.
__global__ void meet(device_comm comm) { lsa::barrier_session{block{}, comm, blockIdx.x}.sync(); }
void mismatched_launch(const bench& b) {
  launch_config config = bench::config();
  if (b.wrong && b.ranks.rank() == 1) config.grid = blocks - 1;
  launch(meet, config, b.comm());
  b.finish();
}

/// Two groups of a block share one barrier.
__global__ void meet_by_tile(device_comm comm, bool wrong) {
  lsa::barrier_session{tile<16>{}, comm, wrong ? 0u : threadIdx.x / 16}.sync();
}
void shared_barrier(const bench& b) {
  launch_config config = bench::config();
  config.grid = 1;
  launch(meet_by_tile, config, b.comm(), b.wrong);
  b.finish();
}

std::vector<bug> wait_bugs() {
  return {{"barrier_order", barrier_order},
          {"early_exit", early_exit},
          {"lost_notice", lost_notice},
          {"divergence", divergence},
          {"arrive_without_wait", arrive_without_wait},
          {"mismatched_launch", mismatched_launch},
          {"shared_barrier", shared_barrier}};
}

}  // namespace
}  // namespace planted
