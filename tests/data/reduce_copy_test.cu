#include <devcomm/devcomm.cuh>

#include "data/ranges.hpp"
#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <vector>

using namespace devcomm;

namespace {

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

template <class T, class Operator, class Reference>
void check_reduce(int sources, int destinations, std::size_t count, std::size_t from_skew, std::size_t to_skew,
                  Reference reference) {
  INFO("count " << count << ", " << sources << " sources, " << destinations << " destinations, skews " << from_skew
                << " and " << to_skew << ", size of T " << sizeof(T));
  const std::size_t room = 2 * test::guard + count + 16;
  std::vector<T> inputs(room * static_cast<std::size_t>(sources));
  std::vector<T> outputs(room * static_cast<std::size_t>(destinations));
  std::memset(static_cast<void*>(outputs.data()), 0x5a, outputs.size() * sizeof(T));
  const auto begin = [&](int which, std::size_t skew) {
    return static_cast<std::size_t>(which) * room / 16 * 16 + skew;
  };
  for (int s = 0; s < sources; ++s) {
    for (std::size_t i = 0; i < count; ++i) inputs[begin(s, from_skew) + i] = test::element<T>(i, s);
  }
  const test::device_array<T> in(inputs);
  const test::device_array<T> out(outputs);
  pointers<const T> from{};
  pointers<T> to{};
  for (int s = 0; s < sources; ++s) from.at[s] = in.get() + begin(s, from_skew);
  for (int d = 0; d < destinations; ++d) to.at[d] = out.get() + begin(d, test::guard + to_skew);
  launch(reduce_range<T, Operator>, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, from, sources, to,
         destinations, count);
  test::finish("reduce_range");
  for (int d = 0; d < destinations; ++d) {
    for (std::size_t i = 0; i < count; ++i) {
      float total = static_cast<float>(test::element<T>(i, 0));
      for (int s = 1; s < sources; ++s) total = reference(total, static_cast<float>(test::element<T>(i, s)));
      outputs[begin(d, test::guard + to_skew) + i] = static_cast<T>(total);
    }
  }
  const auto got = out.read();
  REQUIRE(std::memcmp(got.data(), outputs.data(), outputs.size() * sizeof(T)) == 0);
}

}  // namespace

TEST_CASE("reduce_copy reduces every element and touches no other") {
  const auto add = [](float a, float b) { return a + b; };
  for (const std::size_t count : test::counts) {
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
