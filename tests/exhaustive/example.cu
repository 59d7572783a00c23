/// The example of docs/testing_kernels.md.
#include <cuda_runtime.h>
#include <devcomm/launch.hpp>
#include <devcomm/simulator/explore.hpp>

#include <cstdio>
#include <stdexcept>

__global__ void add_one(unsigned* sum) { atomicAdd(sum, 1u); }

int main() {
  unsigned* sum = nullptr;
  devcomm::check_cuda(cudaMallocHost(&sum, sizeof *sum), "cudaMallocHost");
  const auto result = devcomm::simulator::explore({}, [&] {
    *sum = 0;  // the same state each time
    devcomm::launch(add_one, {.block = 3}, sum);
    devcomm::check_cuda(cudaDeviceSynchronize(), "add_one");
    if (*sum != 3) throw std::runtime_error("an addition was lost");
  });
  devcomm::check_cuda(cudaFreeHost(sum), "cudaFreeHost");
  std::printf("%llu executions\n%s\n", static_cast<unsigned long long>(result.executions), result.failure.c_str());
  return result.complete ? 0 : 1;
}
