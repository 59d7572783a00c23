#include <devcomm/devcomm.cuh>

#include "data/ranges.hpp"
#include "support/ranks.hpp"

#include <cuda_fp16.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

using namespace devcomm;

namespace {

template <class T, class Group>
__global__ void copy_range(T* to, const T* from, std::uint64_t count) {
  copy(Group{}, to, from, count);
}

/// Copies `count` elements from and to ranges that begin `from_skew` and `to_skew` elements past a
/// 16-byte boundary, and checks every byte around them.
template <class T, class Group>
void check_copy(std::size_t count, std::size_t from_skew, std::size_t to_skew, unsigned threads) {
  INFO("count " << count << ", skews " << from_skew << " and " << to_skew << ", size of T " << sizeof(T));
  std::vector<T> source(count + from_skew);
  for (std::size_t i = 0; i < count; ++i) source[from_skew + i] = test::element<T>(i);
  std::vector<T> expected(2 * test::guard + count + to_skew);
  std::memset(static_cast<void*>(expected.data()), 0x5a, expected.size() * sizeof(T));
  const test::device_array<T> from(source);
  const test::device_array<T> to(expected);
  launch(copy_range<T, Group>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread},
         to.get() + test::guard + to_skew, from.get() + from_skew, count);
  test::finish("copy_range");
  for (std::size_t i = 0; i < count; ++i) expected[test::guard + to_skew + i] = test::element<T>(i);
  const auto got = to.read();
  REQUIRE(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(T)) == 0);
}

}  // namespace

TEST_CASE("copy moves every element and no other, at any size and alignment") {
  for (const std::size_t count : test::counts) {
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

namespace {

/// Block 0 copies a range, while block 1 writes the elements beside it.
__global__ void copy_beside_writes(char* to, char* from, std::uint64_t count) {
  if (blockIdx.x == 0) return copy(block{}, to, from, count);
  for (int i = static_cast<int>(threadIdx.x); i < 32; i += static_cast<int>(blockDim.x)) {
    from[-1 - i] = 1;
    from[count + static_cast<std::uint64_t>(i)] = 1;
  }
}

}  // namespace

TEST_CASE("copy reads no element beside the range, which others may be writing") {
  for (const std::uint64_t count : {1u, 20u, 47u, 48u, 49u, 100u, 3000u}) {
    for (const std::uint64_t skew : {32u, 33u, 39u, 47u}) {
      INFO("count " << count << ", skew " << skew);
      const test::device_array<char> from(std::vector<char>(count + 80, 5));
      const test::device_array<char> to(count, 0);
      launch(copy_beside_writes, {.grid = 2, .block = 32, .stream = cudaStreamPerThread}, to.get(), from.get() + skew,
             count);
      test::finish("copy_beside_writes");
      REQUIRE(to.read() == std::vector<char>(count, 5));
    }
  }
}

namespace {

/// An element of any size.
template <int Bytes, int Align>
struct alignas(Align) blob {
  unsigned char bytes[Bytes];
};

template <class T>
__global__ void copy_to_two(T* to, T* too, const T* from, std::uint64_t count) {
  copy_to_all<T>(
      block{}, 2, [&](int d) { return d == 0 ? to : too; }, from, count);
}

/// Copies `count` elements between ranges that begin `from_skew`, and `to_skew` and `too_skew`, elements past a
/// multiple of 256 bytes.
template <class T>
void check_copy_of_bytes(std::size_t count, std::size_t from_skew, std::size_t to_skew, std::size_t too_skew) {
  INFO("count " << count << ", skews " << from_skew << ", " << to_skew << " and " << too_skew << ", size of T "
                << sizeof(T));
  std::vector<unsigned char> source((count + from_skew) * sizeof(T));
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(1 + i % 251);
  const auto begin_of = [](std::size_t skew) { return (test::guard + skew) * sizeof(T); };
  const auto expected = [&](std::size_t skew, bool copied) {
    std::vector<unsigned char> bytes(begin_of(skew) + (count + test::guard) * sizeof(T), 0xa5);
    if (copied)
      std::copy(source.begin() + static_cast<std::ptrdiff_t>(from_skew * sizeof(T)), source.end(),
                bytes.begin() + static_cast<std::ptrdiff_t>(begin_of(skew)));
    return bytes;
  };
  const test::device_array<unsigned char> from(source);
  const test::device_array<unsigned char> to(expected(to_skew, false));
  const test::device_array<unsigned char> too(expected(too_skew, false));
  launch(copy_to_two<T>, {.grid = 1, .block = 64, .stream = cudaStreamPerThread},
         reinterpret_cast<T*>(to.get() + begin_of(to_skew)), reinterpret_cast<T*>(too.get() + begin_of(too_skew)),
         reinterpret_cast<const T*>(from.get() + from_skew * sizeof(T)), count);
  test::finish("copy_to_two");
  REQUIRE(to.read() == expected(to_skew, true));
  REQUIRE(too.read() == expected(too_skew, true));
}

}  // namespace

TEST_CASE("copy moves elements of any size and no byte beside them") {
  for (const std::size_t count : {0u, 1u, 2u, 5u, 63u, 64u, 1000u}) {
    for (const std::size_t from : {0u, 1u, 4u}) {
      for (const std::size_t to : {0u, 1u, 4u}) {
        check_copy_of_bytes<blob<3, 1>>(count, from, to, 2);
        check_copy_of_bytes<blob<6, 2>>(count, from, to, 2);
        check_copy_of_bytes<blob<6, 1>>(count, from, to, to);
        check_copy_of_bytes<blob<12, 4>>(count, from, to, to);
        check_copy_of_bytes<blob<24, 8>>(count, from, to, 2);
        check_copy_of_bytes<blob<24, 4>>(count, from, to, to);
        check_copy_of_bytes<blob<40, 8>>(count, from, to, to);
        check_copy_of_bytes<blob<48, 16>>(count, from, to, to);
      }
    }
  }
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
