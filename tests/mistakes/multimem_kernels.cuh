/// \file multimem_kernels.cuh
/// Mistakes with multicast addresses, on a simulated NVLink switch.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

/// Word `i` of each rank's board in the first round.
__device__ std::uint32_t multimem_value(const device_comm& comm, std::uint32_t i) {
  return static_cast<std::uint32_t>(comm.rank + 1) * 1000 + i;
}
std::uint32_t multimem_sum(const bench& b, std::uint32_t i) {
  std::uint32_t total = 0;
  for (int rank = 0; rank < b.ranks.size(); ++rank) total += static_cast<std::uint32_t>(rank + 1) * 1000 + i;
  return total;
}

enum class multimem_mistake { no_first_barrier, no_last_barrier, no_fence, plain_load, other_type };

/// Fill, meet, add up, meet, fill again. The barrier has no fence between the two addresses of a word.
__global__ void add_up(device_comm comm, window memory, std::uint32_t* out, int which) {
  const auto mistake = static_cast<multimem_mistake>(which);
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  auto* const words_of_rank = reinterpret_cast<std::uint32_t*>(memory.local);
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const auto all = memory.multimem<std::uint32_t>() + mine;
  words_of_rank[mine] = multimem_value(comm, mine);
  if (mistake != multimem_mistake::no_first_barrier) {
    barrier.sync();
    multimem::fence_alias();
  }
  if (mistake == multimem_mistake::plain_load) {
    out[mine] = reinterpret_cast<const std::uint32_t*>(memory.multicast->address)[mine];
  } else if (mistake == multimem_mistake::other_type) {
    const float total = all.as<float>().load_reduce<sum, 4>();  // the words are no floats
    out[mine] = static_cast<std::uint32_t>(total);
  } else {
    out[mine] = all.load_reduce<sum>();
  }
  if (mistake != multimem_mistake::no_last_barrier) {
    multimem::fence_alias();
    barrier.sync();
  }
  words_of_rank[mine] = 7;
  if (mistake == multimem_mistake::no_first_barrier || mistake == multimem_mistake::no_last_barrier) barrier.sync();
}

/// Each thread stores to all, and reads what it stored, by its own address.
__global__ void store_and_read(device_comm comm, window memory, std::uint32_t* out, bool fenced) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  if (comm.rank == 0) {
    (memory.multimem<std::uint32_t>() + mine).store(mine + 1);
    if (fenced) multimem::fence_alias();
    out[mine] = reinterpret_cast<const std::uint32_t*>(memory.local)[mine];
  } else {
    out[mine] = mine + 1;
  }
}

/// A barrier that counts arrivals of `members` ranks in one word.
__global__ void meet_by_counter(device_comm comm, window memory, std::uint32_t* out, std::uint32_t members) {
  constexpr std::uint32_t rounds = 6;
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  const auto counter = memory.multimem<std::uint32_t>(512) + blockIdx.x;
  auto* const words_of_rank = reinterpret_cast<std::uint32_t*>(memory.local);
  std::uint32_t wrong = 0;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (round % 2 != 0) words_of_rank[mine] = round;
    __syncthreads();
    if (threadIdx.x == 0) {
      counter.reduce<sum>(1u, memory_order::release);
      const auto* const own = counter.symmetric().local();
      while (devcomm::arch::load<memory_order::acquire, scope::system>(own) < members * round) {
      }
    }
    __syncthreads();
    for (int member = 0; member < comm.lsa_size; ++member) {
      const auto* const theirs = reinterpret_cast<const std::uint32_t*>(memory.lsa_pointer(member));
      if (round % 2 != 0 && theirs[mine] < round) ++wrong;
    }
  }
  out[mine] = wrong;
}

/// A window of its own, with a multicast address.
template <class Launch, class Expected>
void with_switch(const bench& b, Launch start, Expected expected) {
  const auto memory = b.ranks.allocate(4096, "tensor", multimem::policy::required);
  const output out(words);
  b.ranks.barrier();
  start(memory.window(), out.get());
  b.finish();
  b.expect(out, expected);
  b.ranks.barrier();
}
void add_up_with(const bench& b, multimem_mistake which) {
  constexpr int none = 99;
  with_switch(
      b,
      [&](const window& memory, std::uint32_t* out) {
        launch(add_up, bench::config(), b.comm(), memory, out, b.wrong ? static_cast<int>(which) : none);
      },
      [&](std::uint32_t i) { return multimem_sum(b, i); });
}

void multimem_no_barrier(const bench& b) { add_up_with(b, multimem_mistake::no_first_barrier); }
void multimem_reused_early(const bench& b) { add_up_with(b, multimem_mistake::no_last_barrier); }
void multimem_plain_load(const bench& b) { add_up_with(b, multimem_mistake::plain_load); }
void multimem_mixed_types(const bench& b) { add_up_with(b, multimem_mistake::other_type); }
void multimem_alias(const bench& b) {
  with_switch(
      b,
      [&](const window& memory, std::uint32_t* out) {
        launch(store_and_read, bench::config(), b.comm(), memory, out, !b.wrong);
      },
      [](std::uint32_t i) { return i + 1; });
}
void multimem_wrong_count(const bench& b) {
  with_switch(
      b,
      [&](const window& memory, std::uint32_t* out) {
        launch(meet_by_counter, bench::config(), b.comm(), memory, out,
               static_cast<std::uint32_t>(b.ranks.size()) - (b.wrong ? 1 : 0));
      },
      [](std::uint32_t) { return 0u; });
}

}  // namespace

inline std::vector<mistake> multimem_kernels() {
  return {{"multimem_no_barrier", multimem_no_barrier}, {"multimem_reused_early", multimem_reused_early},
          {"multimem_plain_load", multimem_plain_load}, {"multimem_mixed_types", multimem_mixed_types},
          {"multimem_alias", multimem_alias},           {"multimem_wrong_count", multimem_wrong_count}};
}

}  // namespace mistakes
