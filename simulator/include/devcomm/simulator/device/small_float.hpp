/// \file small_float.hpp
/// Floating-point numbers of 16 bits: half precision (5 bits of exponent, 10 of mantissa) and bfloat16
/// (8 and 7). Everything rounds to nearest, ties to even, once.
///
/// Sums, differences, products, quotients and roots are computed in float, whose 24 bits are at least
/// twice a result's plus two, so that rounding twice gives what rounding once would.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace devcomm::simulator::detail {

/// The bits of infinity in a format that has it.
template <int ExponentBits, int MantissaBits>
inline constexpr unsigned infinity_bits = ((1u << ExponentBits) - 1) << MantissaBits;

/// The bits of the number nearest to `mantissa * 2^exponent`, or `Overflow` if those are no less; `mantissa` is not 0.
template <int ExponentBits, int MantissaBits, unsigned Overflow = infinity_bits<ExponentBits, MantissaBits>>
constexpr uint16_t encode_magnitude(uint64_t mantissa, int exponent) {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  const int top = 63 - __builtin_clzll(mantissa);
  const int scale = top + exponent;  // the value is in [2^scale, 2^(scale + 1))
  if (scale > bias + 1) return static_cast<uint16_t>(Overflow);
  const int floor = scale > 1 - bias ? scale : 1 - bias;
  const int shift = floor - MantissaBits - exponent;  // the result's unit is 2^shift of the mantissa's
  uint64_t quotient = 0;
  if (shift <= 0) {
    quotient = mantissa << -shift;
  } else if (shift < 64) {
    quotient = mantissa >> shift;
    const uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1);
    const uint64_t half = uint64_t{1} << (shift - 1);
    if (rest > half || (rest == half && (quotient & 1) != 0)) ++quotient;
  } else if (shift == 64) {
    quotient = mantissa > uint64_t{1} << 63 ? 1 : 0;
  }
  // A normal quotient has the bit that the format leaves out, and adds it to the exponent; a carry out
  // of the mantissa does the same.
  const auto bits = static_cast<unsigned>(quotient) + (static_cast<unsigned>(floor + bias - 1) << MantissaBits);
  return static_cast<uint16_t>(bits < Overflow ? bits : Overflow);
}

template <int ExponentBits, int MantissaBits>
uint16_t encode(double value) {
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const auto sign = static_cast<uint16_t>((bits >> 63) << 15);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    if (fraction != 0) return 0x7fff;  // CUDA's one NaN
    return static_cast<uint16_t>(sign | infinity_bits<ExponentBits, MantissaBits>);
  }
  if (exponent == 0) return sign;  // zero, or far below the smallest number
  return static_cast<uint16_t>(
      sign | encode_magnitude<ExponentBits, MantissaBits>(fraction | uint64_t{1} << 52, exponent - 1075));
}

template <int ExponentBits, int MantissaBits>
float decode(uint16_t bits) {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> MantissaBits & ((1u << ExponentBits) - 1);
  const uint32_t fraction = bits & ((1u << MantissaBits) - 1);
  uint32_t result = 0;
  if (exponent == (1u << ExponentBits) - 1) {
    result = sign | 0x7f800000u | fraction << (23 - MantissaBits);
  } else if (exponent == 0 && ExponentBits < 8) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), 1 - bias - MantissaBits);
    return sign != 0 ? -magnitude : magnitude;
  } else {
    // With eight bits of exponent, the numbers below the normal ones are a float's as well.
    const uint32_t shifted = exponent == 0 ? 0 : exponent + 127 - bias;
    result = sign | shifted << 23 | fraction << (23 - MantissaBits);
  }
  float value = 0;
  __builtin_memcpy(&value, &result, sizeof value);
  return value;
}

/// CUDA's `__half` and `__nv_bfloat16`; `Raw` is the plain struct of their bits.
template <int ExponentBits, int MantissaBits, class Raw>
struct small_float {
  uint16_t bits;

  small_float() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  small_float(T value) {
    if constexpr (std::is_same_v<T, bool> || std::is_floating_point_v<T>) {
      bits = encode<ExponentBits, MantissaBits>(static_cast<double>(value));
    } else {  // a large integer is not rounded to a double first
      const bool negative = value < T{0};
      const auto wide = static_cast<uint64_t>(value);
      const uint64_t magnitude = negative ? uint64_t{0} - wide : wide;
      bits = magnitude == 0 ? uint16_t{0} : encode_magnitude<ExponentBits, MantissaBits>(magnitude, 0);
      if (negative) bits = static_cast<uint16_t>(bits | 0x8000u);
    }
  }
  small_float(const Raw& raw) : bits(raw.x) {}
  small_float& operator=(const Raw& raw) {
    bits = raw.x;
    return *this;
  }
  operator float() const { return decode<ExponentBits, MantissaBits>(bits); }
  operator Raw() const { return Raw{bits}; }

  static small_float from_bits(unsigned value) { return small_float(Raw{static_cast<uint16_t>(value)}); }

  friend small_float operator+(small_float a, small_float b) { return small_float(float{a} + float{b}); }
  friend small_float operator-(small_float a, small_float b) { return small_float(float{a} - float{b}); }
  friend small_float operator*(small_float a, small_float b) { return small_float(float{a} * float{b}); }
  friend small_float operator/(small_float a, small_float b) { return small_float(float{a} / float{b}); }
  friend small_float operator+(small_float a) { return a; }
  friend small_float operator-(small_float a) { return from_bits(a.bits ^ 0x8000u); }
  small_float& operator+=(small_float b) { return *this = *this + b; }
  small_float& operator-=(small_float b) { return *this = *this - b; }
  small_float& operator*=(small_float b) { return *this = *this * b; }
  small_float& operator/=(small_float b) { return *this = *this / b; }
  small_float& operator++() { return *this += small_float(1.0f); }
  small_float& operator--() { return *this -= small_float(1.0f); }
  small_float operator++(int) {
    const small_float before = *this;
    ++*this;
    return before;
  }
  small_float operator--(int) {
    const small_float before = *this;
    --*this;
    return before;
  }
  friend bool operator==(small_float a, small_float b) { return float{a} == float{b}; }
  friend bool operator!=(small_float a, small_float b) { return float{a} != float{b}; }
  friend bool operator<(small_float a, small_float b) { return float{a} < float{b}; }
  friend bool operator<=(small_float a, small_float b) { return float{a} <= float{b}; }
  friend bool operator>(small_float a, small_float b) { return float{a} > float{b}; }
  friend bool operator>=(small_float a, small_float b) { return float{a} >= float{b}; }
};

/// The plain struct of the bits of two.
template <class T>
struct raw_pair;

/// CUDA's `__half2` and `__nv_bfloat162`.
template <class T>
struct alignas(4) small_pair {
  using raw = typename raw_pair<T>::type;

  T x, y;

  small_pair() = default;
  small_pair(const T& a, const T& b) : x(a), y(b) {}
  small_pair(const raw& bits) : x(T::from_bits(bits.x)), y(T::from_bits(bits.y)) {}
  operator raw() const { return raw{x.bits, y.bits}; }
  friend small_pair operator+(small_pair a, small_pair b) { return {a.x + b.x, a.y + b.y}; }
  friend small_pair operator-(small_pair a, small_pair b) { return {a.x - b.x, a.y - b.y}; }
  friend small_pair operator*(small_pair a, small_pair b) { return {a.x * b.x, a.y * b.y}; }
  friend small_pair operator/(small_pair a, small_pair b) { return {a.x / b.x, a.y / b.y}; }
  friend small_pair operator-(small_pair a) { return {-a.x, -a.y}; }
  small_pair& operator+=(small_pair b) { return *this = *this + b; }
  small_pair& operator-=(small_pair b) { return *this = *this - b; }
  small_pair& operator*=(small_pair b) { return *this = *this * b; }
  small_pair& operator/=(small_pair b) { return *this = *this / b; }
  friend bool operator==(small_pair a, small_pair b) { return a.x == b.x && a.y == b.y; }
  friend bool operator!=(small_pair a, small_pair b) { return a.x != b.x && a.y != b.y; }
};

template <class T>
struct is_small_float : std::false_type {};
template <int E, int M, class Raw>
struct is_small_float<small_float<E, M, Raw>> : std::true_type {};
template <class T>
using small = std::enable_if_t<is_small_float<T>::value>;

/// `a * b + c`, rounded once. The product is exact in double; the sum is rounded to odd, so that the
/// second rounding cannot see a tie that is none.
template <class T>
T fused_multiply_add(T a, T b, T c) {
  const double product = static_cast<double>(float{a}) * static_cast<double>(float{b});
  const auto addend = static_cast<double>(float{c});
  double sum = product + addend;
  if (std::isfinite(sum)) {
    const double other = sum - product;
    const double error = (product - (sum - other)) + (addend - other);
    int64_t bits = 0;
    __builtin_memcpy(&bits, &sum, sizeof bits);
    if (error != 0 && (bits & 1) == 0) sum = std::nextafter(sum, error > 0 ? HUGE_VAL : -HUGE_VAL);
  }
  return T(sum);
}

}  // namespace devcomm::simulator::detail
