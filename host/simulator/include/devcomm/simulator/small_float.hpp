/// \file small_float.hpp
/// Floating-point formats of 16 bits, by their widths: the arithmetic behind the simulator's `__half`
/// and `__nv_bfloat16`. Rounds to nearest, ties to even, once for each operation, as the hardware does.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace devcomm::simulator {

/// IEEE-like format of one sign, `Exponent` and `Mantissa` bits, 16 in all, with infinities, NaN and
/// subnormals. Every value is exact in `float`, and `float` holds the exact result of `+ - * /` closely
/// enough (at least twice the mantissa plus two bits) that rounding it again is right.
template <int Exponent, int Mantissa>
struct small_float {
  static_assert(Exponent + Mantissa == 15);
  static constexpr std::uint16_t sign_bit = 0x8000;
  static constexpr std::uint16_t infinity = static_cast<std::uint16_t>(((1 << Exponent) - 1) << Mantissa);
  static constexpr std::uint16_t nan = 0x7fff;
  static constexpr int bias = (1 << (Exponent - 1)) - 1;

  static float to_float(std::uint16_t bits) {
    if constexpr (Exponent == 8) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    } else {
      const std::uint32_t sign = static_cast<std::uint32_t>(bits & sign_bit) << 16;
      const std::uint32_t rest = bits & 0x7fffu;
      if (rest >= infinity) return std::bit_cast<float>(sign | 0x7f800000u | (rest << (23 - Mantissa)));
      if (rest < (1u << Mantissa)) {  // zero and subnormals: a count of the smallest
        const float magnitude = std::ldexp(static_cast<float>(rest), 1 - bias - Mantissa);
        return sign != 0 ? -magnitude : magnitude;
      }
      return std::bit_cast<float>(sign | ((rest << (23 - Mantissa)) + (static_cast<std::uint32_t>(127 - bias) << 23)));
    }
  }

  static std::uint16_t from_double(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 48 & sign_bit);
    if (std::isnan(value)) return nan;
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
    if (exponent > bias) return static_cast<std::uint16_t>(sign | infinity);
    // The mantissa with its leading one, shifted so that the last kept bit is the unit.
    const std::uint64_t mantissa = (bits & 0xfffffffffffffu) | 0x10000000000000u;
    const int below_normal = exponent < 1 - bias ? 1 - bias - exponent : 0;
    const int shift = 52 - Mantissa + below_normal;
    if (shift > 54) return sign;
    const std::uint64_t half = 1ull << (shift - 1);
    std::uint64_t kept = mantissa >> shift;
    const std::uint64_t lost = mantissa & ((1ull << shift) - 1);
    if (lost > half || (lost == half && (kept & 1) != 0)) ++kept;
    // A carry out of the mantissa moves into the exponent, up to infinity, as it should.
    const std::uint64_t exponent_field =
        below_normal > 0 ? 0 : static_cast<std::uint64_t>(exponent + bias - 1) << Mantissa;
    return static_cast<std::uint16_t>(sign | (kept + exponent_field));
  }

  static std::uint16_t from_float(float value) {
    if constexpr (Exponent == 8) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      if ((bits & 0x7fffffffu) > 0x7f800000u) return nan;
      return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    } else {
      return from_double(static_cast<double>(value));
    }
  }

  /// `a * b + c`, rounded once: the product is exact in `double`, and the sum is rounded to odd there,
  /// so that rounding it again to fewer bits is right.
  static std::uint16_t fused_multiply_add(float a, float b, float c) {
    const double product = static_cast<double>(a) * static_cast<double>(b);
    const double addend = static_cast<double>(c);
    const double total = product + addend;
    if (!std::isfinite(total) || total == 0) return from_double(total);
    const double back = total - product;
    const double error = (product - (total - back)) + (addend - back);
    auto bits = std::bit_cast<std::uint64_t>(total);
    if (error != 0 && (bits & 1) == 0) bits = (error > 0) == (total > 0) ? bits | 1 : bits - 1;
    return from_double(std::bit_cast<double>(bits));
  }
};

using half_format = small_float<5, 10>;
using bfloat16_format = small_float<8, 7>;

}  // namespace devcomm::simulator
