/// \file ptx_halves.hpp
/// Instructions of PTX on halves and bfloat16 as functions: what `devcomm_ptx.py` makes of them. Registers have their
/// bits, of one or of two. Each result is rounded once, to nearest.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace devcomm::simulator::detail::ptx {

template <class Half, class Bits>
Half half_at(Bits bits, int shift = 0) {
  const auto own = static_cast<unsigned short>(bits >> shift);
  Half value;
  __builtin_memcpy(&value, &own, sizeof value);
  return value;
}
template <class Half>
unsigned short bits_of_half(Half value) {
  unsigned short bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// On each half of registers of one size.
template <class Half, class Operation, class Bits, class... More>
Bits on_halves(Operation operation, Bits bits, More... more) {
  const unsigned low = bits_of_half<Half>(operation(half_at<Half>(bits), half_at<Half>(more)...));
  if constexpr (sizeof(Bits) == 2) return static_cast<Bits>(low);
  return static_cast<Bits>(
      low | static_cast<unsigned>(bits_of_half<Half>(operation(half_at<Half>(bits, 16), half_at<Half>(more, 16)...)))
                << 16);
}

template <class Half>
float float_of_half(unsigned short bits) {
  return static_cast<float>(half_at<Half>(bits));
}
template <class Half>
unsigned short half_of_float(float value) {
  return bits_of_half(static_cast<Half>(value));
}
template <class Half>
unsigned halves_of_floats(float high, float low) {
  return static_cast<unsigned>(half_of_float<Half>(high)) << 16 | half_of_float<Half>(low);
}

}  // namespace devcomm::simulator::detail::ptx
