/// \file host_programs.cuh
/// Host code around kernels: errors that nobody looks at, lifetimes, ranks that fail, the environment.
#pragma once

#include <devcomm/simulator/explore.hpp>

#include "mistakes/mistakes.hpp"

#include <cstdlib>

namespace mistakes {
namespace {

using namespace devcomm;

__global__ void write_numbers(int* numbers) { numbers[threadIdx.x] = static_cast<int>(threadIdx.x); }

void missing_synchronize(communicator& comm, bool wrong) {
  const auto numbers = comm.allocate(32 * sizeof(int), "numbers");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  launch(write_numbers, {.block = 32, .stream = stream}, numbers.pointer<int>().local());
  if (!wrong) check_cuda(cudaStreamSynchronize(stream), "write_numbers");
  expect(comm, numbers.pointer<int>().local(), 32, [](int i) { return i; });
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

__global__ void trap(bool wrong) {
  if (wrong) __trap();
}
void unseen_failure(communicator&, bool wrong) {
  launch(trap, {}, wrong);
  if (!wrong) check_cuda(cudaDeviceSynchronize(), "trap");
}

/// Threads count themselves in: a load and a store, both atomic, are no addition.
__global__ void count_in(unsigned* sum, bool wrong) {
  if (wrong) {
    atomicExch(sum, atomicAdd(sum, 0u) + 1);
  } else {
    atomicAdd(sum, 1u);
  }
}
void count_once(unsigned* sum, bool wrong) {
  *sum = 0;
  launch(count_in, {.block = 3}, sum, wrong);
  check_cuda(cudaDeviceSynchronize(), "count_in");
  if (*sum != 3) throw std::runtime_error("wrong result: " + std::to_string(*sum) + ", expected 3");
}
void lost_addition(communicator&, bool wrong) {
  unsigned* sum = nullptr;
  check_cuda(cudaMallocHost(&sum, sizeof *sum), "cudaMallocHost");
  if (std::getenv("MISTAKES_EXPLORE") != nullptr) {
    const auto result = simulator::explore({}, [&] { count_once(sum, wrong); });
    if (!result.failure.empty()) throw std::runtime_error(result.failure);
  } else {
    count_once(sum, wrong);
  }
  check_cuda(cudaFreeHost(sum), "cudaFreeHost");
}

__global__ void wait_for_all(device_comm comm) { lsa::barrier_session{block{}, comm, 0}.sync(); }

void launch_on_one_rank_less(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  if (!wrong || comm.rank() != 1) launch(wait_for_all, {.block = 32}, device.get());
  finish(device);
  comm.barrier();
}

void destroyed_device_comm(communicator& comm, bool wrong) {
  auto device = std::make_unique<device_communicator>(comm.create_device_comm(comm.requirements().lsa_barriers(1)));
  launch(wait_for_all, {.block = 32}, device->get());
  if (!wrong) check_cuda(cudaDeviceSynchronize(), "wait_for_all");
  device.reset();
  check_cuda(cudaDeviceSynchronize(), "wait_for_all");
}
void used_after_destruction(communicator& comm, bool wrong) {
  auto device = std::make_unique<device_communicator>(comm.create_device_comm(comm.requirements().lsa_barriers(1)));
  const device_comm copy = device->get();
  comm.barrier();
  if (wrong) device.reset();
  launch(wait_for_all, {.block = 32}, copy);
  check_cuda(cudaDeviceSynchronize(), "wait_for_all");
}

void exception_on_one_rank(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  if (wrong && comm.rank() == 1) throw std::runtime_error("no such file");
  launch(wait_for_all, {.block = 32}, device.get());
  finish(device);
}

void call_on_one_rank(communicator& comm, bool wrong) {
  if (wrong && comm.rank() != 0) {
    comm.barrier();
  } else {
    const auto numbers = comm.allocate(512, "numbers");
    if (!wrong) comm.barrier();
  }
}

void leaked_window(communicator& comm, bool wrong) {
  auto* numbers = new symmetric_memory(comm.allocate(512, "numbers"));
  if (!wrong) delete numbers;
}

/// A sum over all ranks, by a kernel that reaches its LSA team only.
__global__ void sum_of_ranks(device_comm comm, sym_ptr<int> numbers, int* out) {
  lsa::barrier_session barrier{block{}, comm, 0};
  if (threadIdx.x == 0) *numbers.local() = 1 + comm.rank;
  barrier.sync();
  int total = 0;
  for (int peer = 0; peer < comm.lsa_size; ++peer) total += *numbers.lsa(peer);
  if (threadIdx.x == 0) *out = total;
  barrier.sync();
}
void several_lsa_teams(communicator& comm, bool wrong) {
  auto needs = comm.requirements().lsa_barriers(1);
  if (wrong) needs.with(lsa::whole_world{});
  const auto device = comm.create_device_comm(needs);
  const auto numbers = comm.allocate(sizeof(int), "numbers");
  const auto out = comm.allocate(sizeof(int), "out");
  launch(sum_of_ranks, {.block = 32}, device.get(), numbers.pointer<int>(), out.pointer<int>().local());
  finish(device);
}
void several_lsa_teams_unsaid(communicator& comm, bool wrong) {
  const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  const auto numbers = comm.allocate(sizeof(int), "numbers");
  const auto out = comm.allocate(sizeof(int), "out");
  launch(sum_of_ranks, {.block = 32}, device.get(), numbers.pointer<int>(), out.pointer<int>().local());
  finish(device);
  expect(comm, out.pointer<int>().local(), 1, [&](int) { return wrong ? 10 : comm.rank() < 2 ? 3 : 7; });
}

void environment_is_read(communicator& comm, bool) { comm.barrier(); }

std::vector<mistake> host_programs() {
  return {{"missing_synchronize", missing_synchronize},
          {"unseen_failure", unseen_failure},
          {"lost_addition", lost_addition, 1},
          {"launch_on_one_rank_less", launch_on_one_rank_less},
          {"destroyed_device_comm", destroyed_device_comm},
          {"used_after_destruction", used_after_destruction},
          {"exception_on_one_rank", exception_on_one_rank},
          {"call_on_one_rank", call_on_one_rank},
          {"leaked_window", leaked_window},
          {"several_lsa_teams", several_lsa_teams, 4, 2},
          {"several_lsa_teams_unsaid", several_lsa_teams_unsaid, 4, 2},
          {"misspelt_variable", environment_is_read, 3, 0, "DEVCOMM_TIMOUT", "5"},
          {"wrong_value", environment_is_read, 3, 0, "DEVCOMM_TIMEOUT", "ten"}};
}

}  // namespace
}  // namespace mistakes
