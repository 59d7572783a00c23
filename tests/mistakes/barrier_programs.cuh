/// \file barrier_programs.cuh
/// Barriers, and what each launch must have in common.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

constexpr int board_words = static_cast<int>(words);

/// Runs `kernel(comm, numbers, out, wrong)`, which gives every rank its next rank's numbers plus one.
template <class Kernel>
void read_next_rank(communicator& comm, Kernel kernel, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  const auto numbers = comm.allocate(board_words * sizeof(int), "numbers");
  const auto out = comm.allocate(board_words * sizeof(int), "out");
  launch(kernel, {.grid = blocks, .block = threads}, device.get(), numbers.pointer<int>(), out.pointer<int>().local(),
         wrong);
  finish(device);
  const int next = (comm.rank() + 1) % comm.size();
  expect(comm, out.pointer<int>().local(), board_words, [&](int i) { return 100 * next + i; });
  comm.barrier();
}

__device__ int own_index() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ int next_rank(const device_comm& comm) { return (comm.lsa_rank() + 1) % comm.lsa_size; }

__global__ void forgets_barrier(device_comm comm, sym_ptr<int> numbers, int* out, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const int i = own_index();
  numbers.local()[i] = 100 * comm.lsa_rank() + i;
  if (wrong) {
    __syncthreads();
  } else {
    barrier.sync();
  }
  out[i] = numbers.lsa(next_rank(comm))[i];
}
void forgotten_barrier(communicator& comm, bool wrong) { read_next_rank(comm, forgets_barrier, wrong); }

__global__ void relaxes_barrier(device_comm comm, sym_ptr<int> numbers, int* out, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const int i = own_index();
  numbers.local()[i] = 100 * comm.lsa_rank() + i;
  if (wrong) {
    barrier.sync(memory_order::relaxed);
  } else {
    barrier.sync();
  }
  out[i] = numbers.lsa(next_rank(comm))[i];
}
void relaxed_barrier(communicator& comm, bool wrong) { read_next_rank(comm, relaxes_barrier, wrong); }

__global__ void mistakes_launch(device_comm comm, sym_ptr<int> numbers, int* out, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const int i = own_index();
  numbers.local()[i] = 100 * comm.lsa_rank() + i;
  if (wrong) {
    barrier.sync(lsa::at_launch);
  } else {
    barrier.sync();
  }
  out[i] = numbers.lsa(next_rank(comm))[i];
}
void mistaken_launch(communicator& comm, bool wrong) { read_next_rank(comm, mistakes_launch, wrong); }

__global__ void reads_before_wait(device_comm comm, sym_ptr<int> numbers, int* out, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const int i = own_index();
  numbers.local()[i] = 100 * comm.lsa_rank() + i;
  barrier.arrive();
  if (!wrong) barrier.wait();
  out[i] = numbers.lsa(next_rank(comm))[i];
  if (wrong) barrier.wait();
}
void read_before_wait(communicator& comm, bool wrong) { read_next_rank(comm, reads_before_wait, wrong); }

/// Two rounds: the second writes what peers may still read.
__global__ void refills(device_comm comm, sym_ptr<int> numbers, int* out, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const int i = own_index();
  for (int round = 0; round < 2; ++round) {
    numbers.local()[i] = 100 * comm.lsa_rank() + i + 1 - round;
    barrier.sync();
    out[i] = numbers.lsa(next_rank(comm))[i];
    if (!wrong) barrier.sync();  // all have read: the numbers may change
  }
}
void reuse_too_early(communicator& comm, bool wrong) { read_next_rank(comm, refills, wrong); }

/// A block returns its threads that have no element before the barrier.
__global__ void leaves_early(device_comm comm, int elements, bool wrong) {
  const int i = own_index();
  if (wrong && i >= elements) return;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync();
}
void half_group(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  launch(leaves_early, {.grid = blocks, .block = threads}, device.get(), board_words - 10, wrong);
  finish(device);
}

__global__ void diverges(device_comm comm, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  if (wrong && threadIdx.x < 16) {
    barrier.sync();
  } else {
    barrier.arrive();
    barrier.wait();
  }
}
void diverged_group(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  launch(diverges, {.grid = blocks, .block = threads}, device.get(), wrong);
  finish(device);
}

__global__ void meet(device_comm comm) { lsa::barrier_session{block{}, comm, blockIdx.x}.sync(); }

void too_few_barriers(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  if (wrong) {
    needs.lsa_barriers(1);
  } else {
    needs.lsa_barriers(blocks);
  }
  const auto device = comm.create_device_comm(needs);
  launch(meet, {.grid = blocks, .block = threads}, device.get());
  finish(device);
}

__global__ void meet_at(device_comm comm, bool wrong) {
  if (wrong) {
    lsa::barrier_session{block{}, comm, 0}.sync();
  } else {
    lsa::barrier_session{block{}, comm, blockIdx.x}.sync();
  }
}
void shared_barrier(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  launch(meet_at, {.grid = blocks, .block = threads}, device.get(), wrong);
  finish(device);
}

__global__ void meet_team(device_comm comm, team members, lsa::barrier_handle barriers) {
  lsa::barrier_session{block{}, comm, members, barriers, 0}.sync();
}
void wrong_team(communicator& comm, bool wrong) {
  const team pair{comm.rank() % 2, 2, comm.rank() / 2 * 2, 1};
  auto needs = comm.requirements();
  const auto barriers = needs.add(lsa::barriers{pair, 1});
  const auto device = comm.create_device_comm(needs);
  if (wrong) {
    launch(meet_team, {.block = threads}, device.get(), comm.lsa(), barriers);
  } else {
    launch(meet_team, {.block = threads}, device.get(), pair, barriers);
  }
  finish(device);
}

__global__ void arrives(device_comm comm, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.arrive();
  if (!wrong) barrier.wait();
}
void arrive_without_wait(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  launch(arrives, {.grid = blocks, .block = threads}, device.get(), wrong);
  finish(device);
}

__global__ void waits_twice(device_comm comm, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.arrive();
  barrier.wait();
  if (wrong) barrier.wait();
}
void wait_twice(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  launch(waits_twice, {.grid = blocks, .block = threads}, device.get(), wrong);
  finish(device);
}

__global__ void orders(device_comm comm, bool wrong) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  if (wrong) {
    barrier.arrive(memory_order::acquire);
  } else {
    barrier.arrive(memory_order::release);
  }
  barrier.wait(memory_order::acquire);
}
void wrong_order(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  launch(orders, {.grid = blocks, .block = threads}, device.get(), wrong);
  finish(device);
}

__global__ void rounds_of(device_comm comm, int rounds) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  for (int round = 0; round < rounds; ++round) barrier.sync();
}
void extra_round(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  const int rounds = wrong && comm.rank() == 1 ? 4 : 3;
  launch(rounds_of, {.grid = blocks, .block = threads}, device.get(), rounds);
  finish(device);
  comm.barrier();
}

void other_grid(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  const unsigned grid = wrong && comm.rank() == 1 ? 1 : blocks;
  launch(meet, {.grid = grid, .block = threads}, device.get());
  finish(device);
}
void other_block(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  const unsigned block = wrong && comm.rank() == 1 ? 64 : threads;
  launch(meet, {.grid = blocks, .block = block}, device.get());
  finish(device);
}
void other_key(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  const std::uint64_t elements = wrong && comm.rank() == 1 ? 999 : 1000;
  launch(meet, {.grid = blocks, .block = threads}, device.get().with_launch_key(elements));
  finish(device);
}

/// Blocks of one grid that wait for each other: all must fit on the GPU at once.
__global__ void meet_in_grid(unsigned* arrived) {
  if (threadIdx.x != 0) return;
  atomicAdd(arrived, 1u);
  while (atomicAdd(arrived, 0u) < gridDim.x) {
  }
}
void too_many_blocks(communicator& comm, bool wrong) {
  const auto arrived = comm.allocate(sizeof(unsigned), "arrived");
  const unsigned fit = 32 * 2;  // multiprocessors, blocks of 1,024 threads on each
  const unsigned grid = wrong ? fit + 1 : fit / 32;
  launch(meet_in_grid, {.grid = grid, .block = 1024}, arrived.pointer<unsigned>().local());
  check_cuda(cudaDeviceSynchronize(), "meet_in_grid");
}
void too_many_blocks_cooperative(communicator& comm, bool wrong) {
  const auto arrived = comm.allocate(sizeof(unsigned), "arrived");
  const unsigned grid = wrong ? 65 : 2;
  launch(meet_in_grid, {.grid = grid, .block = 1024, .cooperative = true}, arrived.pointer<unsigned>().local());
  check_cuda(cudaDeviceSynchronize(), "meet_in_grid");
}

std::vector<mistake> barrier_programs() {
  return {{"forgotten_barrier", forgotten_barrier},
          {"relaxed_barrier", relaxed_barrier},
          {"mistaken_launch", mistaken_launch},
          {"read_before_wait", read_before_wait},
          {"reuse_too_early", reuse_too_early},
          {"half_group", half_group},
          {"diverged_group", diverged_group},
          {"too_few_barriers", too_few_barriers},
          {"shared_barrier", shared_barrier},
          {"wrong_team", wrong_team, 4},
          {"arrive_without_wait", arrive_without_wait},
          {"wait_twice", wait_twice},
          {"wrong_order", wrong_order},
          {"extra_round", extra_round},
          {"other_grid", other_grid},
          {"other_block", other_block},
          {"other_key", other_key},
          {"too_many_blocks", too_many_blocks, 1},
          {"too_many_blocks_cooperative", too_many_blocks_cooperative, 1}};
}

}  // namespace
}  // namespace mistakes
