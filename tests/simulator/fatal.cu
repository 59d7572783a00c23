/// Mistakes that end the program, with a message: `fatal NAME`.
#include <cuda_runtime.h>
#include <devcomm/launch.hpp>

#include <cstdio>
#include <cstring>

extern __shared__ char dynamic_chars[];
__global__ void write_shared(int place) { dynamic_chars[place] = 1; }

namespace {

/// A poll that nobody sees: the simulation cannot go on.
__global__ void volatile_spin(const volatile int* flag) {
  while (*flag == 0) {
  }
}

__device__ __noinline__ int deep(int levels) {
  volatile char frame[1024];
  frame[levels % 1024] = static_cast<char>(levels);
  if (levels == 0) {
    __syncthreads();
    return frame[0];
  }
  return deep(levels - 1) + frame[levels % 1024];
}

/// Uses more stack than a thread has; thread 8, so that there is memory below.
__global__ void deep_recursion(int* out, int levels) { *out = threadIdx.x == 8 ? deep(levels) : deep(0); }

__global__ void write_one(char* memory, int place) { memory[place] = 1; }

int run(const char* name) {
  int* memory = nullptr;
  devcomm::check_cuda(cudaMalloc(&memory, 64), "cudaMalloc");
  devcomm::check_cuda(cudaMemset(memory, 0, 64), "cudaMemset");
  if (std::strcmp(name, "volatile_spin") == 0) {
    devcomm::launch(volatile_spin, {}, memory);
  } else if (std::strcmp(name, "deep_recursion") == 0) {
    devcomm::launch(deep_recursion, {.block = 32}, memory, 80);
  } else if (std::strcmp(name, "device_overflow") == 0) {
    devcomm::launch(write_one, {}, reinterpret_cast<char*>(memory), 64);
  } else if (std::strcmp(name, "device_after_free") == 0) {
    devcomm::check_cuda(cudaFree(memory), "cudaFree");
    devcomm::launch(write_one, {}, reinterpret_cast<char*>(memory), 0);
  } else if (std::strcmp(name, "shared_overflow") == 0) {
    devcomm::launch(write_shared, {.shared_bytes = 1000}, 1000);
  } else {
    return 2;
  }
  devcomm::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::puts("came back");
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return count == 2 ? run(arguments[1]) : 2; }
