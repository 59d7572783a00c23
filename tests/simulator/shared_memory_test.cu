/// Static and dynamic shared memory; and local memory, where it is taken for global memory.
#include "support.hpp"

#include <devcomm/devcomm.cuh>

using namespace simulator_test;

extern __shared__ float dynamic_floats[];
extern __shared__ unsigned char dynamic_bytes[];

__global__ void reverse(float* out, int count) {
  const int i = static_cast<int>(threadIdx.x);
  dynamic_floats[i] = static_cast<float>(i) + 1000.0f * static_cast<float>(blockIdx.x);
  __syncthreads();
  out[static_cast<int>(blockIdx.x) * count + i] = dynamic_floats[count - 1 - i];
}

/// Two names for one array, as in CUDA.
__global__ void two_names(unsigned* out) {
  if (threadIdx.x == 0) dynamic_floats[0] = 1.0f;
  __syncthreads();
  if (threadIdx.x == 1) *out = static_cast<unsigned>(dynamic_bytes[3]) << 8 | dynamic_bytes[2];
}

__global__ void sum_of_fresh(unsigned* nan_count, int count) {
  unsigned nans = 0;
  for (int i = 0; i < count; ++i) nans += dynamic_floats[i] != dynamic_floats[i] ? 1u : 0u;
  *nan_count = nans;
}

__global__ void write_behind(int place) { dynamic_bytes[place] = 1; }

/// Counts what of its shared array is not NaN, then writes to it.
template <int N>
__global__ void count_numbers(int* out) {
  __shared__ float fresh[N];
  __shared__ double also[2];
  int numbers = 0;
  for (int i = 0; i < N; ++i) numbers += fresh[i] == fresh[i] ? 1 : 0;
  for (double& d : also) {
    numbers += d == d ? 1 : 0;
    d = 1.0;
  }
  for (float& f : fresh) f = 1.0f;
  out[blockIdx.x] = numbers;
}

template <int N>
__global__ void own_counter(int* out) {
  __shared__ int counter;
  __shared__ __align__(16) float pad[N];
  if (threadIdx.x == 0) counter = 0;
  __syncthreads();
  atomicAdd(&counter, 1);
  pad[threadIdx.x] = 1.0f;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = counter * static_cast<int>(pad[N - 1]);
}

enum class given { load, store, add, pack, words, dynamic_pack, registers };

/// Gives shared memory to what accesses global memory.
__global__ void give_shared(float* out, given what) {
  __shared__ __align__(16) float staged[64];
  __shared__ unsigned counter;
  const int i = static_cast<int>(threadIdx.x);
  staged[i] = 1.0f;
  if (i == 0) counter = 0;
  __syncthreads();
  out += 64 * static_cast<int>(blockIdx.x);
  using devcomm::memory_order;
  using devcomm::scope;
  namespace arch = devcomm::arch;
  if (what == given::load) out[0] = static_cast<float>(arch::load<memory_order::relaxed, scope::device>(&counter));
  if (what == given::store) arch::store<memory_order::relaxed, scope::device>(&counter, 1u);
  if (what == given::add) arch::fetch_add<memory_order::relaxed, scope::device>(&counter, 1u);
  if (what == given::pack) devcomm::copy(devcomm::block{}, out, static_cast<const float*>(staged), 64);
  if (what == given::words)
    devcomm::copy(devcomm::block{}, reinterpret_cast<short*>(out) + 2, reinterpret_cast<const short*>(staged), 124);
  if (what == given::dynamic_pack) devcomm::copy(devcomm::block{}, dynamic_floats, static_cast<const float*>(out), 64);
  if (what == given::registers) out[i] = staged[63 - i];
}

TEST_CASE("shared memory given to what accesses global memory is misuse, as it faults on a GPU") {
  const shared_array<float> out(128);
  for (const given what :
       {given::load, given::store, given::add, given::pack, given::words, given::dynamic_pack, given::registers}) {
    CAPTURE(static_cast<int>(what));
    const devcomm::launch_config config{.grid = 2, .block = 64, .shared_bytes = 64 * sizeof(float)};
    const cudaError_t outcome = run(give_shared, config, out.get(), what);
    if (what == given::registers) {
      CHECK(outcome == cudaSuccess);
      continue;
    }
    CHECK(outcome != cudaSuccess);
    CHECK(contains(devcomm::simulator::last_failure(), "shared memory was given to a function that accesses global"));
  }
}

/// Gives a local variable to what accesses global memory, or takes its elements one by one.
__global__ void give_local(float* all, given what) {
  float* const out = all + std::size_t{8} * (blockIdx.x * blockDim.x + threadIdx.x);
  __align__(16) float mine[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  auto* const first = reinterpret_cast<unsigned*>(mine);
  using devcomm::memory_order;
  using devcomm::scope;
  namespace arch = devcomm::arch;
  if (what == given::load) out[0] = static_cast<float>(arch::load<memory_order::relaxed, scope::device>(first));
  if (what == given::store) arch::store<memory_order::relaxed, scope::device>(first, 1u);
  if (what == given::add) arch::fetch_add<memory_order::relaxed, scope::device>(first, 1u);
  if (what == given::pack) devcomm::copy(devcomm::thread{}, mine, static_cast<const float*>(out), 8);
  if (what == given::registers) devcomm::copy(devcomm::thread{}, mine, static_cast<const float*>(out), 3);
  for (int i = 0; i < 8; ++i) out[i] = mine[i];
}

TEST_CASE("a local variable given to what accesses global memory is misuse, as it faults on a GPU") {
  const shared_array<float> out(std::size_t{8} * 2 * 64);
  for (const given what : {given::load, given::store, given::add, given::pack, given::registers}) {
    CAPTURE(static_cast<int>(what));
    const cudaError_t outcome = run(give_local, {.grid = 2, .block = 64}, out.get(), what);
    if (what == given::registers) {
      CHECK(outcome == cudaSuccess);
      continue;
    }
    CHECK(outcome != cudaSuccess);
    CHECK(contains(devcomm::simulator::last_failure(), "a local variable of a thread was given to a function that"));
  }
}

TEST_CASE("blocks have dynamic shared memory of their own") {
  const shared_array<float> out(4 * 64);
  REQUIRE(run(reverse, {.grid = 4, .block = 64, .shared_bytes = 64 * sizeof(float)}, out.get(), 64) == cudaSuccess);
  for (int b = 0; b < 4; ++b) {
    for (int i = 0; i < 64; ++i) {
      CHECK(out[static_cast<std::size_t>(b * 64 + i)] == static_cast<float>(63 - i) + 1000.0f * static_cast<float>(b));
    }
  }
}

TEST_CASE("all names of dynamic shared memory are one array") {
  const shared_array<unsigned> out(1);
  REQUIRE(run(two_names, {.block = 32, .shared_bytes = 64}, out.get()) == cudaSuccess);
  CHECK(out[0] == 0x3f80u);
}

TEST_CASE("fresh dynamic shared memory is NaN, in every block") {
  const shared_array<unsigned> out(1);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(run(sum_of_fresh, {.shared_bytes = 400}, out.get(), 100) == cudaSuccess);
    CHECK(out[0] == 100u);
  }
}

TEST_CASE("fresh static shared memory is NaN, in every block") {
  const shared_array<int> out(40);
  for (std::size_t i = 0; i < 40; ++i) out[i] = 1;
  REQUIRE(run(count_numbers<17>, {.grid = 40}, out.get()) == cudaSuccess);
  for (std::size_t i = 0; i < 40; ++i) CHECK(out[i] == 0);
}

TEST_CASE("blocks have static shared memory of their own") {
  const shared_array<int> out(5);
  REQUIRE(run(own_counter<96>, {.grid = 5, .block = 96}, out.get()) == cudaSuccess);
  for (std::size_t i = 0; i < 5; ++i) CHECK(out[i] == 96);
}

TEST_CASE("dynamic shared memory is limited as on a GPU") {
  int index = 0;
  void* arguments[] = {&index};
  CHECK(cudaLaunchKernel(write_behind, dim3(1), dim3(1), arguments, 49153, cudaStream_t{}) == cudaErrorInvalidValue);
  REQUIRE(cudaGetLastError() == cudaErrorInvalidValue);
  REQUIRE(cudaFuncSetAttribute(write_behind, cudaFuncAttributeMaxDynamicSharedMemorySize, 49153) == cudaSuccess);
  CHECK(cudaLaunchKernel(write_behind, dim3(1), dim3(1), arguments, 49153, cudaStream_t{}) == cudaSuccess);
  CHECK(cudaFuncSetAttribute(write_behind, cudaFuncAttributeMaxDynamicSharedMemorySize, 232449) ==
        cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("devcomm::launch asks for the shared memory that a launch has") {
  CHECK(run(write_behind, {.shared_bytes = 232448}, 232447) == cudaSuccess);
  CHECK_THROWS_AS(run(write_behind, {.shared_bytes = 232449}, 0), devcomm::cuda_error);
  static_cast<void>(cudaGetLastError());
}

#if !defined(SIMULATOR_TEST_UNDER_ADDRESS_SANITIZER)  // which ends the program at the write itself
TEST_CASE("a write behind dynamic shared memory fails the launch") {
  CHECK(run(write_behind, {.shared_bytes = 100}, 100) == cudaErrorLaunchFailure);
  CHECK(contains(devcomm::simulator::last_failure(), "wrote behind its 100 bytes of dynamic shared memory"));
  devcomm::simulator::clear_races();  // the race detector has seen it, too
}
#endif
