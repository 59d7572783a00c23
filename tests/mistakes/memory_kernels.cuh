/// \file memory_kernels.cuh
/// Wrong places and wrong values: indices, epochs, lifetimes.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

/// Packets of a value and its round, in two slots by turns. A barrier each round keeps a slot's next packet
/// away until the last one has been taken.
__global__ void take_packets(device_comm comm, sym_ptr<std::uint64_t> slots, std::uint32_t* out, std::uint32_t rounds,
                             bool wrong) {
  if (blockIdx.x != 0) return;
  lsa::barrier_session barrier{block{}, comm, 0};
  const int next = (comm.rank + 1) % comm.lsa_size;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (threadIdx.x == 0) {
      using word = unsigned long long;
      const std::uint64_t packet = std::uint64_t{round} << 32 | (100 + round);
      atomicExch_system(reinterpret_cast<word*>(slots.lsa(next) + round % 2), static_cast<word>(packet));
      word seen = 0;
      do {
        seen = atomicAdd_system(reinterpret_cast<word*>(slots.local() + round % 2), word{0});
      } while (wrong ? seen == 0 : seen >> 32 != round);
      out[round - 1] = static_cast<std::uint32_t>(seen);
    }
    barrier.sync(memory_order::relaxed);
  }
}
void stale_epoch(const bench& b) {
  constexpr std::uint32_t rounds = 6;
  const output out(rounds);
  launch(take_packets, bench::config(), b.comm(), b.board.as<std::uint64_t>(), out.get(), rounds, b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return 101 + i; });
}

/// Words and a flag with the round's epoch, near the end of its range. Epochs compare by the sign of their
/// difference; as unsigned numbers the last ones before the end are past the first ones after it.
__global__ void wrap_epochs(device_comm comm, sym_ptr<std::uint32_t> words, std::uint32_t* out, std::uint32_t first,
                            std::uint32_t rounds, bool wrong) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  const int next = (comm.rank + 1) % comm.lsa_size;
  const int previous = (comm.rank + comm.lsa_size - 1) % comm.lsa_size;
  enum : int { data, arrived = 2, taken = 3 };
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::uint32_t epoch = first + round;
    words.lsa(next)[data + round % 2] = 100 + round;
    __threadfence_system();
    atomicExch_system(words.lsa(next) + arrived, epoch);
    std::uint32_t seen = 0;
    do {
      seen = atomicAdd_system(words.local() + arrived, 0u);
    } while (wrong ? seen < epoch : static_cast<std::int32_t>(seen - epoch) < 0);
    __threadfence_system();
    out[round] = words.local()[data + round % 2];
    // Tell the sender, and wait for the receiver: the slot is free again.
    __threadfence_system();
    atomicExch_system(words.lsa(previous) + taken, epoch);
    while (static_cast<std::int32_t>(atomicAdd_system(words.local() + taken, 0u) - epoch) < 0) {
    }
    __threadfence_system();
  }
}
void epoch_wrap(const bench& b) {
  constexpr std::uint32_t rounds = 5;
  constexpr std::uint32_t first = 0u - 2;
  const std::vector<std::uint32_t> before(4, first - 1);
  const output out(rounds);
  check_cuda(cudaMemcpyAsync(b.board.local(), before.data(), 4 * sizeof first, cudaMemcpyDefault, cudaStreamPerThread),
             "cudaMemcpyAsync");
  test::finish("cudaMemcpyAsync");
  b.ranks.barrier();
  launch(wrap_epochs, bench::config(), b.comm(), b.board, out.get(), first, rounds, b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return 100 + i; });
}

/// Sums one word of each rank; an index of the loop is off by one.
__global__ void sum_ranks(device_comm comm, sym_ptr<std::uint32_t> words, std::uint32_t* out, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[blockIdx.x * blockDim.x + threadIdx.x] = 1u << (4 * comm.rank);
  barrier.sync();
  std::uint32_t sum = 0;
  for (int peer = 0; peer < comm.lsa_size; ++peer) {
    sum += words.lsa(wrong ? (peer + 1) / 2 : peer)[blockIdx.x * blockDim.x + threadIdx.x];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  barrier.sync();
}
void wrong_peer(const bench& b) {
  const output out(words);
  launch(sum_ranks, bench::config(), b.comm(), b.board, out.get(), b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t) { return 0x111u; });
}

/// Adds to memory that nobody has set.
__global__ void accumulate(std::uint32_t* sums) { sums[blockIdx.x * blockDim.x + threadIdx.x] += threadIdx.x; }
void uninitialized_read(const bench& b) {
  void* sums = nullptr;
  check_cuda(cudaMalloc(&sums, words * sizeof(std::uint32_t)), "cudaMalloc");
  if (!b.wrong) check_cuda(cudaMemsetAsync(sums, 0, words * sizeof(std::uint32_t), cudaStreamPerThread), "cudaMemset");
  const output out(words);
  launch(accumulate, bench::config(), static_cast<std::uint32_t*>(sums));
  check_cuda(cudaMemcpyAsync(out.get(), sums, words * sizeof(std::uint32_t), cudaMemcpyDefault, cudaStreamPerThread),
             "cudaMemcpyAsync");
  b.finish();
  check_cuda(cudaFree(sums), "cudaFree");
  b.expect(out, [](std::uint32_t i) { return i % threads; });
}

/// One thread more than the array has elements.
__global__ void fill(std::uint32_t* array, unsigned count, bool wrong) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (wrong ? i <= count : i < count) array[i] = i;
}
void out_of_bounds(const bench& b) {
  constexpr unsigned count = words - 8;
  void* array = nullptr;
  check_cuda(cudaMalloc(&array, count * sizeof(std::uint32_t)), "cudaMalloc");
  launch(fill, bench::config(), static_cast<std::uint32_t*>(array), count, b.wrong);
  b.finish();
  check_cuda(cudaFree(array), "cudaFree");
}

/// A function for global memory gets an address of shared memory.
__global__ void copy_staged(std::uint32_t* out, bool wrong) {
  __shared__ __align__(16) std::uint32_t staged[threads];
  staged[threadIdx.x] = 7 + threadIdx.x;
  __syncthreads();
  std::uint32_t* const mine = out + blockIdx.x * blockDim.x;
  if (wrong) {
    copy(block{}, mine, static_cast<const std::uint32_t*>(staged), threads);
  } else {
    mine[threadIdx.x] = staged[threadIdx.x];
  }
}
void shared_as_global(const bench& b) {
  const output out(words);
  launch(copy_staged, bench::config(), out.get(), b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return 7 + i % threads; });
}

/// Memory is freed and then used by a kernel.
void use_after_free(const bench& b) {
  void* array = nullptr;
  check_cuda(cudaMalloc(&array, words * sizeof(std::uint32_t)), "cudaMalloc");
  if (b.wrong) check_cuda(cudaFree(array), "cudaFree");
  launch(fill, bench::config(), static_cast<std::uint32_t*>(array), words, false);
  b.finish();
  if (!b.wrong) check_cuda(cudaFree(array), "cudaFree");
}

/// A device communicator that nobody destroys.
void leaked_device_comm(const bench& b) {
  auto* device = new host::device_communicator(b.ranks.create_device_comm(b.ranks.requirements().lsa_barriers(1)));
  if (!b.wrong) delete device;
  device = nullptr;
}

std::vector<mistake> memory_kernels() {
  return {{"stale_epoch", stale_epoch},       {"epoch_wrap", epoch_wrap},
          {"wrong_peer", wrong_peer},         {"uninitialized_read", uninitialized_read},
          {"out_of_bounds", out_of_bounds},   {"shared_as_global", shared_as_global},
          {"use_after_free", use_after_free}, {"leaked_device_comm", leaked_device_comm}};
}

}  // namespace
}  // namespace mistakes
