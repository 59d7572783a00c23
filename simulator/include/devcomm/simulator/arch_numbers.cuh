/// \file arch_numbers.cuh
/// The seam's arithmetic in the simulator; see devcomm/arch/arch.cuh for what each function guarantees.
#pragma once

// CUDA's types in the simulator; their headers define them.
namespace devcomm::simulator::detail {
template <int ExponentBits, int MantissaBits, class Raw>
struct small_float;
template <int ExponentBits, int MantissaBits>
struct fp8;
}  // namespace devcomm::simulator::detail

namespace devcomm::arch {

template <class T>
inline constexpr bool is_small_float = false;
template <int ExponentBits, int MantissaBits, class Raw>
inline constexpr bool is_small_float<simulator::detail::small_float<ExponentBits, MantissaBits, Raw>> = true;
template <int ExponentBits, int MantissaBits>
inline constexpr bool is_small_float<simulator::detail::fp8<ExponentBits, MantissaBits>> = true;

/// As GPUs: numbers win over NaN, and -0 is below +0.
template <class F>
constexpr F smaller(F a, F b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class F>
constexpr F larger(F a, F b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a > b ? a : b;
}

inline float exp(float x) { return __builtin_expf(x); }
inline float rsqrt(float x) { return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x))); }
inline float tanh(float x) { return __builtin_tanhf(x); }

/// Through a volatile, so that no compiler fuses it with a sum.
template <class F>
F multiply(F a, F b) {
  volatile F product = a * b;
  return product;
}

}  // namespace devcomm::arch
