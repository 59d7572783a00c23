// Mistakes that only the settings of devcomm_add_kernel_test find: `mistakes late` is no data race and shows as a wrong
// result with late stores alone, `mistakes heap` follows a pointer to the host's heap.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

using namespace devcomm;

/// A number and then a flag to the next rank. Both are atomic, so there is no race, and both are relaxed, so nothing
/// keeps the flag from arriving first.
__global__ void send_number(device_comm comm, lsa::signal_handle signals, std::uint64_t* result) {
  lsa::signal_session number{thread{}, comm, signals, 0};
  lsa::signal_session flag{thread{}, comm, signals, 1};
  const int next = (comm.lsa_rank() + 1) % comm.lsa_size;
  const int previous = (comm.lsa_rank() + comm.lsa_size - 1) % comm.lsa_size;
  number.store(next, 70, memory_order::relaxed);
  flag.store(next, 1, memory_order::relaxed);
  flag.wait(previous, lsa::at_least{1}, memory_order::relaxed);
  *result = number.load(memory_order::relaxed);
}

struct numbers {
  const int* data;
  int count;
};
__global__ void add_up(numbers given, int* sum) {
  for (int i = 0; i < given.count; ++i) *sum += given.data[i];
}

/// The value of a word of device memory.
template <class T>
T read(const T* word) {
  T value{};
  check_cuda(cudaDeviceSynchronize(), "kernel");
  check_cuda(cudaMemcpy(&value, word, sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return value;
}

void late(host::communicator& comm) {
  requirements needs = comm.requirements();
  const lsa::signal_handle signals = needs.add(lsa::signals{comm.lsa(), 2});
  const host::device_communicator device_comm = comm.create_device_comm(needs);
  const host::symmetric_memory result = comm.allocate(sizeof(std::uint64_t));
  launch(send_number, {}, device_comm.get(), signals, result.pointer<std::uint64_t>().local());
  if (read(result.pointer<std::uint64_t>().local()) != 70) throw std::runtime_error("the number is wrong");
  device_comm.check();
  comm.barrier();
}

void heap(host::communicator& comm) {
  const std::vector<int> ones(32, 1);
  const host::symmetric_memory sum = comm.allocate(sizeof(int));
  launch(add_up, {}, numbers{ones.data(), 32}, sum.pointer<int>().local());
  if (read(sum.pointer<int>().local()) != 32) throw std::runtime_error("the sum is wrong");
}

int main(int arguments, char** argument) {
  const bool is_heap = arguments > 1 && std::strcmp(argument[1], "heap") == 0;
  try {
    host::run_ranks({}, is_heap ? heap : late);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
