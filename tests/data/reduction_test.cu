#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <type_traits>
#include <vector>

using namespace devcomm;

namespace {

__global__ void order_numbers(const float* a, const float* b, float* results) {
  results[4 * threadIdx.x] = minimum{}(a[threadIdx.x], b[threadIdx.x]);
  results[4 * threadIdx.x + 1] = maximum{}(a[threadIdx.x], b[threadIdx.x]);
  const auto wide_a = static_cast<double>(a[threadIdx.x]);
  const auto wide_b = static_cast<double>(b[threadIdx.x]);
  results[4 * threadIdx.x + 2] = static_cast<float>(minimum{}(wide_a, wide_b));
  results[4 * threadIdx.x + 3] = static_cast<float>(maximum{}(wide_a, wide_b));
}

/// `a * b + c` of numbers of which the product, were it not rounded, would change the sum.
__global__ void scale_and_add(float* result, float a, float b, float c) {
  const scaled_sum by{b};
  *result = by(by.prepare(a), c);
}

}  // namespace

TEST_CASE("minimum and maximum take numbers rather than NaN, and -0 for less than +0") {
  const float nan = std::nanf("");
  const std::vector<float> first = {1, nan, 2, nan, -0.0f, 0.0f};
  const std::vector<float> second = {nan, -3, 5, nan, 0.0f, -0.0f};
  const std::vector<float> low = {1, -3, 2, nan, -0.0f, -0.0f};
  const std::vector<float> high = {1, -3, 5, nan, 0.0f, 0.0f};
  const test::device_array<float> a(first);
  const test::device_array<float> b(second);
  const test::device_array<float> results(4 * first.size());
  launch(order_numbers, {.grid = 1, .block = static_cast<unsigned>(first.size()), .stream = cudaStreamPerThread},
         static_cast<const float*>(a.get()), static_cast<const float*>(b.get()), results.get());
  test::finish("order_numbers");
  const auto got = results.read();
  const auto same = [](float x, float y) {
    return std::isnan(x) ? std::isnan(y) : x == y && std::signbit(x) == std::signbit(y);
  };
  for (std::size_t i = 0; i < first.size(); ++i) {
    INFO("pair " << i << ": " << got[4 * i] << ", " << got[4 * i + 1]);
    CHECK(same(got[4 * i], low[i]));
    CHECK(same(got[4 * i + 1], high[i]));
    CHECK(same(got[4 * i + 2], low[i]));
    CHECK(same(got[4 * i + 3], high[i]));
  }
}

TEST_CASE("scaled_sum rounds the product before it adds") {
  const test::device_array<float> result(1);
  const float a = 1.0f + 0x1p-12f;  // a * a = 1 + 2^-11 + 2^-24, of which the last is lost
  launch(scale_and_add, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, result.get(), a, a, -1.0f);
  test::finish("scale_and_add");
  CHECK(result.read().front() == 0x1p-11f);
}

namespace {

__global__ void finish_means(signed char* results) {
  results[0] = average{}.finish(static_cast<signed char>(100), 200);
  results[1] = average{}.finish(static_cast<signed char>(-100), 3);
}

}  // namespace

TEST_CASE("the mean of small integers is right for more inputs than the type can count") {
  const test::device_array<signed char> results(2, 0x5a);
  launch(finish_means, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, results.get());
  test::finish("finish_means");
  CHECK(results.read() == std::vector<signed char>{0, -33});
}

TEST_CASE("small floating-point types accumulate in float") {
  STATIC_REQUIRE(std::is_same_v<accumulator_t<__half>, float>);
  STATIC_REQUIRE(std::is_same_v<accumulator_t<__nv_bfloat16>, float>);
  STATIC_REQUIRE(std::is_same_v<accumulator_t<float>, float>);
  STATIC_REQUIRE(std::is_same_v<accumulator_t<double>, double>);
  STATIC_REQUIRE(std::is_same_v<accumulator_t<signed char>, signed char>);
  STATIC_REQUIRE(std::is_same_v<accumulator_t<__nv_fp8_e4m3>, float>);
  STATIC_REQUIRE(std::is_same_v<accumulator_t<__nv_fp8_e5m2>, float>);
}

namespace {

/// A number that is no float: all ones are a value like any other.
struct thousandths {
  std::int16_t count;
};

struct add_thousandths {
  __device__ thousandths operator()(thousandths a, thousandths b) const {
    return {static_cast<std::int16_t>(a.count + b.count)};
  }
};

__global__ void add(const thousandths* a, const thousandths* b, thousandths* to, std::uint64_t count) {
  reduce_copy<thousandths>(
      block{}, 2, [&](int s) { return s == 0 ? a : b; }, 1, [&](int) { return to; }, count, add_thousandths{});
}

}  // namespace

TEST_CASE("classes of the user's own are no floating-point types unless said so") {
  STATIC_REQUIRE(std::is_same_v<accumulator_t<thousandths>, thousandths>);
  STATIC_REQUIRE_FALSE(lsa::is_lamport_type<thousandths>);
  STATIC_REQUIRE_FALSE(lsa::is_lamport_type<std::int16_t>);
  STATIC_REQUIRE_FALSE(lsa::is_lamport_type<double>);
  STATIC_REQUIRE(lsa::is_lamport_type<float>);
  STATIC_REQUIRE(lsa::is_lamport_type<__half>);
  STATIC_REQUIRE(lsa::is_lamport_type<__nv_fp8_e4m3>);
  constexpr std::int16_t count = 77;
  std::vector<thousandths> values(count);
  for (std::int16_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)].count = static_cast<std::int16_t>(i - 9);
  const test::device_array<thousandths> a(values);
  const test::device_array<thousandths> b(std::vector<thousandths>(count, thousandths{8}));
  const test::device_array<thousandths> to(count, 0x5a);
  launch(add, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, static_cast<const thousandths*>(a.get()),
         static_cast<const thousandths*>(b.get()), to.get(), std::uint64_t{count});
  test::finish("add");
  const auto got = to.read();
  for (std::int16_t i = 0; i < count; ++i) CHECK(got[static_cast<std::size_t>(i)].count == i - 1);
}
