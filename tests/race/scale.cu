/// What race detection costs: `scale THREADS` lets 64 blocks' worth of simulated threads, 8 ranks of them,
/// hand data round by shared memory, by atomics and across the grid, without a race. Prints time and memory.
#include <cooperative_groups.h>
#include <devcomm/launch.hpp>
#include <devcomm/simulator/simulator.hpp>

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr unsigned threads_per_block = 128;
constexpr unsigned rounds = 3;

__global__ void hand_round(int* data, unsigned* counter, int* out) {
  __shared__ int slots[threads_per_block];
  const auto grid = cooperative_groups::this_grid();
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned all = gridDim.x * blockDim.x;
  int sum = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    data[me] = static_cast<int>(me + round);
    slots[threadIdx.x] = static_cast<int>(round);
    __syncthreads();
    sum += slots[(threadIdx.x + 1) % blockDim.x];
    __atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL);
    grid.sync();
    for (unsigned i = 1; i <= 8; ++i) sum += data[(me + i * 131) % all];
    grid.sync();
  }
  out[me] = sum;
}

}  // namespace

int main(int count, char** arguments) {
  const unsigned threads = count == 2 ? static_cast<unsigned>(std::atoi(arguments[1])) : 4096;
  const unsigned blocks = threads / threads_per_block;
  int* data = nullptr;
  int* out = nullptr;
  unsigned* counter = nullptr;
  devcomm::check_cuda(cudaMalloc(&data, threads * sizeof(int)), "cudaMalloc");
  devcomm::check_cuda(cudaMalloc(&out, threads * sizeof(int)), "cudaMalloc");
  devcomm::check_cuda(cudaMalloc(&counter, sizeof(unsigned)), "cudaMalloc");
  devcomm::check_cuda(cudaMemset(counter, 0, sizeof(unsigned)), "cudaMemset");
  const auto begin = std::chrono::steady_clock::now();
  devcomm::launch(hand_round, {.grid = blocks, .block = threads_per_block, .cooperative = true}, data, counter, out);
  devcomm::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf("%u threads: %.2f s, %ld MB\n", threads, seconds.count(), used.ru_maxrss / 1024);
  return devcomm::simulator::race_reports() == 0 ? 0 : 1;
}
