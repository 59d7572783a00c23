#include <cstdio>

#include "two_units.cuh"

int main() {
  using devcomm::check_cuda;
  int* sums = nullptr;
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&sums), 64 * sizeof(int)), "cudaMalloc");
  check_cuda(cudaMemset(sums, 0, 64 * sizeof(int)), "cudaMemset");
  two_units::launch_from_a(sums);
  two_units::launch_from_b(sums);
  int host[64];
  check_cuda(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check_cuda(cudaFree(sums), "cudaFree");
  for (const int sum : host) {
    if (sum != 7) {
      std::printf("a kernel of two translation units left %d where 3 + 4 was expected\n", sum);
      return 1;
    }
  }
#if defined(DEVCOMM_SIMULATOR)  // nvcc gives each unit a stub of its own for a kernel template
  if (two_units::meet_of_a() != two_units::meet_of_b()) {
    std::printf("one template gave two kernels\n");
    return 1;
  }
#endif
  return 0;
}
