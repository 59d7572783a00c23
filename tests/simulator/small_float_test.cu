/// Half precision, bfloat16 and fp8 against an independent reference.
#include "support.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

using namespace simulator_test;

namespace {

std::uint16_t bits(__half a) { return __half_as_ushort(a); }
std::uint16_t bits(__nv_bfloat16 a) { return __bfloat16_as_ushort(a); }
template <class T>
T from(std::uint16_t b);
template <>
__half from<__half>(std::uint16_t b) {
  return __ushort_as_half(b);
}
template <>
__nv_bfloat16 from<__nv_bfloat16>(std::uint16_t b) {
  return __ushort_as_bfloat16(b);
}

template <class T>
struct format;
template <>
struct format<__half> {
  static constexpr int mantissa = 10, bias = 15, infinity = 0x7c00;
};
template <>
struct format<__nv_bfloat16> {
  static constexpr int mantissa = 7, bias = 127, infinity = 0x7f80;
};

/// What the bits mean, by the definition of the format.
template <class T>
long double value_of(std::uint16_t b) {
  using f = format<T>;
  const int exponent = (b & 0x7fff) >> f::mantissa;
  const int fraction = b & ((1 << f::mantissa) - 1);
  const long double magnitude =
      exponent == 0
          ? std::ldexp(static_cast<long double>(fraction), 1 - f::bias - f::mantissa)
          : std::ldexp(static_cast<long double>(fraction + (1 << f::mantissa)), exponent - f::bias - f::mantissa);
  return (b & 0x8000) != 0 ? -magnitude : magnitude;
}

/// The nearest number by search among all of them: `value_of` is increasing in the bits.
template <class T>
std::uint16_t nearest(long double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  x = std::fabs(x);
  int low = 0;
  int high = format<T>::infinity;  // as if the exponents went on
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (value_of<T>(static_cast<std::uint16_t>(middle)) <= x ? low : high) = middle;
  }
  const long double below = x - value_of<T>(static_cast<std::uint16_t>(low));
  const long double above = value_of<T>(static_cast<std::uint16_t>(high)) - x;
  const int chosen = below < above || (below == above && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(sign | chosen);
}

template <class T>
void check_all_bits() {
  for (unsigned b = 0; b < 0x10000; ++b) {
    const auto word = static_cast<std::uint16_t>(b);
    const T number = from<T>(word);
    const float f = number;
    if ((b & 0x7fff) > format<T>::infinity) {
      if (f == f) FAIL("NaN became a number: " << b);
    } else if ((b & 0x7fff) == static_cast<unsigned>(format<T>::infinity)) {
      if (!std::isinf(f) || std::signbit(f) != (b >= 0x8000)) FAIL("infinity: " << b);
    } else if (static_cast<long double>(f) != value_of<T>(word) || std::signbit(f) != (b >= 0x8000)) {
      FAIL("wrong value of " << b);
    }
    if (f == f && bits(T(f)) != word) FAIL("does not come back: " << b);
    if (f == f && bits(-number) != (word ^ 0x8000)) FAIL("negation: " << b);
  }
}

/// Floats around every number and every midpoint of two, and random ones.
template <class T>
void check_rounding() {
  const auto check = [](float f) {
    if (bits(T(f)) != nearest<T>(f)) FAIL("float " << f << " became " << bits(T(f)) << ", not " << nearest<T>(f));
  };
  for (int b = 0; b < format<T>::infinity; ++b) {
    const long double low = value_of<T>(static_cast<std::uint16_t>(b));
    const long double high = value_of<T>(static_cast<std::uint16_t>(b + 1));
    for (const long double x : {low, (low + high) / 2}) {
      const auto f = static_cast<float>(x);
      for (const float near : {std::nextafter(f, 0.0f), f, std::nextafter(f, HUGE_VALF)}) {
        if (!std::isfinite(near)) continue;
        check(near);
        check(-near);
      }
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    const auto raw = static_cast<std::uint32_t>(random());
    float f = 0;
    std::memcpy(&f, &raw, 4);
    if (std::isfinite(f)) check(f);
  }
}

template <class T>
void check_arithmetic() {
  std::mt19937 random(11);
  for (int i = 0; i < 300000; ++i) {
    const auto a = static_cast<std::uint16_t>(random());
    const auto b = static_cast<std::uint16_t>(random());
    const auto c = static_cast<std::uint16_t>(random());
    const int top = format<T>::infinity;
    if ((a & 0x7fff) >= top || (b & 0x7fff) >= top || (c & 0x7fff) >= top) continue;
    const long double x = value_of<T>(a);
    const long double y = value_of<T>(b);
    const long double z = value_of<T>(c);
    const T p = from<T>(a);
    const T q = from<T>(b);
    // A reference only where a long double holds the result exactly.
    const auto exact = [](long double sum, long double u, long double v) { return sum - u == v && sum - v == u; };
    if (x + y != 0 && exact(x + y, x, y) && bits(p + q) != nearest<T>(x + y)) FAIL("sum of " << a << " and " << b);
    if (x - y != 0 && exact(x - y, x, -y) && bits(p - q) != nearest<T>(x - y))
      FAIL("difference of " << a << " and " << b);
    if (bits(p * q) != nearest<T>(x * y)) FAIL("product of " << a << " and " << b);
    if (y != 0 && bits(p / q) != nearest<T>(x / y)) FAIL("quotient of " << a << " and " << b);
    const long double sum = x * y + z;
    if (sum != 0 && exact(sum, x * y, z) && bits(__hfma(p, q, from<T>(c))) != nearest<T>(sum))
      FAIL("fused " << a << ", " << b << ", " << c);
    if (__hlt(p, q) != (x < y) || __heq(p, q) != (x == y)) FAIL("comparison of " << a << " and " << b);
  }
}

/// `a * b` lies half-way between two numbers; the smallest number, far below a double's last bit, decides.
template <class T>
void check_fused_tie(float a, float b, float even, float odd, float sign) {
  CHECK(float{__hfma(T(a), T(b), T(0.0f))} == even);
  CHECK(float{__hfma(T(a), T(b), T(sign) * from<T>(1))} == odd);
  CHECK(float{__hfma(T(a), T(b), T(-sign) * from<T>(1))} == even);
}

/// What the bits of an fp8 number mean, by the definition of the format, as if the exponents went on.
template <class T>
long double value_of_fp8(int b) {
  constexpr int mantissa = std::is_same_v<T, __nv_fp8_e4m3> ? 3 : 2;
  constexpr int bias = mantissa == 3 ? 7 : 15;
  const int exponent = b >> mantissa;
  const int fraction = b & ((1 << mantissa) - 1);
  return exponent == 0 ? std::ldexp(static_cast<long double>(fraction), 1 - bias - mantissa)
                       : std::ldexp(static_cast<long double>(fraction + (1 << mantissa)), exponent - bias - mantissa);
}

template <class T, class From>
int fp8_bits(From x) {
  return T(x).__x;
}

/// `largest` are the bits of the largest number, `kind` is the format's name, `above` what numbers past it become
/// unless they saturate.
template <class T>
void check_fp8(int largest, __nv_fp8_interpretation_t kind, int above) {
  const auto unsaturated = [kind](float x) { return int{__nv_cvt_float_to_fp8(x, __NV_NOSAT, kind)}; };
  for (int b = 0; b < 256; ++b) {
    T number;
    number.__x = static_cast<unsigned char>(b);
    const auto f = static_cast<float>(number);
    const int magnitude = b & 0x7f;
    if (std::signbit(f) != (b >= 128) && f == f) FAIL("sign of " << b);
    if (magnitude <= largest) {
      if (static_cast<long double>(std::fabs(f)) != value_of_fp8<T>(magnitude)) FAIL("wrong value of " << b);
      if (fp8_bits<T>(f) != b || fp8_bits<T>(double{f}) != b || unsaturated(f) != b) FAIL("does not come back: " << b);
      if (fp8_bits<T>(__half(f)) != b || fp8_bits<T>(__nv_bfloat16(f)) != b) FAIL("not through 16 bits: " << b);
      if (float{static_cast<__half>(number)} != f) FAIL("as a half: " << b);
    } else if (magnitude == above && above != 0x7f) {
      if (!std::isinf(f)) FAIL("infinity: " << b);
    } else if (f == f) {
      FAIL("NaN became a number: " << b);
    }
  }
  for (int b = 0; b <= largest; ++b) {
    const long double low = value_of_fp8<T>(b);
    const auto middle = static_cast<float>((low + value_of_fp8<T>(b + 1)) / 2);  // as if there were one more
    const int at_middle = b % 2 == 0 ? b : b + 1;
    const auto check = [&](float x, int expected) {
      const int saturated = std::min(expected, largest);
      if (fp8_bits<T>(x) != saturated || fp8_bits<T>(-x) != (saturated | 0x80)) FAIL("rounding of " << x);
      if (fp8_bits<T>(double{x}) != saturated) FAIL("rounding of the double " << x);
      if (unsaturated(x) != (expected > largest ? above : expected)) FAIL("rounding without saturation of " << x);
    };
    check(static_cast<float>(low), b);
    check(std::nextafter(static_cast<float>(low), HUGE_VALF), b);
    check(std::nextafter(middle, 0.0f), b);
    check(middle, at_middle);
    check(std::nextafter(middle, HUGE_VALF), b + 1);
  }
  CHECK(fp8_bits<T>(HUGE_VALF) == largest);
  CHECK(fp8_bits<T>(1e30f) == largest);
  CHECK(unsaturated(HUGE_VALF) == above);
  CHECK(fp8_bits<T>(std::nanf("")) == 0x7f);
  CHECK(fp8_bits<T>(3) == fp8_bits<T>(3.0f));
}

__global__ void add_halves(__half* sum, __half2* pair) {
  atomicAdd(sum, __half(1.0f));
  atomicAdd(pair, __floats2half2_rn(0.5f, 2.0f));
}

}  // namespace

TEST_CASE("all 65,536 halves and bfloat16s mean what the format says") {
  check_all_bits<__half>();
  check_all_bits<__nv_bfloat16>();
}

TEST_CASE("floats round to the nearest half and bfloat16, ties to even") {
  check_rounding<__half>();
  check_rounding<__nv_bfloat16>();
  CHECK(bits(__half(65519.0f)) == 0x7bff);
  CHECK(bits(__half(65520.0f)) == 0x7c00);
  CHECK(bits(__half(std::nanf(""))) == 0x7fff);
  CHECK(bits(__nv_bfloat16(std::nanf(""))) == 0x7fff);
}

TEST_CASE("doubles and integers round once") {
  // Above a tie of half by less than a float can tell.
  CHECK(bits(__half(1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40))) == 0x3c01);
  CHECK(bits(__half(2049)) == bits(__half(2048.0f)));
  CHECK(bits(__half(2051)) == bits(__half(2052.0f)));
  CHECK(bits(__half(-7)) == bits(__half(-7.0f)));
  CHECK(bits(__nv_bfloat16((1ll << 62) + (1ll << 54) + 1)) ==
        bits(__nv_bfloat16(std::ldexp(1.0f, 62) + std::ldexp(1.0f, 55))));
}

TEST_CASE("all 256 numbers of each fp8 type mean what the format says, and floats round to the nearest") {
  check_fp8<__nv_fp8_e4m3>(0x7e, __NV_E4M3, 0x7f);
  check_fp8<__nv_fp8_e5m2>(0x7b, __NV_E5M2, 0x7c);
}

TEST_CASE("pairs and quads of fp8 numbers have the first in the lowest bits") {
  const __nv_fp8x2_e4m3 pair(float2{1.0f, -2.0f});
  CHECK(pair.__x == (__nv_fp8_e4m3(1.0f).__x | __nv_fp8_e4m3(-2.0f).__x << 8));
  CHECK(float{__low2half(static_cast<__half2>(pair))} == 1.0f);
  CHECK(static_cast<float2>(pair).y == -2.0f);
  const __nv_fp8x4_e5m2 quad(float4{1.0f, 2.0f, 3.0f, -4.0f});
  const auto four = static_cast<float4>(quad);
  CHECK((four.x == 1.0f && four.y == 2.0f && four.z == 3.0f && four.w == -4.0f));
  CHECK((quad.__x >> 24) == __nv_fp8_e5m2(-4.0f).__x);
}

TEST_CASE("arithmetic rounds once") {
  check_arithmetic<__half>();
  check_arithmetic<__nv_bfloat16>();
  check_fused_tie<__half>(7.0f, 293.0f, 2052.0f, 2050.0f, -1.0f);
  check_fused_tie<__half>(3.0f, 683.0f, 2048.0f, 2050.0f, 1.0f);
  check_fused_tie<__nv_bfloat16>(7.0f, 37.0f, 260.0f, 258.0f, -1.0f);
  check_fused_tie<__nv_bfloat16>(9.0f, 29.0f, 260.0f, 262.0f, 1.0f);
}

TEST_CASE("minimum and maximum prefer numbers to NaN, unless asked") {
  const __half nan = __ushort_as_half(0x7fff);
  CHECK(bits(__hmax(nan, __half(2.0f))) == bits(__half(2.0f)));
  CHECK(bits(__hmin(__half(2.0f), nan)) == bits(__half(2.0f)));
  CHECK(__hisnan(__hmax_nan(nan, __half(2.0f))));
  CHECK(bits(__hmax(__half(-0.0f), __half(0.0f))) == 0);
  CHECK(bits(__hmin(__half(0.0f), __half(-0.0f))) == 0x8000);
}

TEST_CASE("atomic sums of halves lose nothing") {
  const shared_array<__half> sum(1);
  const shared_array<__half2> pair(1);
  REQUIRE(run(add_halves, {.grid = 4, .block = 96}, sum.get(), pair.get()) == cudaSuccess);
  CHECK(float{sum[0]} == 384.0f);
  CHECK(__low2float(pair[0]) == 192.0f);
  CHECK(__high2float(pair[0]) == 768.0f);
}
