#include "perf/lateness.hpp"

#include <devcomm/devcomm.cuh>

namespace perf {
namespace {

__global__ void spin_for(std::uint64_t nanoseconds) {
  const std::uint64_t begin = devcomm::arch::time_stamp();
  while (devcomm::arch::time_stamp() - begin < nanoseconds) {
  }
}

}  // namespace

void spin(std::uint64_t nanoseconds, cudaStream_t stream) {
  devcomm::launch(spin_for, {.grid = 1, .block = 1, .stream = stream}, nanoseconds);
}

}  // namespace perf
