/// Mistakes that end the program, with a message: `fatal NAME`.
#include <cuda_runtime.h>
#include <devcomm/devcomm.cuh>
#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/communicator.hpp>
#include <devcomm/simulator/simulator.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern __shared__ char dynamic_chars[];
__global__ void write_shared(int place) { dynamic_chars[place] = 1; }

namespace {

/// A poll that nobody answers, and that counts: not known to be one.
__global__ void volatile_spin(const volatile int* flag, unsigned* rounds) {
  unsigned round = 0;
  while (*flag == 0) ++round;
  *rounds = round;
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

__global__ void fails(const int* word) {
  if (*word == 0) __trap();
}

/// Programs that end well, and whose kernels nobody has looked at.
int run_unseen(const std::string& name, int* memory) {
  cudaStream_t stream = nullptr;
  devcomm::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  devcomm::launch(fails, {.stream = stream}, memory);
  if (name == "unfinished") return 0;
  if (name == "told") {  // and nobody looks
    static_cast<void>(cudaDeviceSynchronize());
    return 0;
  }
  if (name == "reset") {
    static_cast<void>(cudaDeviceSynchronize());
    return cudaDeviceReset() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
  }
  if (name == "cleared") {
    if (cudaStreamSynchronize(stream) != cudaErrorAssert) return 1;
    devcomm::simulator::clear_failure();
    return cudaStreamSynchronize(stream) == cudaSuccess ? 0 : 1;
  }
  devcomm::check_cuda(cudaFree(memory), "cudaFree");  // waits for the kernel, and does not tell its error
  if (name == "seen_text") return devcomm::simulator::last_failure().empty() ? 1 : 0;
  if (name == "destroyed") devcomm::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return name == "own_status" ? 3 : 0;
}

__global__ void meet(devcomm::device_comm comm) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, blockIdx.x};
  barrier.sync();
}

/// What a rank makes, without `run_ranks`.
struct rank_objects {
  explicit rank_objects(std::shared_ptr<devcomm::host::bootstrap> ranks)
      : comm(std::move(ranks), {.kernel_timeout = std::chrono::milliseconds(50)}),
        resources(comm.create_device_comm(comm.requirements().lsa_barriers(2))) {}

  devcomm::host::communicator comm;
  devcomm::host::device_communicator resources;
};

/// Rank 1 launches another grid than rank 0, or none, and the program goes on as if their kernels had been right.
void one_unseen_rank(const std::string& name, std::shared_ptr<devcomm::host::bootstrap> ranks) {
  auto made = std::make_unique<rank_objects>(std::move(ranks));
  const bool mismatch = name == "mismatch";
  if (name == "wait_aborted") {
    if (made->comm.rank() == 1) made->comm.abort();
    made->comm.barrier();  // so that the other rank's wait ends before its limit
  }
  if (made->comm.rank() == 0 || mismatch) {
    const unsigned grid = made->comm.rank() == 0 ? 1 : 2;
    devcomm::launch(meet, {.grid = grid, .stream = cudaStreamPerThread}, made->resources.get());
    devcomm::check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
  }
  made->comm.barrier();
  if (name == "wait_looked_at") static_cast<void>(made->resources.failures());
  if (name == "wait_left") static_cast<void>(made.release());  // never destroyed
}

int run_unseen_ranks(const std::string& name) {
  std::vector<std::thread> threads;
  for (auto& ranks : devcomm::host::thread_bootstraps(2)) {
    threads.emplace_back([&name, own = std::move(ranks)]() mutable { one_unseen_rank(name, std::move(own)); });
  }
  for (std::thread& each : threads) each.join();
  return 0;
}

int run(const char* name) {
  int* memory = nullptr;
  devcomm::check_cuda(cudaMalloc(&memory, 64), "cudaMalloc");
  devcomm::check_cuda(cudaMemset(memory, 0, 64), "cudaMemset");
  for (const char* const ranks : {"mismatch", "wait", "wait_left", "wait_looked_at", "wait_aborted"}) {
    if (std::string("unseen_") + ranks == name) return run_unseen_ranks(ranks);
  }
  if (std::strncmp(name, "unseen_", 7) == 0) return run_unseen(name + 7, memory);
  if (std::strcmp(name, "volatile_spin") == 0) {
    devcomm::launch(volatile_spin, {}, memory, reinterpret_cast<unsigned*>(memory + 1));
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
