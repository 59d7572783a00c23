/// Loads by `__ldg` go through a cache that nobody keeps up to date: what they read must not change while the kernel
/// runs.
#include <devcomm/arch/arch.cuh>

#include "support.hpp"

using devcomm::memory_order;
using devcomm::scope;
namespace arch = devcomm::arch;
namespace sim = devcomm::simulator;

namespace {

/// Block 0 hands a word to block 1, in the right order; `Cached` says how that reads it.
template <bool Cached>
__global__ void hand_over_word(int* data, unsigned* flag, int* out) {
  if (blockIdx.x == 0) {
    *data = 1;
    arch::store<memory_order::release, scope::system>(flag, 1u);
  } else {
    while (arch::load<memory_order::acquire, scope::system>(flag) == 0) {
    }
    *out = Cached ? __ldg(data) : *data;
  }
}
/// The same with the kernel's parameter restricted, of which `Other` is not.
template <bool Other>
__global__ void hand_over_restricted(int* data, unsigned* flag, int* out, const int* __restrict__ restricted,
                                     const int* other) {
  if (blockIdx.x == 0) {
    *data = 1;
    arch::store<memory_order::release, scope::system>(flag, 1u);
  } else {
    while (arch::load<memory_order::acquire, scope::system>(flag) == 0) {
    }
    *out = Other ? other[0] : restricted[0];
  }
}
__global__ void double_restricted(const int* __restrict__ from, int* __restrict__ to) {
  to[threadIdx.x] = from[threadIdx.x] * 2;
}
__global__ void write_and_read(int* data, unsigned*, int* out) {
  *data = 1;
  *out = __ldg(data);
}
__global__ void write_all(int* data, unsigned*, int*) { data[threadIdx.x] = 1; }
__global__ void read_all(int* data, unsigned*, int* out) { out[threadIdx.x] = __ldg(data + threadIdx.x); }
__global__ void read_and_write(int* data, unsigned*, int*) { data[threadIdx.x] = __ldg(data + threadIdx.x) + 1; }

struct memory_of_run {
  int* data = nullptr;
  int* out = nullptr;
  unsigned* flag = nullptr;
  memory_of_run() {
    sim::clear_races();
    devcomm::check_cuda(cudaMalloc(&data, 128), "cudaMalloc");
    devcomm::check_cuda(cudaMalloc(&out, 128), "cudaMalloc");
    devcomm::check_cuda(cudaMalloc(&flag, 4), "cudaMalloc");
    devcomm::check_cuda(cudaMemset(flag, 0, 4), "cudaMemset");
    devcomm::check_cuda(cudaMemset(data, 0, 128), "cudaMemset");
  }
  memory_of_run(const memory_of_run&) = delete;
  memory_of_run& operator=(const memory_of_run&) = delete;
  ~memory_of_run() {
    cudaFree(data);
    cudaFree(out);
    cudaFree(flag);
    sim::clear_races();
  }
  template <class Kernel>
  std::uint64_t reports_after(Kernel kernel, const devcomm::launch_config& config) const {
    REQUIRE(simulator_test::run(kernel, config, data, flag, out) == cudaSuccess);
    return sim::race_reports();
  }
};

}  // namespace

TEST_CASE("__ldg of what another block writes meanwhile is reported, whatever orders the two") {
  const memory_of_run cached;
  CHECK(cached.reports_after(hand_over_word<true>, {.grid = 2}) == 1);
  CHECK(simulator_test::contains(sim::last_race(), "by __ldg"));
  CHECK(simulator_test::contains(sim::last_race(), "use a plain load"));
  const memory_of_run plain;
  CHECK(plain.reports_after(hand_over_word<false>, {.grid = 2}) == 0);
}

TEST_CASE("a read by a kernel's const __restrict__ parameter counts as __ldg, and one by another pointer does not") {
  const memory_of_run m;
  const devcomm::launch_config two{.grid = 2};
  REQUIRE(simulator_test::run(hand_over_restricted<true>, two, m.data, m.flag, m.out, m.data, m.data) == cudaSuccess);
  CHECK(sim::race_reports() == 0);
  devcomm::check_cuda(cudaMemset(m.flag, 0, 4), "cudaMemset");
  REQUIRE(simulator_test::run(hand_over_restricted<false>, two, m.data, m.flag, m.out, m.data, m.data) == cudaSuccess);
  CHECK(sim::race_reports() == 1);
  CHECK(simulator_test::contains(sim::last_race(), "by a const __restrict__ pointer"));
}

TEST_CASE("restricted parameters of one memory are right where each thread reads before it writes") {
  const memory_of_run m;
  REQUIRE(simulator_test::run(double_restricted, {.block = 32}, m.data, m.data) == cudaSuccess);
  CHECK(sim::race_reports() == 0);
}

TEST_CASE("__ldg of what the thread itself has written is reported") {
  CHECK(memory_of_run().reports_after(write_and_read, {}) == 1);
}

TEST_CASE("__ldg of what an earlier launch or copy has written is right, and so is a write after it") {
  const memory_of_run m;
  CHECK(m.reports_after(read_all, {.block = 32}) == 0);
  CHECK(m.reports_after(write_all, {.block = 32}) == 0);
  CHECK(m.reports_after(read_all, {.block = 32}) == 0);
  CHECK(m.reports_after(read_and_write, {.block = 32}) == 0);
  CHECK(m.reports_after(read_and_write, {.block = 32}) == 0);
}
