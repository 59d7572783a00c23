/// \file memory_programs.cuh
/// Windows, registered memory, and pointers that a kernel or the host must not use.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

__global__ void write_next(device_comm comm, sym_ptr<int> numbers, int place) {
  lsa::barrier_session barrier{block{}, comm, 0};
  if (threadIdx.x == 0) numbers.lsa((comm.lsa_rank() + 1) % comm.lsa_size)[place] = 7;
  barrier.sync();
}
void past_end(communicator& comm, bool wrong) {
  constexpr int elements = 100;
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  const auto numbers = comm.allocate(elements * sizeof(int), "numbers");
  launch(write_next, {.block = 32}, device.get(), numbers.pointer<int>(), wrong ? elements : elements - 1);
  finish(device);
}
void far_past_end(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  const auto numbers = comm.allocate(512, "numbers");
  launch(write_next, {.block = 32}, device.get(), numbers.pointer<int>(), wrong ? 5000 : 50);
  finish(device);
}

__global__ void write_at_offset(sym_ptr<int> numbers, int offset) { *(numbers + offset).local() = 7; }
void offset_past_end(communicator& comm, bool wrong) {
  const auto numbers = comm.allocate(512, "numbers");
  launch(write_at_offset, {}, numbers.pointer<int>(), wrong ? 512 : 512 / 4 - 1);
  check_cuda(cudaDeviceSynchronize(), "write_at_offset");
}

/// A window of a communicator of pairs, with the indices of the world.
__global__ void write_to_all(device_comm comm, sym_ptr<int> numbers) {
  lsa::barrier_session barrier{block{}, comm, 0};
  if (threadIdx.x == 0) {
    for (int peer = 0; peer < comm.lsa_size; ++peer) numbers.lsa(peer)[comm.lsa_rank()] = 7;
  }
  barrier.sync();
}
void other_communicator(communicator& comm, bool wrong) {
  const auto pair = comm.split(comm.rank() / 2, comm.rank());
  const auto numbers = pair->allocate(512, "numbers");
  if (wrong) {
    const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    launch(write_to_all, {.block = 32}, device.get(), numbers.pointer<int>());
    finish(device);
  } else {
    const auto device = pair->create_device_comm(pair->requirements().lsa_barriers(1));
    launch(write_to_all, {.block = 32}, device.get(), numbers.pointer<int>());
    finish(device);
  }
  comm.barrier();
}

void registered_host_memory(communicator& comm, bool wrong) {
  std::vector<int> host(1024);
  int* device = nullptr;
  check_cuda(cudaMalloc(&device, 4096), "cudaMalloc");
  if (wrong) {
    const auto numbers = comm.register_memory(host.data(), 4096, "numbers");
  } else {
    const auto numbers = comm.register_memory(device, 4096, "numbers");
  }
  check_cuda(cudaFree(device), "cudaFree");
}
void registered_too_much(communicator& comm, bool wrong) {
  int* device = nullptr;
  check_cuda(cudaMalloc(&device, 4096), "cudaMalloc");
  if (wrong) {
    const auto numbers = comm.register_memory(device, 4096 * sizeof(int), "numbers");
  } else {
    const auto numbers = comm.register_memory(device, 4096, "numbers");
  }
  check_cuda(cudaFree(device), "cudaFree");
}
void other_size(communicator& comm, bool wrong) {
  const std::size_t bytes = wrong ? 1000u + static_cast<unsigned>(comm.rank()) : 1000u;
  const auto numbers = comm.allocate(bytes, "numbers");
}

__global__ void increment(int* numbers) { ++numbers[threadIdx.x]; }

void host_pointer(communicator& comm, bool wrong) {
  std::vector<int> host(32, 1);
  const auto numbers = comm.allocate(32 * sizeof(int), "numbers");
  if (wrong) {
    launch(increment, {.block = 32}, host.data());
  } else {
    launch(increment, {.block = 32}, numbers.pointer<int>().local());
  }
  check_cuda(cudaDeviceSynchronize(), "increment");
}

struct view {
  int* numbers;
  unsigned count;
};
__global__ void increment_view(view all) {
  if (threadIdx.x < all.count) ++all.numbers[threadIdx.x];
}
void host_pointer_in_structure(communicator& comm, bool wrong) {
  std::vector<int> host(32, 1);
  const auto numbers = comm.allocate(32 * sizeof(int), "numbers");
  if (wrong) {
    launch(increment_view, {.block = 32}, view{host.data(), 32});
  } else {
    launch(increment_view, {.block = 32}, view{numbers.pointer<int>().local(), 32});
  }
  check_cuda(cudaDeviceSynchronize(), "increment_view");
}

void host_reads_device(communicator& comm, bool wrong) {
  const auto numbers = comm.allocate(32 * sizeof(int), "numbers");
  launch(increment, {.block = 32}, numbers.pointer<int>().local());
  check_cuda(cudaDeviceSynchronize(), "increment");
  int first = 0;
  if (wrong) {
    first = *numbers.pointer<int>().local();
  } else {
    check_cuda(cudaMemcpy(&first, numbers.data(), sizeof first, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  if (first != 1) throw std::runtime_error("wrong result");
}

/// Sends from shared memory, by a call that takes global memory.
__global__ void sends_shared(device_comm comm, sym_ptr<int> numbers, int* staged_in_memory, bool wrong) {
  __shared__ int staged[32];
  lsa::barrier_session barrier{block{}, comm, 0};
  staged[threadIdx.x] = staged_in_memory[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (wrong) {
    copy(block{}, numbers.local(), staged, 32);
  } else {
    copy(block{}, numbers.local(), staged_in_memory, 32);
  }
  barrier.sync();
}
void shared_memory(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  const auto numbers = comm.allocate(32 * sizeof(int), "numbers");
  const auto staged = comm.allocate(32 * sizeof(int), "staged");
  launch(sends_shared, {.block = 32}, device.get(), numbers.pointer<int>(), staged.pointer<int>().local(), wrong);
  finish(device);
}

/// Four floats at once, from an address that is not a multiple of 16.
__global__ void sum_of_four(const float* numbers, float* sum) {
  const float4 four = *reinterpret_cast<const float4*>(numbers);
  *sum = four.x + four.y + four.z + four.w;
}
void misaligned_vector(communicator& comm, bool wrong) {
  const auto numbers = comm.allocate(512, "numbers");
  const auto sum = comm.allocate(sizeof(float), "sum");
  const int first = wrong ? 1 : 4;
  launch(sum_of_four, {}, numbers.pointer<float>().local() + first, sum.pointer<float>().local());
  check_cuda(cudaDeviceSynchronize(), "sum_of_four");
}

/// A rank frees its window while a peer still writes to it.
void freed_window(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  auto numbers = std::make_unique<symmetric_memory>(comm.allocate(512, "numbers"));
  const sym_ptr<int> pointer = numbers->pointer<int>();
  if (wrong) {
    numbers.reset();
    launch(write_next, {.block = 32}, device.get(), pointer, 0);
    finish(device);
  } else {
    launch(write_next, {.block = 32}, device.get(), pointer, 0);
    finish(device);
    comm.barrier();
    numbers.reset();
  }
}

/// Sums into memory that nobody has set.
__global__ void add_ranks(int* sums) { sums[threadIdx.x] += static_cast<int>(threadIdx.x); }
void uninitialized(communicator& comm, bool wrong) {
  int* sums = nullptr;
  check_cuda(cudaMalloc(&sums, 32 * sizeof(int)), "cudaMalloc");
  if (!wrong) check_cuda(cudaMemset(sums, 0, 32 * sizeof(int)), "cudaMemset");
  launch(add_ranks, {.block = 32}, sums);
  check_cuda(cudaDeviceSynchronize(), "add_ranks");
  expect(comm, sums, 32, [](int i) { return i; });
  check_cuda(cudaFree(sums), "cudaFree");
}

std::vector<mistake> memory_programs() {
  return {{"past_end", past_end},
          {"far_past_end", far_past_end},
          {"offset_past_end", offset_past_end},
          {"other_communicator", other_communicator, 4},
          {"registered_host_memory", registered_host_memory},
          {"registered_too_much", registered_too_much},
          {"other_size", other_size},
          {"host_pointer", host_pointer},
          {"host_pointer_in_structure", host_pointer_in_structure},
          {"host_reads_device", host_reads_device},
          {"shared_memory", shared_memory},
          {"misaligned_vector", misaligned_vector},
          {"freed_window", freed_window},
          {"uninitialized", uninitialized}};
}

}  // namespace
}  // namespace mistakes
