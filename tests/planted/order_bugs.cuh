/// \file order_bugs.cuh
/// Accesses that nothing orders: orders too weak, fences and barriers left out, barriers of others.
#pragma once

#include "planted/planted.hpp"

namespace planted {
namespace {

using namespace devcomm;

using board = sym_ptr<std::uint32_t>;

/// The word of the next rank's neighbouring thread in this block.
__device__ std::uint32_t next_word(const device_comm& comm, board words) {
  const unsigned neighbour = blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x;
  return words.lsa((comm.rank + 1) % comm.lsa_size)[neighbour];
}
/// What `next_word` finds on rank `rank` in round `round`, of the value that `value` makes.
std::uint32_t next_value(const bench& b, std::uint32_t round, std::uint32_t i) {
  const std::uint32_t next = static_cast<std::uint32_t>((b.ranks.rank() + 1) % b.ranks.size());
  return (round * 16 + next) * 256 + i / threads * threads + (i + 1) % threads;
}
__device__ std::uint32_t value(const device_comm& comm, std::uint32_t round) {
  return (round * 16 + static_cast<std::uint32_t>(comm.rank)) * 256 + blockIdx.x * blockDim.x + threadIdx.x;
}

/// Fill, meet, read the next rank, meet.
__global__ void exchange(device_comm comm, board words, std::uint32_t* out, memory_order before) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[mine] = value(comm, 0);
  barrier.sync(before);
  out[mine] = next_word(comm, words);
  barrier.sync(memory_order::acq_rel);
}
void exchange_with(const bench& b, memory_order before) {
  const output out(words);
  launch(exchange, bench::config(), b.comm(), b.board, out.get(), before);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, 0, i); });
}
void release_weakened(const bench& b) { exchange_with(b, b.wrong ? memory_order::acquire : memory_order::acq_rel); }
void acquire_weakened(const bench& b) { exchange_with(b, b.wrong ? memory_order::release : memory_order::acq_rel); }

/// A word and then a flag to the next rank, by CUDA's own relaxed atomics and fences. The flag of each block
/// lies behind the words.
__global__ void message(device_comm comm, board words, std::uint32_t* out, bool fence_before, bool fence_after) {
  if (threadIdx.x != 0) return;
  const int next = (comm.rank + 1) % comm.lsa_size;
  words.lsa(next)[blockIdx.x] = 70 + blockIdx.x;
  if (fence_before) __threadfence_system();
  atomicExch_system(words.lsa(next) + planted::words + blockIdx.x, 1u);
  while (atomicAdd_system(words.local() + planted::words + blockIdx.x, 0u) == 0) {
  }
  if (fence_after) __threadfence_system();
  out[blockIdx.x] = words.local()[blockIdx.x];
}
void send_message(const bench& b, bool fence_before, bool fence_after) {
  const output out(blocks);
  launch(message, bench::config(), b.comm(), b.board, out.get(), fence_before, fence_after);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return 70 + i; });
}
void missing_release_fence(const bench& b) { send_message(b, !b.wrong, true); }
void missing_acquire_fence(const bench& b) { send_message(b, true, !b.wrong); }

/// Threads read what other threads of the block put into shared memory.
__global__ void reverse_block(std::uint32_t* out, bool wrong) {
  __shared__ std::uint32_t staged[threads];
  staged[threadIdx.x] = threadIdx.x;
  if (!wrong) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}
void missing_block_sync(const bench& b) {
  const output out(words);
  launch(reverse_block, bench::config(), out.get(), b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return threads - 1 - i % threads; });
}

/// One thread synchronizes with the peers for its block, without a block barrier before.
__global__ void meet_alone(device_comm comm, board words, std::uint32_t* out, bool wrong) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  words.local()[mine] = value(comm, 0);
  if (!wrong) __syncthreads();
  if (threadIdx.x == 0) lsa::barrier_session{thread{}, comm, blockIdx.x}.sync();
  __syncthreads();
  out[mine] = next_word(comm, words);
  __syncthreads();
  if (threadIdx.x == 0) lsa::barrier_session{thread{}, comm, blockIdx.x}.sync();
}
void missing_group_sync(const bench& b) {
  const output out(words);
  launch(meet_alone, bench::config(), b.comm(), b.board, out.get(), b.wrong);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, 0, i); });
}

/// The words are filled again while peers may still read them.
__global__ void refill(device_comm comm, board words, std::uint32_t* out, std::uint32_t rounds, bool wrong) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  for (std::uint32_t round = 0; round < rounds; ++round) {
    words.local()[mine] = value(comm, round);
    barrier.sync();
    out[round * planted::words + mine] = next_word(comm, words);
    if (!wrong) barrier.sync();
  }
  barrier.sync();
}
void buffer_reuse(const bench& b) {
  constexpr std::uint32_t rounds = 3;
  const output out(rounds * words);
  launch(refill, bench::config(), b.comm(), b.board, out.get(), rounds, b.wrong);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, i / words, i % words); });
}

/// The kernel ends while peers may still read this rank's words, which the next launch fills again.
__global__ void leave_early(device_comm comm, board words, std::uint32_t* out, std::uint32_t round, bool wrong) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[mine] = value(comm, round);
  barrier.sync();
  out[round * planted::words + mine] = next_word(comm, words);
  if (!wrong) barrier.sync();
}
void missing_final_barrier(const bench& b) {
  constexpr std::uint32_t launches = 3;
  const output out(launches * words);
  for (std::uint32_t round = 0; round < launches; ++round) {
    launch(leave_early, bench::config(), b.comm(), b.board, out.get(), round, b.wrong);
  }
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, i / words, i % words); });
}

/// Blocks of one rank use each other's barriers.
__global__ void meet_elsewhere(device_comm comm, board words, std::uint32_t* out, bool wrong) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned index = wrong && comm.rank == 1 ? (blockIdx.x + 1) % gridDim.x : blockIdx.x;
  lsa::barrier_session barrier{block{}, comm, index};
  words.local()[mine] = value(comm, 0);
  barrier.sync();
  out[mine] = next_word(comm, words);
  barrier.sync();
}
void wrong_barrier_index(const bench& b) {
  const output out(words);
  launch(meet_elsewhere, bench::config(), b.comm(), b.board, out.get(), b.wrong);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, 0, i); });
}

/// The host reads a result in pinned memory while the kernel may still write it.
__global__ void write_result(std::uint32_t* result) { result[blockIdx.x * blockDim.x + threadIdx.x] = 5; }
void missing_host_wait(const bench& b) {
  void* pinned = nullptr;
  check_cuda(cudaMallocHost(&pinned, words * sizeof(std::uint32_t)), "cudaMallocHost");
  const auto* result = static_cast<const std::uint32_t*>(pinned);
  launch(write_result, bench::config(), static_cast<std::uint32_t*>(pinned));
  if (!b.wrong) b.finish();
  const std::uint32_t found = result[words - 1];
  b.finish();
  check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
  test::require(found == 5, "wrong result: the host found " + std::to_string(found) + ", expected 5");
}

std::vector<bug> order_bugs() {
  return {{"release_weakened", release_weakened},
          {"acquire_weakened", acquire_weakened},
          {"missing_release_fence", missing_release_fence},
          {"missing_acquire_fence", missing_acquire_fence},
          {"missing_block_sync", missing_block_sync},
          {"missing_group_sync", missing_group_sync},
          {"buffer_reuse", buffer_reuse},
          {"missing_final_barrier", missing_final_barrier},
          {"wrong_barrier_index", wrong_barrier_index},
          {"missing_host_wait", missing_host_wait}};
}

}  // namespace
}  // namespace planted
