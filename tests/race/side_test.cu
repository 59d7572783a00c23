/// Memory of the wrong side: what kernels read of the host's heap, and the host of device memory.
/// DEVCOMM_SIM_CHECK_SIDES is 1 here.
#include <devcomm/arch/arch.cuh>

#include "support.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace sim = devcomm::simulator;
using simulator_test::contains;

namespace {

struct view {
  int* data;
  unsigned count;
};
__global__ void add_one(view numbers) {
  if (threadIdx.x < numbers.count) numbers.data[threadIdx.x] += 1;
}
__global__ void count_in(view numbers) { atomicAdd(numbers.data, 1); }
__global__ void poll_once(view numbers) {
  using namespace devcomm;
  static_cast<void>(arch::load<memory_order::relaxed, scope::system>(numbers.data + 1));
}
__global__ void look_at(view numbers, int* out) {
  if (numbers.data != nullptr && threadIdx.x == 0) *out = 1;
}
/// Arguments of many kinds, a stack, shared memory and the device's own heap: nothing of the host's.
__global__ void stay_at_home(view numbers, std::uint64_t a, double b, int* out) {
  __shared__ int shared[32];
  int local[32];
  for (int i = 0; i < 32; ++i) local[i] = i + static_cast<int>(a) + static_cast<int>(b);
  shared[threadIdx.x] = local[threadIdx.x] + numbers.data[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared[31 - threadIdx.x];
}

template <class Kernel, class... Arguments>
std::string report_of(Kernel kernel, Arguments... arguments) {
  sim::clear_races();
  REQUIRE(simulator_test::run(kernel, {.grid = 1, .block = 32}, arguments...) == cudaSuccess);
  std::string text = sim::race_reports() == 0 ? "" : sim::last_race();
  sim::clear_races();
  return text;
}

struct device_ints {
  int* data = nullptr;
  device_ints() {
    devcomm::check_cuda(cudaMalloc(&data, 32 * sizeof(int)), "cudaMalloc");
    devcomm::check_cuda(cudaMemset(data, 0, 32 * sizeof(int)), "cudaMemset");
    devcomm::check_cuda(cudaDeviceSynchronize(), "cudaMemset");
  }
  device_ints(const device_ints&) = delete;
  device_ints& operator=(const device_ints&) = delete;
  ~device_ints() { cudaFree(data); }
};

}  // namespace

TEST_CASE("a kernel that reads a vector's memory by a pointer in a structure is reported") {
  std::vector<int> numbers(32, 7);
  const std::string text = report_of(add_one, view{numbers.data(), 32});
  CHECK(contains(text, "a kernel accesses the host's heap"));
  CHECK(contains(text, ", kernel (anonymous namespace)::add_one"));
  CHECK(contains(text, "side_test.cu:"));
  CHECK(contains(text, "copy it to device memory"));
}

TEST_CASE("a kernel's atomics on the host's heap are reported") {
  std::vector<int> numbers(32, 7);
  std::string text = report_of(count_in, view{numbers.data(), 32});
  CHECK(contains(text, "a kernel accesses the host's heap"));
  CHECK(contains(text, "atomic change of 4 bytes by device 0, block 0, thread "));
  CHECK(contains(text, "::count_in"));
  text = report_of(poll_once, view{numbers.data(), 32});
  CHECK(contains(text, "atomic read of 4 bytes"));
  const device_ints own;
  CHECK(report_of(count_in, view{own.data, 32}).empty());
}

TEST_CASE("a pointer to the host's heap that a kernel does not follow is none of the report's business") {
  std::vector<int> numbers(32, 7);
  const device_ints out;
  CHECK(report_of(look_at, view{numbers.data(), 32}, out.data).empty());
}

TEST_CASE("arguments, stacks, shared memory and device memory are a kernel's own") {
  const device_ints in, out;
  CHECK(report_of(stay_at_home, view{in.data, 32}, std::uint64_t{3}, 2.0, out.data).empty());
}

TEST_CASE("pinned memory is of both sides") {
  int* pinned = nullptr;
  devcomm::check_cuda(cudaMallocHost(&pinned, 32 * sizeof(int)), "cudaMallocHost");
  for (int i = 0; i < 32; ++i) pinned[i] = i;
  CHECK(report_of(add_one, view{pinned, 32}).empty());
  CHECK(pinned[3] == 4);
  CHECK(sim::race_reports() == 0);
  devcomm::check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
}

TEST_CASE("a host that reads or writes device memory is reported, each place once") {
  const device_ints numbers;
  sim::clear_races();
  int sum = 0;
  for (int i = 0; i < 4; ++i) sum += numbers.data[i];
  CHECK(sum == 0);
  CHECK(sim::race_reports() == 1);
  CHECK(contains(sim::last_race(), "the host accesses device memory"));
  CHECK(contains(sim::last_race(), "read of 4 bytes by a thread of the host"));
  CHECK(contains(sim::last_race(), "byte 0 of the 128 of device memory of device 0"));
  CHECK(contains(sim::last_race(), "cudaMemcpy"));
  numbers.data[2] = 5;
  CHECK(sim::race_reports() == 2);
  CHECK(contains(sim::last_race(), "write of 4 bytes"));
  sim::clear_races();
}

TEST_CASE("copies are how the host reaches device memory") {
  const device_ints numbers;
  sim::clear_races();
  std::vector<int> values(32, 3);
  devcomm::check_cuda(cudaMemcpy(numbers.data, values.data(), 128, cudaMemcpyHostToDevice), "cudaMemcpy");
  devcomm::check_cuda(cudaMemcpy(values.data(), numbers.data, 128, cudaMemcpyDeviceToHost), "cudaMemcpy");
  CHECK(sim::race_reports() == 0);
}
