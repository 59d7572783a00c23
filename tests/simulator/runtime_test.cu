/// The calls of the CUDA runtime around a kernel.
#include "support.hpp"

#include <cooperative_groups.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

using namespace simulator_test;

namespace {

__global__ void write_value(int* p, int value) { *p = value; }
__global__ void exchange_value(int* p, int value) { atomicExch_system(p, value); }
__global__ void append(int* log, int value) {
  const int place = log[0]++;
  log[1 + place] = value;
}
__global__ void add_to_all(int* p, int n, int value) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) p[i] += value;
}
__global__ void double_all(const int* in, int* out, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) out[i] = 2 * in[i];
}
__global__ void write_cluster_ranks(unsigned* ranks) {
  const auto cluster = cooperative_groups::this_cluster();
  if (threadIdx.x == 0) ranks[blockIdx.x] = cluster.num_blocks() * 10 + cluster.block_rank();
}
__global__ void fails() { __trap(); }
__global__ void slow(int* done) {
  __nanosleep(1000);
  *done = 1;
}

struct stream_owner {
  cudaStream_t handle = nullptr;
  explicit stream_owner(unsigned flags = cudaStreamDefault) {
    REQUIRE(cudaStreamCreateWithFlags(&handle, flags) == cudaSuccess);
  }
  ~stream_owner() { cudaStreamDestroy(handle); }
  stream_owner(const stream_owner&) = delete;
  stream_owner& operator=(const stream_owner&) = delete;
};

struct event_owner {
  cudaEvent_t handle = nullptr;
  event_owner() { REQUIRE(cudaEventCreate(&handle) == cudaSuccess); }
  ~event_owner() { cudaEventDestroy(handle); }
  event_owner(const event_owner&) = delete;
  event_owner& operator=(const event_owner&) = delete;
};

}  // namespace

TEST_CASE("device memory starts as NaN and is limited") {
  float* p = nullptr;
  REQUIRE(cudaMalloc(&p, 1000 * sizeof(float)) == cudaSuccess);
  float host[1000] = {};
  REQUIRE(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess);
  for (const float f : host) CHECK(f != f);
  cudaPointerAttributes attributes{};
  REQUIRE(cudaPointerGetAttributes(&attributes, p + 5) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaFree(host) == cudaErrorInvalidValue);
  CHECK(cudaMalloc(&p, std::size_t{1} << 60) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("copies and fills go where they say") {
  int* device = nullptr;
  REQUIRE(cudaMalloc(&device, 64 * sizeof(int)) == cudaSuccess);
  REQUIRE(cudaMemset(device, 0x01, 64 * sizeof(int)) == cudaSuccess);
  int host[64];
  for (int& h : host) h = 7;
  REQUIRE(cudaMemcpy(device + 32, host, 32 * sizeof(int), cudaMemcpyHostToDevice) == cudaSuccess);
  REQUIRE(cudaMemcpy(host, device, sizeof host, cudaMemcpyDefault) == cudaSuccess);
  CHECK(host[0] == 0x01010101);
  CHECK(host[31] == 0x01010101);
  CHECK(host[32] == 7);
  CHECK(cudaMemcpy(device, host, 4, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  // The source of an asynchronous copy from pageable memory may change at once.
  int value = 5;
  REQUIRE(cudaMemcpyAsync(device, &value, sizeof value, cudaMemcpyHostToDevice) == cudaSuccess);
  value = 6;
  REQUIRE(cudaMemcpy(host, device, sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(host[0] == 5);
  CHECK(cudaFree(device) == cudaSuccess);
}

TEST_CASE("a stream keeps its order, and takes turns with the legacy default stream") {
  const shared_array<int> log(64);
  const stream_owner a;
  const stream_owner b;
  for (int i = 0; i < 5; ++i) {
    devcomm::launch(append, {.stream = a.handle}, log.get(), i);
    devcomm::launch(append, {}, log.get(), 100 + i);
    devcomm::launch(append, {.stream = b.handle}, log.get(), 200 + i);
    devcomm::launch(append, {}, log.get(), 300 + i);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(log[0] == 20);
  for (int i = 0; i < 5; ++i) {
    CHECK(log[static_cast<std::size_t>(1 + 4 * i)] == i);
    CHECK(log[static_cast<std::size_t>(2 + 4 * i)] == 100 + i);
    CHECK(log[static_cast<std::size_t>(3 + 4 * i)] == 200 + i);
    CHECK(log[static_cast<std::size_t>(4 + 4 * i)] == 300 + i);
  }
}

TEST_CASE("an event makes a stream wait for another, and measures simulated time") {
  const shared_array<int> cells(4);
  const stream_owner a(cudaStreamNonBlocking);
  const stream_owner b(cudaStreamNonBlocking);
  const event_owner start;
  const event_owner end;
  REQUIRE(cudaEventRecord(start.handle, a.handle) == cudaSuccess);
  devcomm::launch(slow, {.stream = a.handle}, cells.get());
  REQUIRE(cudaEventRecord(end.handle, a.handle) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(b.handle, end.handle) == cudaSuccess);
  devcomm::launch(double_all, {.stream = b.handle}, cells.get(), cells.get() + 1, 1);
  REQUIRE(cudaStreamSynchronize(b.handle) == cudaSuccess);
  CHECK(cells[1] == 2);
  REQUIRE(cudaEventSynchronize(end.handle) == cudaSuccess);
  float milliseconds = 0;
  REQUIRE(cudaEventElapsedTime(&milliseconds, start.handle, end.handle) == cudaSuccess);
  CHECK(milliseconds >= 0.001f);
  CHECK(milliseconds < 1.0f);
}

TEST_CASE("a query answers while work is left, and lets it go on") {
  const shared_array<int> done(1);
  const stream_owner s;
  devcomm::launch(slow, {.stream = s.handle}, done.get());
  int queries = 0;
  while (cudaStreamQuery(s.handle) == cudaErrorNotReady) ++queries;
  CHECK(cudaStreamQuery(s.handle) == cudaSuccess);
  CHECK(done[0] == 1);
  CHECK(queries < 1000);
}

TEST_CASE("work runs in the end though no host thread waits for it") {
  const shared_array<int> done(1);
  devcomm::simulator::set_background_start(std::chrono::milliseconds(20));
  devcomm::launch(exchange_value, {}, done.get(), 3);
  for (int i = 0; i < 500 && __atomic_load_n(&done[0], __ATOMIC_ACQUIRE) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(done[0] == 3);
  devcomm::simulator::set_background_start(std::chrono::milliseconds(500));
}

TEST_CASE("a process that stands still is not taken for one that does not wait") {
  const shared_array<int> done(1);
  devcomm::launch(exchange_value, {}, done.get(), 3);
  const std::string wake = "(sleep 0.8; kill -CONT " + std::to_string(getpid()) + ") &";
  REQUIRE(std::system(wake.c_str()) == 0);
  REQUIRE(std::raise(SIGSTOP) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(__atomic_load_n(&done[0], __ATOMIC_ACQUIRE) == 0);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(done[0] == 3);
}

TEST_CASE("host functions run in stream order") {
  const shared_array<int> cells(2);
  const stream_owner s;
  devcomm::launch(write_value, {.stream = s.handle}, cells.get(), 20);
  REQUIRE(cudaLaunchHostFunc(
              s.handle, [](void* p) { static_cast<int*>(p)[1] = static_cast<int*>(p)[0] + 1; }, cells.get()) ==
          cudaSuccess);
  devcomm::launch(add_to_all, {.stream = s.handle}, cells.get(), 2, 100);
  REQUIRE(cudaStreamSynchronize(s.handle) == cudaSuccess);
  CHECK(cells[0] == 120);
  CHECK(cells[1] == 121);
}

TEST_CASE("a captured graph does nothing until launched, and the same at each replay") {
  const shared_array<int> cells(64);
  const stream_owner s;
  const stream_owner side;
  const event_owner fork;
  const event_owner join;
  REQUIRE(cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeGlobal) == cudaSuccess);
  devcomm::launch(add_to_all, {.block = 32, .stream = s.handle}, cells.get(), 32, 1);
  REQUIRE(cudaEventRecord(fork.handle, s.handle) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(side.handle, fork.handle) == cudaSuccess);
  devcomm::launch(double_all, {.block = 32, .stream = side.handle}, cells.get(), cells.get() + 32, 16);
  REQUIRE(cudaEventRecord(join.handle, side.handle) == cudaSuccess);
  devcomm::launch(double_all, {.block = 32, .stream = s.handle}, cells.get() + 16, cells.get() + 48, 16);
  REQUIRE(cudaStreamWaitEvent(s.handle, join.handle) == cudaSuccess);
  CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(s.handle, &graph) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cells[0] == 0);
  std::size_t nodes = 0;
  REQUIRE(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
  CHECK(nodes == 3);
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  for (int replay = 1; replay <= 4; ++replay) {
    REQUIRE(cudaGraphLaunch(exec, s.handle) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s.handle) == cudaSuccess);
    for (std::size_t i = 0; i < 32; ++i) {
      CHECK(cells[i] == replay);
      CHECK(cells[32 + i] == 2 * replay);
    }
  }
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
}

TEST_CASE("a capture refuses what cannot be captured") {
  const stream_owner s;
  const stream_owner side;
  const event_owner fork;
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s.handle) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(s.handle, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);

  const shared_array<int> cells(1);
  REQUIRE(cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(cudaEventRecord(fork.handle, s.handle) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(side.handle, fork.handle) == cudaSuccess);
  devcomm::launch(write_value, {.stream = side.handle}, cells.get(), 1);
  CHECK(cudaStreamEndCapture(s.handle, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(cudaStreamEndCapture(s.handle, &graph) == cudaErrorInvalidValue);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("a launch whose block is too large for its kernel says which kernel, and what to do") {
  std::string text;
  try {
    devcomm::launch(write_value, {.block = 2048}, nullptr, 1);
  } catch (const devcomm::cuda_error& error) {
    text = error.what();
  }
  INFO(text);
  CHECK(text.find("cudaErrorInvalidConfiguration") != std::string::npos);
  CHECK(text.find("kernel (anonymous namespace)::write_value(int*, int) takes 32 registers a thread") !=
        std::string::npos);
  CHECK(text.find("at most 1024 threads, and this launch asks for 2048; launch smaller blocks") != std::string::npos);
}

TEST_CASE("a failed launch breaks its device until the failure has been seen") {
  const shared_array<int> cells(2);
  const stream_owner s;
  const stream_owner other(cudaStreamNonBlocking);
  devcomm::launch(fails, {.stream = s.handle});
  devcomm::launch(write_value, {.stream = s.handle}, cells.get(), 1);
  devcomm::launch(write_value, {.stream = other.handle}, cells.get() + 1, 2);
  CHECK(cudaStreamSynchronize(s.handle) == cudaErrorAssert);
  CHECK(cudaStreamSynchronize(other.handle) == cudaErrorAssert);
  CHECK(cells[0] == 0);
  CHECK(cells[1] == 2);

  // As on GPUs, every call fails from here on.
  CHECK(cudaGetLastError() == cudaErrorAssert);
  CHECK(cudaGetLastError() == cudaErrorAssert);
  CHECK(cudaStreamSynchronize(s.handle) == cudaErrorAssert);
  CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
  CHECK_THROWS_AS(devcomm::launch(write_value, {.stream = s.handle}, cells.get(), 4), devcomm::cuda_error);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaErrorAssert);
  CHECK(memory == nullptr);
  CHECK(cudaMemset(cells.get(), 0, 4) == cudaErrorAssert);
  int copy = 0;
  CHECK(cudaMemcpy(&copy, cells.get(), 4, cudaMemcpyDefault) == cudaErrorAssert);
  cudaStream_t refused = nullptr;
  CHECK(cudaStreamCreate(&refused) == cudaErrorAssert);
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreate(&event) == cudaErrorAssert);
  CHECK(cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeGlobal) == cudaErrorAssert);
  CHECK(cells[1] == 2);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);

  CHECK(contains(devcomm::simulator::last_failure(), "::fails(): __trap"));
  CHECK(cudaStreamSynchronize(s.handle) == cudaSuccess);
  CHECK(run(write_value, {.stream = s.handle}, cells.get(), 4) == cudaSuccess);
  CHECK(cells[0] == 4);
  static_cast<void>(cudaGetLastError());
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a reset makes a device usable after a failure") {
  const shared_array<int> cells(1);
  devcomm::launch(fails, {});
  CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
  CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
  CHECK(cudaDeviceReset() == cudaSuccess);
  CHECK(run(write_value, {}, cells.get(), 4) == cudaSuccess);
  CHECK(cells[0] == 4);
  devcomm::launch(fails, {});
  CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
  CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
  devcomm::simulator::clear_failure();
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("once a failure is seen, a stream that nobody has synchronized runs what it is given") {
  const shared_array<int> cells(1);
  cells[0] = 0;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  devcomm::launch(fails, {.stream = stream});
  CHECK(cudaFree(memory) == cudaSuccess);  // waits, and does not tell the error
  devcomm::simulator::clear_failure();
  devcomm::launch(write_value, {.stream = stream}, cells.get(), 4);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cells[0] == 4);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("launches that a GPU refuses are refused") {
  const auto refused = [](const devcomm::launch_config& config) {
    CHECK_THROWS_AS(devcomm::launch(fails, config), devcomm::cuda_error);
    return cudaGetLastError();
  };
  CHECK(refused({.grid = 0}) == cudaErrorInvalidConfiguration);
  CHECK(refused({.block = 1025}) == cudaErrorInvalidConfiguration);
  CHECK(refused({.block = dim3(1, 1, 65)}) == cudaErrorInvalidConfiguration);
  CHECK(refused({.grid = dim3(1, 65536)}) == cudaErrorInvalidConfiguration);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  const stream_owner of_device_1;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(refused({.stream = of_device_1.handle}) == cudaErrorInvalidResourceHandle);
  CHECK(cudaSetDevice(1000) == cudaErrorInvalidDevice);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("kernels start by untyped arguments too") {
  const shared_array<int> cells(1);
  int* p = cells.get();
  int value = 9;
  void* arguments[] = {&p, &value};
  REQUIRE(cudaLaunchKernel(write_value, dim3(1), dim3(1), arguments) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cells[0] == 9);
}

TEST_CASE("occupancy follows threads and shared memory") {
  int blocks = 0;
  REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fails, 1024, 0) == cudaSuccess);
  CHECK(blocks == 2);
  REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fails, 32, 0) == cudaSuccess);
  CHECK(blocks == 32);
  REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fails, 32, 49152) == cudaSuccess);
  CHECK(blocks == 4);
}

TEST_CASE("errors have CUDA's names") {
  CHECK(std::strcmp(cudaGetErrorName(cudaErrorLaunchTimeout), "cudaErrorLaunchTimeout") == 0);
  CHECK(std::strcmp(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument") == 0);
}

TEST_CASE("devcomm::launch makes clusters along x, and refuses a grid that is no multiple of them") {
  const shared_array<unsigned> ranks(6);
  REQUIRE(run(write_cluster_ranks, {.grid = 6, .block = 32, .cluster = 2}, ranks.get()) == cudaSuccess);
  for (unsigned b = 0; b < 6; ++b) CHECK(ranks[b] == 20 + b % 2);
  REQUIRE(run(write_cluster_ranks, {.grid = 6, .block = 32}, ranks.get()) == cudaSuccess);
  for (unsigned b = 0; b < 6; ++b) CHECK(ranks[b] == 10);
  CHECK_THROWS_AS(run(write_cluster_ranks, {.grid = 5, .block = 32, .cluster = 2}, ranks.get()), devcomm::cuda_error);
  static_cast<void>(cudaGetLastError());
}
