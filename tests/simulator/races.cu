/// Kernels with and without a race, for ThreadSanitizer: `races NAME` runs one under the seed of the
/// environment.
#include <cuda_runtime.h>
#include <devcomm/arch/arch.cuh>
#include <devcomm/launch.hpp>

#include <cooperative_groups.h>

#include <cstdio>
#include <cstring>

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;

namespace {

/// One block hands data to another by a flag.
template <memory_order Release, memory_order Acquire>
__global__ void hand_over(int* data, unsigned* flag, int* out) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = static_cast<int>(threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) arch::store<Release, scope::device>(flag, 1u);
  } else {
    if (threadIdx.x == 0) {
      while (arch::load<Acquire, scope::device>(flag) == 0) {
      }
    }
    __syncthreads();
    out[threadIdx.x] = data[(threadIdx.x + 1) % blockDim.x];
  }
}

template <bool Sync>
__global__ void neighbors(int* out) {
  __shared__ int slots[64];
  slots[threadIdx.x] = 1;
  if (Sync) __syncthreads();
  out[threadIdx.x] = slots[(threadIdx.x + 1) % 64];
}

/// A shuffle orders no memory; __syncwarp does.
template <bool Sync>
__global__ void lanes(int* data, int* out) {
  data[threadIdx.x] = 1;
  if (Sync) {
    __syncwarp();
  } else {
    __shfl_sync(0xffffffffu, 1, 0);
  }
  out[threadIdx.x] = data[(threadIdx.x + 1) % 32];
}

template <bool Named>
__global__ void named(int* data, int* out) {
  data[threadIdx.x] = 1;
  arch::sync_named(Named ? 1u : 1u + threadIdx.x / 32, Named ? 64u : 32u);
  out[threadIdx.x] = data[(threadIdx.x + 32) % 64];
}

template <bool Meet>
__global__ void across_grid(int* data, int* out) {
  const auto grid = cooperative_groups::this_grid();
  data[grid.thread_rank()] = 1;
  if (Meet) grid.sync();
  out[grid.thread_rank()] = data[(grid.thread_rank() + 40) % grid.size()];
}

__global__ void fill(int* data, int value) { data[threadIdx.x] = value; }

struct memory {
  int* data = nullptr;
  int* out = nullptr;
  unsigned* flag = nullptr;
  memory() {
    devcomm::check_cuda(cudaMalloc(&data, 1024), "cudaMalloc");
    devcomm::check_cuda(cudaMalloc(&out, 1024), "cudaMalloc");
    devcomm::check_cuda(cudaMalloc(&flag, 4), "cudaMalloc");
    devcomm::check_cuda(cudaMemset(flag, 0, 4), "cudaMemset");
  }
};

/// Two streams write the same memory; ordered by an event, or not.
void two_streams(memory& m, bool ordered) {
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  cudaEvent_t event = nullptr;
  devcomm::check_cuda(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  devcomm::check_cuda(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  devcomm::check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  devcomm::launch(fill, {.block = 32, .stream = a}, m.data, 1);
  devcomm::check_cuda(cudaEventRecord(event, a), "cudaEventRecord");
  if (ordered) devcomm::check_cuda(cudaStreamWaitEvent(b, event), "cudaStreamWaitEvent");
  devcomm::launch(fill, {.block = 32, .stream = b}, m.data, 2);
}

/// The host reads pinned memory that a kernel writes; after waiting for it, or for another stream only.
void host_reads(bool waits) {
  int* pinned = nullptr;
  cudaStream_t a = nullptr;
  devcomm::check_cuda(cudaMallocHost(&pinned, 128), "cudaMallocHost");
  devcomm::check_cuda(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  devcomm::launch(fill, {.block = 32, .stream = a}, pinned, 1);
  if (waits) {
    devcomm::check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
  } else {
    devcomm::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    while (cudaStreamQuery(nullptr) != cudaSuccess) {
    }
  }
  pinned[3] = 5;
}

int run(const char* name) {
  memory m;
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  constexpr auto relaxed = memory_order::relaxed;
  constexpr auto acquire = memory_order::acquire;
  constexpr auto release = memory_order::release;
  const devcomm::launch_config two{.grid = 2, .block = 64};
  if (is("right_flag")) {
    devcomm::launch(hand_over<release, acquire>, two, m.data, m.flag, m.out);
  } else if (is("relaxed_store")) {
    devcomm::launch(hand_over<relaxed, acquire>, two, m.data, m.flag, m.out);
  } else if (is("relaxed_load")) {
    devcomm::launch(hand_over<release, relaxed>, two, m.data, m.flag, m.out);
  } else if (is("right_syncthreads")) {
    devcomm::launch(neighbors<true>, {.block = 64}, m.out);
  } else if (is("missing_syncthreads")) {
    devcomm::launch(neighbors<false>, {.block = 64}, m.out);
  } else if (is("right_syncwarp")) {
    devcomm::launch(lanes<true>, {.block = 32}, m.data, m.out);
  } else if (is("shuffle_as_sync")) {
    devcomm::launch(lanes<false>, {.block = 32}, m.data, m.out);
  } else if (is("right_named_barrier")) {
    devcomm::launch(named<true>, {.block = 64}, m.data, m.out);
  } else if (is("different_named_barriers")) {
    devcomm::launch(named<false>, {.block = 64}, m.data, m.out);
  } else if (is("right_grid_sync")) {
    devcomm::launch(across_grid<true>, {.grid = 2, .block = 64, .cooperative = true}, m.data, m.out);
  } else if (is("missing_grid_sync")) {
    devcomm::launch(across_grid<false>, {.grid = 2, .block = 64, .cooperative = true}, m.data, m.out);
  } else if (is("right_event")) {
    two_streams(m, true);
  } else if (is("missing_event")) {
    two_streams(m, false);
  } else if (is("right_stream_order")) {
    devcomm::launch(fill, {.block = 32}, m.data, 1);
    devcomm::launch(fill, {.block = 32}, m.data, 2);
  } else if (is("right_host_wait")) {
    host_reads(true);
  } else if (is("missing_host_wait")) {
    host_reads(false);
  } else {
    std::fprintf(stderr, "no kernel is called %s\n", name);
    return 2;
  }
  devcomm::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return count == 2 ? run(arguments[1]) : 2; }
