/// \file multimem_forms.hpp
/// Which reductions a multicast address takes: PTX's table of types, operations and widths.
#pragma once

#include <devcomm/arch/language.hpp>
#include <devcomm/config.hpp>

namespace devcomm::detail {

enum class multimem_operation : uint8_t { none, add, min, max, bit_and, bit_or, bit_xor };

enum class multimem_type : uint8_t { none, u32, s32, u64, s64, f32, f64, f16, bf16, e4m3, e5m2 };

/// Of arithmetic types. Those of 1 and 2 bytes are specialized by each half of the seam.
template <class T>
DEVCOMM_HOST_DEVICE constexpr multimem_type multimem_arithmetic_type() {
  if constexpr (is_same<T, float>) {
    return multimem_type::f32;
  } else if constexpr (is_same<T, double>) {
    return multimem_type::f64;
  } else if constexpr (is_integral<T> && sizeof(T) == 4) {
    return T(-1) < T(0) ? multimem_type::s32 : multimem_type::u32;
  } else if constexpr (is_integral<T> && sizeof(T) == 8) {
    return T(-1) < T(0) ? multimem_type::s64 : multimem_type::u64;
  } else {
    return multimem_type::none;
  }
}

DEVCOMM_HOST_DEVICE constexpr bool is_multimem_integer(multimem_type type) {
  return type == multimem_type::u32 || type == multimem_type::s32 || type == multimem_type::u64 ||
         type == multimem_type::s64;
}
DEVCOMM_HOST_DEVICE constexpr bool is_multimem_half(multimem_type type) {
  return type == multimem_type::f16 || type == multimem_type::bf16;
}
DEVCOMM_HOST_DEVICE constexpr bool is_multimem_quarter(multimem_type type) {
  return type == multimem_type::e4m3 || type == multimem_type::e5m2;
}

/// Whether the type has the operation at all, in `load_reduce`; `reduce` has them all but those of 8-bit types.
DEVCOMM_HOST_DEVICE constexpr bool has_multimem_operation(multimem_type type, multimem_operation operation) {
  if (type == multimem_type::none || operation == multimem_operation::none) return false;
  if (type == multimem_type::f32 || type == multimem_type::f64) return operation == multimem_operation::add;
  return is_multimem_integer(type) || operation == multimem_operation::add || operation == multimem_operation::min ||
         operation == multimem_operation::max;
}

/// The most bytes that one access reduces: 16, but of integers and `double` one element.
DEVCOMM_HOST_DEVICE constexpr int widest_multimem(multimem_type type) {
  switch (type) {
    case multimem_type::u32:
    case multimem_type::s32: return 4;
    case multimem_type::u64:
    case multimem_type::s64:
    case multimem_type::f64: return 8;
    default: return 16;
  }
}

DEVCOMM_HOST_DEVICE constexpr bool has_multimem_width(multimem_type type, int bytes) {
  const bool one_element = is_multimem_integer(type) || type == multimem_type::f64;
  return one_element ? bytes == widest_multimem(type) : bytes == 4 || bytes == 8 || bytes == 16;
}

/// What an access to a multicast address moves: as many words of 4 bytes.
template <int Bytes>
struct alignas(Bytes) multimem_words {
  uint32_t word[Bytes / 4];
};

}  // namespace devcomm::detail
