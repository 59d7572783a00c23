#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstring>
#include <string>

using namespace devcomm;

namespace {

constexpr std::size_t guard = 64;  // elements before and after a range that must stay as they were

template <class T>
T element(std::uint64_t i, int source = 0) {
  return static_cast<T>(static_cast<float>((i * 7 + static_cast<std::uint64_t>(source) * 3) % 11) - 5.0f);
}

template <class T, class Group>
__global__ void copy_range(T* to, const T* from, std::uint64_t count) {
  copy(Group{}, to, from, count);
}

template <class T>
struct pointers {
  T* at[4];
};

template <class T, class Operator>
__global__ void reduce_range(pointers<const T> from, int sources, pointers<T> to, int destinations,
                             std::uint64_t count) {
  reduce_copy<T>(
      block{}, sources, [&](int s) { return from.at[s]; }, destinations, [&](int d) { return to.at[d]; }, count,
      Operator{});
}

/// Copies `count` elements from and to ranges that begin `from_skew` and `to_skew` elements past a
/// 16-byte boundary, and checks every byte around them.
template <class T, class Group>
void check_copy(std::size_t count, std::size_t from_skew, std::size_t to_skew, unsigned threads) {
  INFO("count " << count << ", skews " << from_skew << " and " << to_skew << ", size of T " << sizeof(T));
  std::vector<T> source(count + from_skew);
  for (std::size_t i = 0; i < count; ++i) source[from_skew + i] = element<T>(i);
  std::vector<T> expected(2 * guard + count + to_skew);
  std::memset(static_cast<void*>(expected.data()), 0x5a, expected.size() * sizeof(T));
  const test::device_array<T> from(source);
  const test::device_array<T> to(expected);
  launch(copy_range<T, Group>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, to.get() + guard + to_skew,
         from.get() + from_skew, count);
  test::finish("copy_range");
  for (std::size_t i = 0; i < count; ++i) expected[guard + to_skew + i] = element<T>(i);
  const auto got = to.read();
  REQUIRE(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(T)) == 0);
}

template <class T, class Operator, class Reference>
void check_reduce(int sources, int destinations, std::size_t count, std::size_t from_skew, std::size_t to_skew,
                  Reference reference) {
  INFO("count " << count << ", " << sources << " sources, " << destinations << " destinations, skews " << from_skew
                << " and " << to_skew << ", size of T " << sizeof(T));
  const std::size_t room = 2 * guard + count + 16;
  std::vector<T> inputs(room * static_cast<std::size_t>(sources));
  std::vector<T> outputs(room * static_cast<std::size_t>(destinations));
  std::memset(static_cast<void*>(outputs.data()), 0x5a, outputs.size() * sizeof(T));
  const auto begin = [&](int which, std::size_t skew) {
    return static_cast<std::size_t>(which) * room / 16 * 16 + skew;
  };
  for (int s = 0; s < sources; ++s) {
    for (std::size_t i = 0; i < count; ++i) inputs[begin(s, from_skew) + i] = element<T>(i, s);
  }
  const test::device_array<T> in(inputs);
  const test::device_array<T> out(outputs);
  pointers<const T> from{};
  pointers<T> to{};
  for (int s = 0; s < sources; ++s) from.at[s] = in.get() + begin(s, from_skew);
  for (int d = 0; d < destinations; ++d) to.at[d] = out.get() + begin(d, guard + to_skew);
  launch(reduce_range<T, Operator>, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, from, sources, to,
         destinations, count);
  test::finish("reduce_range");
  for (int d = 0; d < destinations; ++d) {
    for (std::size_t i = 0; i < count; ++i) {
      float total = static_cast<float>(element<T>(i, 0));
      for (int s = 1; s < sources; ++s) total = reference(total, static_cast<float>(element<T>(i, s)));
      outputs[begin(d, guard + to_skew) + i] = static_cast<T>(total);
    }
  }
  const auto got = out.read();
  REQUIRE(std::memcmp(got.data(), outputs.data(), outputs.size() * sizeof(T)) == 0);
}

const std::vector<std::size_t> counts = {0, 1, 2, 7, 15, 16, 17, 255, 1000, 4099};

}  // namespace

TEST_CASE("copy moves every element and no other, at any size and alignment") {
  for (const std::size_t count : counts) {
    for (const std::size_t from : {0u, 1u, 5u}) {
      for (const std::size_t to : {0u, 1u, 5u}) {
        check_copy<char, block>(count, from, to, 64);
        check_copy<__half, block>(count, from, to, 64);
        check_copy<float, warp>(count, from, to, 32);
        check_copy<double, block>(count, from, to, 96);
        check_copy<float, thread>(count, from, to, 1);
      }
    }
  }
}

TEST_CASE("reduce_copy reduces every element and touches no other") {
  const auto add = [](float a, float b) { return a + b; };
  for (const std::size_t count : counts) {
    for (const std::size_t from : {0u, 3u}) {
      for (const std::size_t to : {0u, 2u, 3u, 4u}) {
        check_reduce<float, sum>(3, 1, count, from, to, add);
        check_reduce<__half, sum>(4, 2, count, from, to, add);
        check_reduce<__nv_bfloat16, sum>(2, 3, count, from, to, add);
        check_reduce<double, sum>(1, 1, count, from, to, add);
        check_reduce<int, sum>(4, 4, count, from, to, add);
      }
    }
  }
}

TEST_CASE("each operator reduces as its name says") {
  check_reduce<float, product>(3, 1, 777, 1, 1, [](float a, float b) { return a * b; });
  check_reduce<__half, minimum>(3, 1, 777, 1, 1, [](float a, float b) { return b < a ? b : a; });
  check_reduce<__nv_bfloat16, maximum>(3, 1, 777, 1, 1, [](float a, float b) { return a < b ? b : a; });
  check_reduce<int, maximum>(3, 1, 777, 1, 1, [](float a, float b) { return a < b ? b : a; });
}

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

namespace {

struct complex_number {
  float re, im;
};

__global__ void copy_complex(complex_number* to, const complex_number* from, std::uint64_t count) {
  copy(block{}, to, from, count);
}

}  // namespace

TEST_CASE("copy takes structs that are aligned to less than their size") {
  constexpr std::size_t count = 21;
  for (const std::size_t skew : {0u, 1u, 2u, 3u}) {
    INFO("skew of " << skew << " floats");
    std::vector<float> values(2 * count + skew);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const test::device_array<float> from(values);
    const test::device_array<float> to(values.size(), 0xff);
    launch(copy_complex, {.grid = 1, .block = 64, .stream = cudaStreamPerThread},
           reinterpret_cast<complex_number*>(to.get() + skew),
           reinterpret_cast<const complex_number*>(from.get() + skew), count);
    test::finish("copy_complex");
    const auto got = to.read();
    REQUIRE(std::vector<float>(got.begin() + static_cast<std::ptrdiff_t>(skew), got.end()) ==
            std::vector<float>(values.begin() + static_cast<std::ptrdiff_t>(skew), values.end()));
  }
}
