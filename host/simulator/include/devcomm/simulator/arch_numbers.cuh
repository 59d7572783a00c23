/// \file arch_numbers.cuh
/// The seam's arithmetic in the simulator; see devcomm/detail/arch.cuh for what each function guarantees.
#pragma once

namespace devcomm::detail::arch {

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

/// Through a volatile, so that no compiler fuses it with a sum.
template <class F>
F multiply(F a, F b) {
  volatile F product = a * b;
  return product;
}

}  // namespace devcomm::detail::arch
