#include <devcomm/devcomm.cuh>

#include "data/ranges.hpp"
#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <functional>
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

/// `apart`: by how many elements more each source is skewed than the one before. `finish` is applied to each total.
template <class T, class Operator, class Reference>
void check_reduce(
    int sources, int destinations, std::size_t count, std::size_t from_skew, std::size_t to_skew, Reference reference,
    std::size_t apart = 0, const std::function<float(float)>& finish = [](float total) { return total; }) {
  INFO("count " << count << ", " << sources << " sources, " << destinations << " destinations, skews " << from_skew
                << " and " << to_skew << ", size of T " << sizeof(T));
  const std::size_t capacity = 2 * test::guard + count + 16;
  std::vector<T> inputs(capacity * static_cast<std::size_t>(sources));
  std::vector<T> outputs(capacity * static_cast<std::size_t>(destinations));
  std::memset(static_cast<void*>(outputs.data()), 0x5a, outputs.size() * sizeof(T));
  const auto begin = [&](int which, std::size_t skew) {
    return static_cast<std::size_t>(which) * capacity / 16 * 16 + skew;
  };
  const auto source = [&](int s) { return begin(s, from_skew + apart * static_cast<std::size_t>(s)); };
  for (int s = 0; s < sources; ++s) {
    for (std::size_t i = 0; i < count; ++i) inputs[source(s) + i] = test::element<T>(i, s);
  }
  const test::device_array<T> in(inputs);
  const test::device_array<T> out(outputs);
  pointers<const T> from{};
  pointers<T> to{};
  for (int s = 0; s < sources; ++s) from.at[s] = in.get() + source(s);
  for (int d = 0; d < destinations; ++d) to.at[d] = out.get() + begin(d, test::guard + to_skew);
  launch(reduce_range<T, Operator>, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, from, sources, to,
         destinations, count);
  test::finish("reduce_range");
  for (int d = 0; d < destinations; ++d) {
    for (std::size_t i = 0; i < count; ++i) {
      float total = static_cast<float>(test::element<T>(i, 0));
      for (int s = 1; s < sources; ++s) total = reference(total, static_cast<float>(test::element<T>(i, s)));
      outputs[begin(d, test::guard + to_skew) + i] = static_cast<T>(finish(total));
    }
  }
  const auto got = out.read();
  REQUIRE(std::memcmp(got.data(), outputs.data(), outputs.size() * sizeof(T)) == 0);
}

}  // namespace

namespace {

/// `Words` numbers that are reduced each by itself: 12, 24, 40 bytes.
template <class Word, int Words>
struct vector_of {
  Word at[Words];

  static Word first();
};

template <class T>
__global__ void reduce_vectors(pointers<const T> from, int sources, pointers<T> to, std::uint64_t count) {
  const auto add = [](T a, const T& b) {
    for (std::size_t i = 0; i < sizeof(a.at) / sizeof(a.at[0]); ++i)
      a.at[i] = static_cast<decltype(T::first())>(a.at[i] + b.at[i]);
    return a;
  };
  reduce_copy<T>(
      block{}, sources, [&](int s) { return from.at[s]; }, 2, [&](int d) { return to.at[d]; }, count, add);
}

template <class Word, int Words>
void check_reduce_of_vectors(std::size_t count, std::size_t skew) {
  using T = vector_of<Word, Words>;
  INFO("count " << count << ", skew " << skew << ", size of T " << sizeof(T));
  constexpr int sources = 3;
  const std::size_t words = (count + skew) * Words;
  std::vector<Word> expected((2 * test::guard + count + skew) * Words, Word{77});
  pointers<const T> from{};
  std::vector<std::vector<Word>> inputs;
  for (int s = 0; s < sources; ++s) {
    std::vector<Word> input(words);
    for (std::size_t i = 0; i < words; ++i) input[i] = static_cast<Word>((i * 7 + static_cast<std::size_t>(s)) % 11);
    inputs.push_back(input);
  }
  const test::device_array<Word> in[sources] = {
      test::device_array<Word>(inputs[0]), test::device_array<Word>(inputs[1]), test::device_array<Word>(inputs[2])};
  const test::device_array<Word> out[2] = {test::device_array<Word>(expected), test::device_array<Word>(expected)};
  for (int s = 0; s < sources; ++s) from.at[s] = reinterpret_cast<const T*>(in[s].get()) + skew;
  pointers<T> to{};
  for (int d = 0; d < 2; ++d) to.at[d] = reinterpret_cast<T*>(out[d].get()) + test::guard;
  launch(reduce_vectors<T>, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, from, sources, to, count);
  test::finish("reduce_vectors");
  for (std::size_t i = 0; i < count * Words; ++i) {
    Word total = 0;
    for (const auto& input : inputs) total = static_cast<Word>(total + input[skew * Words + i]);
    expected[test::guard * Words + i] = total;
  }
  for (const auto& one : out) REQUIRE(one.read() == expected);
}

}  // namespace

TEST_CASE("reduce_copy takes elements of any size") {
  for (const std::size_t count : {0u, 1u, 5u, 64u, 700u}) {
    for (const std::size_t skew : {0u, 1u, 4u}) {
      check_reduce_of_vectors<unsigned char, 3>(count, skew);
      check_reduce_of_vectors<std::uint16_t, 3>(count, skew);
      check_reduce_of_vectors<float, 3>(count, skew);
      check_reduce_of_vectors<float, 6>(count, skew);
      check_reduce_of_vectors<double, 5>(count, skew);
    }
  }
}

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
  check_reduce<int, minimum>(3, 1, 777, 1, 1, [](float a, float b) { return b < a ? b : a; });
  check_reduce<float, average>(
      4, 1, 777, 1, 1, [](float a, float b) { return a + b; }, 0, [](float total) { return total / 4; });
}

TEST_CASE("sources may be aligned each in its own way") {
  const auto add = [](float a, float b) { return a + b; };
  for (const std::size_t apart : {1u, 2u, 3u}) {
    check_reduce<float, sum>(4, 1, 333, 0, 0, add, apart);
    check_reduce<__half, sum>(4, 2, 333, 0, 0, add, apart);
  }
}
