/// \file fp8.hpp
/// Floating-point numbers of 8 bits as CUDA has them: e5m2, which is the upper half of a half, and e4m3, which has no
/// infinity and one NaN of each sign. Conversions to them round to nearest, ties to even.
#pragma once

#include <devcomm/simulator/device/small_float.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace devcomm::simulator::detail {

template <int ExponentBits, int MantissaBits>
struct fp8_format {
  static constexpr bool has_infinity = ExponentBits == 5;
  static constexpr unsigned nan = 0x7f;
  /// What lies past the largest number: infinity, or NaN.
  static constexpr unsigned overflow = has_infinity ? infinity_bits<ExponentBits, MantissaBits> : nan;
  static constexpr unsigned largest = overflow - 1;

  static uint8_t encode(double value, bool saturate) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const auto sign = static_cast<unsigned>(bits >> 63) << 7;
    const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
    const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
    if (exponent == 0x7ff && fraction != 0) {  // a quiet NaN keeps its sign, and of its fraction what fits
      if (!has_infinity) return static_cast<uint8_t>(sign | nan);
      return static_cast<uint8_t>(sign | 0x7e | static_cast<unsigned>(fraction >> 50));
    }
    unsigned magnitude = 0;
    if (exponent == 0x7ff) {
      magnitude = overflow;
    } else if (exponent != 0) {  // else zero, or far below the smallest number
      magnitude = encode_magnitude<ExponentBits, MantissaBits, overflow>(fraction | uint64_t{1} << 52, exponent - 1075);
    }
    if (saturate && magnitude == overflow) magnitude = largest;
    return static_cast<uint8_t>(sign | magnitude);
  }
  /// Of a float's NaN only that it is one is left.
  static uint8_t encode(float value, bool saturate) {
    return value != value ? static_cast<uint8_t>(nan) : encode(static_cast<double>(value), saturate);
  }

  static float decode(unsigned bits) {
    constexpr int bias = (1 << (ExponentBits - 1)) - 1;
    const unsigned magnitude = bits & 0x7f;
    const auto exponent = static_cast<int>(magnitude >> MantissaBits);
    const unsigned fraction = magnitude & ((1u << MantissaBits) - 1);
    float value = 0;
    if (magnitude > largest) {
      if (!has_infinity || magnitude > overflow) return __builtin_nanf("");
      value = HUGE_VALF;
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<float>(fraction), 1 - bias - MantissaBits);
    } else {
      value = std::ldexp(static_cast<float>(fraction | 1u << MantissaBits), exponent - bias - MantissaBits);
    }
    return (bits & 0x80) != 0 ? -value : value;
  }
};

/// CUDA's `__nv_fp8_e5m2` and `__nv_fp8_e4m3`. Conversions to them saturate.
template <int ExponentBits, int MantissaBits>
struct fp8 {
  using format = fp8_format<ExponentBits, MantissaBits>;

  uint8_t __x;

  fp8() = default;
  explicit fp8(float value) : __x(format::encode(value, true)) {}
  explicit fp8(double value) : __x(format::encode(value, true)) {}
  template <class T, class = std::enable_if_t<std::is_integral_v<T> && (sizeof(T) > 1)>>
  explicit fp8(T value) : fp8(static_cast<float>(value)) {}
  template <int E, int M, class Raw>
  explicit fp8(small_float<E, M, Raw> value) : fp8(float{value}) {}

  explicit operator float() const { return format::decode(__x); }
  explicit operator double() const { return static_cast<double>(format::decode(__x)); }
  explicit operator bool() const { return (__x & 0x7f) != 0; }
  template <int E, int M, class Raw>
  explicit operator small_float<E, M, Raw>() const {
    return small_float<E, M, Raw>(format::decode(__x));
  }
};

}  // namespace devcomm::simulator::detail
