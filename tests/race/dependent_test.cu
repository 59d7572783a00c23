/// What a dependent launch does before it has waited is not ordered with the launch before it.
#include <devcomm/dependent_launch.cuh>

#include "support.hpp"

namespace sim = devcomm::simulator;

namespace {

__global__ void write_words(int* words) {
  devcomm::allow_dependent_launch();
  words[threadIdx.x] = 1;
}
template <bool Early, bool Cached>
__global__ void read_words(int* words) {
  int got = 0;
  if (Early) got = words[threadIdx.x];
  devcomm::wait_for_prior_launch();
  if (!Early) got = Cached ? __ldg(words + threadIdx.x) : words[threadIdx.x];
  words[32 + threadIdx.x] = got;
}
__global__ void read_before_that(int* words) {
  words[32 + threadIdx.x] = words[64 + threadIdx.x];
  devcomm::wait_for_prior_launch();
}

template <bool Waits>
__global__ void needs_nothing(int*) {
  if (Waits) devcomm::wait_for_prior_launch();
}
__global__ void read_at_once(int* words) { words[32 + threadIdx.x] = words[threadIdx.x]; }

/// Of three launches, the second beside the first; with `dependent`, the third beside the second.
std::uint64_t reports_of_three(void (*second)(int*), void (*third)(int*), bool dependent) {
  sim::clear_races();
  int* words = nullptr;
  devcomm::check_cuda(cudaMalloc(&words, 512), "cudaMalloc");
  devcomm::check_cuda(cudaMemset(words, 0, 512), "cudaMemset");
  devcomm::launch(write_words, {.block = 32}, words);
  devcomm::launch(second, {.block = 32, .programmatic_dependent = true}, words);
  devcomm::launch(third, {.block = 32, .programmatic_dependent = dependent}, words);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (int i = 0; i < 32; ++i) static_cast<void>(*static_cast<volatile int*>(words + i));  // the host comes after all
  const std::uint64_t found = sim::race_reports();
  devcomm::check_cuda(cudaFree(words), "cudaFree");
  sim::clear_races();
  return found;
}

std::uint64_t reports_of_chain(void (*second)(int*)) {
  sim::clear_races();
  int* words = nullptr;
  devcomm::check_cuda(cudaMalloc(&words, 512), "cudaMalloc");
  devcomm::check_cuda(cudaMemset(words, 0, 512), "cudaMemset");
  devcomm::launch(write_words, {.block = 32}, words);
  devcomm::launch(second, {.block = 32, .programmatic_dependent = true}, words);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const std::uint64_t found = sim::race_reports();
  devcomm::check_cuda(cudaFree(words), "cudaFree");
  sim::clear_races();
  return found;
}

}  // namespace

TEST_CASE("a dependent launch that reads before it waits races with the launch before") {
  CHECK(reports_of_chain(read_words<true, false>) == 1);
  CHECK(reports_of_chain(read_words<false, false>) == 0);
  CHECK(reports_of_chain(read_words<false, true>) == 0);
}

TEST_CASE("a dependent launch that does not wait orders nothing for the next one, which waits for it alone") {
  CHECK(reports_of_three(needs_nothing<false>, read_words<false, false>, true) == 1);
  CHECK(reports_of_three(needs_nothing<true>, read_words<false, false>, true) == 0);
  CHECK(reports_of_three(needs_nothing<false>, read_at_once, false) == 0);
}

TEST_CASE("what came before the launch before is ordered before a dependent launch") {
  CHECK(reports_of_chain(read_before_that) == 0);
}
