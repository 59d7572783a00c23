// The sum of all ranks' numbers, with shared memory of each kind that the build must get right. With the
// argument `relaxed` a barrier's order is too weak, which a race detector must see.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <cstdio>
#include <stdexcept>

using namespace devcomm;

template <memory_order Order>
__global__ void sum_numbers(device_comm comm, sym_ptr<int> number, int* result) {
  extern __shared__ int dynamic_numbers[];
  __shared__ int fixed_sum;
  lsa::barrier_session barrier{block{}, comm, 0};
  if (threadIdx.x == 40) *number.local() = comm.rank + 1;
  barrier.sync(Order);
  if (threadIdx.x < static_cast<unsigned>(comm.size)) {
    dynamic_numbers[threadIdx.x] = *number.lsa(static_cast<int>(threadIdx.x));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    fixed_sum = 0;
    for (int i = 0; i < comm.size; ++i) fixed_sum += dynamic_numbers[i];
  }
  __syncthreads();
  if (threadIdx.x == 32) *result = fixed_sum;
  barrier.sync();
}

int main(int arguments, char**) {
  const auto kernel = arguments > 1 ? sum_numbers<memory_order::relaxed> : sum_numbers<memory_order::acq_rel>;
  host::run_ranks({}, [kernel](host::communicator& comm) {
    const host::device_communicator device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    const host::symmetric_memory memory = comm.allocate(2 * sizeof(int));
    const sym_ptr<int> number = memory.pointer<int>();
    const std::size_t shared_bytes = static_cast<std::size_t>(comm.size()) * sizeof(int);
    launch(kernel, {dim3(1), dim3(64), shared_bytes}, device_comm.get(), number, number.local() + 1);
    check_cuda(cudaDeviceSynchronize(), "sum");

    int result = 0;
    check_cuda(cudaMemcpy(&result, number.local() + 1, sizeof result, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (result != comm.size() * (comm.size() + 1) / 2) throw std::runtime_error("the sum is wrong");
    if (comm.rank() == 0) std::printf("%d ranks: sum %d\n", comm.size(), result);
  });
}
