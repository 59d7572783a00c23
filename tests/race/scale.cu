/// What simulation costs: `scale [BLOCKS THREADS [COUNT]]` lets 8 GPUs with so many blocks of so many threads, 4 of 128
/// unless given, sum COUNT floats, 65,536 unless given, by a one-shot all-reduce. Prints time and memory.
#include <devcomm/arch/arch.cuh>
#include <devcomm/launch.hpp>
#include <devcomm/simulator/simulator.hpp>

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;

namespace {

constexpr unsigned gpus = 8;

struct all_gpus {
  float* in[gpus];
  unsigned* flags[gpus];  ///< two for each block and peer
};

/// With the same block of all GPUs; `which` of a block's flags.
__device__ void barrier(const all_gpus& all, unsigned gpu, unsigned which) {
  __syncthreads();
  if (threadIdx.x < gpus) {
    const unsigned first = (which * gridDim.x + blockIdx.x) * gpus;
    arch::store<memory_order::release, scope::system>(all.flags[threadIdx.x] + first + gpu, 1u);
    while (arch::load<memory_order::acquire, scope::system>(all.flags[gpu] + first + threadIdx.x) == 0) {
    }
  }
  __syncthreads();
}

__global__ void one_shot(all_gpus all, float* out, unsigned gpu, unsigned count) {
  barrier(all, gpu, 0);
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (const float* const in : all.in) sum += in[i];
    out[i] = sum;
  }
  barrier(all, gpu, 1);
}

template <class T>
T* allocate(unsigned count, T value) {
  T* memory = nullptr;
  const std::vector<T> values(count, value);
  devcomm::check_cuda(cudaMalloc(reinterpret_cast<void**>(&memory), count * sizeof(T)), "cudaMalloc");
  devcomm::check_cuda(cudaMemcpy(memory, values.data(), count * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
  return memory;
}

unsigned argument(int count, char** arguments, int index, unsigned otherwise) {
  return count > index ? static_cast<unsigned>(std::atoi(arguments[index])) : otherwise;
}

}  // namespace

int main(int given, char** arguments) {
  const unsigned blocks = argument(given, arguments, 1, 4);
  const unsigned threads = argument(given, arguments, 2, 128);
  const unsigned count = argument(given, arguments, 3, 65536);
  all_gpus all{};
  float* out[gpus] = {};
  for (unsigned gpu = 0; gpu < gpus; ++gpu) {
    devcomm::check_cuda(cudaSetDevice(static_cast<int>(gpu)), "cudaSetDevice");
    all.in[gpu] = allocate(count, static_cast<float>(gpu));
    all.flags[gpu] = allocate(2 * blocks * gpus, 0u);
    out[gpu] = allocate(count, 0.0f);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned gpu = 0; gpu < gpus; ++gpu) {
    devcomm::check_cuda(cudaSetDevice(static_cast<int>(gpu)), "cudaSetDevice");
    devcomm::launch(one_shot, {.grid = blocks, .block = threads}, all, out[gpu], gpu, count);
  }
  unsigned wrong = 0;
  for (unsigned gpu = 0; gpu < gpus; ++gpu) {
    devcomm::check_cuda(cudaSetDevice(static_cast<int>(gpu)), "cudaSetDevice");
    devcomm::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (const float* const result : out) {
    std::vector<float> values(count);
    devcomm::check_cuda(cudaMemcpy(values.data(), result, count * sizeof(float), cudaMemcpyDefault), "cudaMemcpy");
    for (const float value : values) wrong += value != gpus * (gpus - 1) / 2.0f ? 1 : 0;
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf("8 x %u x %u threads: %.2f s, %ld MB\n", blocks, threads, seconds.count(), used.ru_maxrss / 1024);
  return wrong == 0 && devcomm::simulator::race_reports() == 0 ? 0 : 1;
}
