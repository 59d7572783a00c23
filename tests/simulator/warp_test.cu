/// Shuffles, votes and lane masks.
#include "support.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using namespace simulator_test;

namespace {

constexpr unsigned all = 0xffffffffu;

template <class T>
__global__ void shuffle_all(T* out, int width) {
  const T value = static_cast<T>(static_cast<float>(threadIdx.x) + 100.0f);
  const unsigned i = threadIdx.x;
  out[i] = __shfl_sync(all, value, 3, width);
  out[32 + i] = __shfl_up_sync(all, value, 2, width);
  out[64 + i] = __shfl_down_sync(all, value, 5, width);
  out[96 + i] = __shfl_xor_sync(all, value, 1, width);
}

template <class T>
void check_shuffles(int width) {
  const shared_array<T> out(128);
  REQUIRE(run(shuffle_all<T>, {.block = 32}, out.get(), width) == cudaSuccess);
  for (int lane = 0; lane < 32; ++lane) {
    const int first = lane / width * width;
    const auto at = [&](int row) {
      return static_cast<float>(out[static_cast<std::size_t>(32 * row + lane)]) - 100.0f;
    };
    CHECK(at(0) == static_cast<float>(first + 3 % width));
    CHECK(at(1) == static_cast<float>(lane - 2 < first ? lane : lane - 2));
    CHECK(at(2) == static_cast<float>(lane + 5 >= first + width ? lane : lane + 5));
    CHECK(at(3) == static_cast<float>((lane ^ 1) >= first + width ? lane : lane ^ 1));
  }
}

__global__ void shuffle_pairs(float2* out) {
  const __half2 h = __floats2half2_rn(static_cast<float>(threadIdx.x), 0.5f);
  const __half2 moved = __shfl_xor_sync(all, h, 16);
  out[threadIdx.x] = __half22float2(moved);
}

__global__ void votes(unsigned* out) {
  const unsigned i = threadIdx.x;
  out[i] = __ballot_sync(all, i % 3 == 0);
  out[32 + i] = static_cast<unsigned>(__any_sync(all, i == 7)) * 2u + static_cast<unsigned>(__all_sync(all, i < 31));
  out[64 + i] = __match_any_sync(all, i / 8);
  int same = 0;
  out[96 + i] = __match_all_sync(all, 5u, &same) + static_cast<unsigned>(same);
}

/// The two halves of a warp use masks of their own, in different order.
__global__ void halves(unsigned* out) {
  const unsigned half = threadIdx.x / 16;
  const unsigned mask = 0xffffu << (16 * half);
  unsigned sum = threadIdx.x;
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step);
  __syncwarp(mask);
  if (half == 1) sum += __ballot_sync(mask, 1) >> 16;
  out[threadIdx.x] = sum;
}

/// Lanes that have exited do not take part.
__global__ void after_exit(unsigned* out) {
  if (threadIdx.x % 2 == 1) return;
  out[threadIdx.x] = __ballot_sync(all, 1);
}

__global__ void divergent(unsigned* out) {
  if (threadIdx.x < 10) {
    out[threadIdx.x] = __activemask();
  } else {  // the compiler must not make one call of the two
    out[threadIdx.x] = __activemask() ^ 1u;
  }
}

__global__ void read_absent_lane(unsigned* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
}
__global__ void wrong_mask() { __syncwarp(0x1u); }
__global__ void mixed_operations(unsigned* out) {
  if (threadIdx.x < 16) {
    out[0] = __ballot_sync(all, 1);
  } else {
    out[1] = __shfl_sync(all, 1u, 0);
  }
}

}  // namespace

TEST_CASE("shuffles move values within segments of every width") {
  for (const int width : {32, 16, 8, 4, 2, 1}) {
    check_shuffles<int>(width);
    check_shuffles<unsigned>(width);
    check_shuffles<float>(width);
    check_shuffles<double>(width);
    check_shuffles<long long>(width);
    check_shuffles<unsigned long>(width);
    check_shuffles<__half>(width);
    check_shuffles<__nv_bfloat16>(width);
  }
}

TEST_CASE("pairs of halves are shuffled whole") {
  const shared_array<float2> out(32);
  REQUIRE(run(shuffle_pairs, {.block = 32}, out.get()) == cudaSuccess);
  for (unsigned i = 0; i < 32; ++i) {
    CHECK(out[i].x == static_cast<float>(i ^ 16u));
    CHECK(out[i].y == 0.5f);
  }
}

TEST_CASE("votes and matches agree in every lane") {
  const shared_array<unsigned> out(128);
  REQUIRE(run(votes, {.block = 32}, out.get()) == cudaSuccess);
  for (unsigned i = 0; i < 32; ++i) {
    CHECK(out[i] == 0x49249249u);
    CHECK(out[32 + i] == 2u);
    CHECK(out[64 + i] == 0xffu << (i / 8 * 8));
    CHECK(out[96 + i] == 0u);  // all + 1 wraps around
  }
}

TEST_CASE("groups of lanes with disjoint masks do not wait for each other") {
  const shared_array<unsigned> out(32);
  REQUIRE(run(halves, {.block = 32}, out.get()) == cudaSuccess);
  for (unsigned i = 0; i < 16; ++i) CHECK(out[i] == 120u);
  for (unsigned i = 16; i < 32; ++i) CHECK(out[i] == 376u + 0xffffu);
}

TEST_CASE("lanes that have exited are left out of a full mask") {
  const shared_array<unsigned> out(32);
  REQUIRE(run(after_exit, {.block = 32}, out.get()) == cudaSuccess);
  for (unsigned i = 0; i < 32; i += 2) CHECK(out[i] == 0x55555555u);
}

TEST_CASE("the active mask is that of one side of a branch") {
  const shared_array<unsigned> out(40);
  REQUIRE(run(divergent, {.block = 40}, out.get()) == cudaSuccess);
  for (unsigned i = 0; i < 10; ++i) CHECK(out[i] == 0x3ffu);
  for (unsigned i = 10; i < 32; ++i) CHECK(out[i] == 0xfffffc01u);
  for (unsigned i = 32; i < 40; ++i) CHECK(out[i] == 0xfeu);
}

TEST_CASE("misuse of warp operations is named") {
  const shared_array<unsigned> out(32);
  CHECK(run(read_absent_lane, {.block = 32}, out.get()) == cudaErrorAssert);
  CHECK(contains(devcomm::simulator::last_failure(), "reads by shuffle from lane 20, which takes no part"));
  CHECK(run(wrong_mask, {.block = 32}) == cudaErrorAssert);
  CHECK(contains(devcomm::simulator::last_failure(), "not in the mask"));
  CHECK(run(mixed_operations, {.block = 32}, out.get()) == cudaErrorAssert);
  CHECK(contains(devcomm::simulator::last_failure(), "different warp operations"));
}
