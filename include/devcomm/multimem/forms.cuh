/// \file forms.cuh
/// What a multicast address can do, checked while compiling: each refusal says what to use instead.
#pragma once

#include <devcomm/arch/multimem.cuh>
#include <devcomm/arch/multimem_forms.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/reduction.cuh>

namespace devcomm::multimem {

/// Several elements in 4 or 8 bytes; 16 bytes of them are a `pack`.
template <class T, int Bytes>
struct alignas(Bytes) vec {
  static_assert(Bytes % sizeof(T) == 0, "a multimem::vec is of whole elements: give a multiple of their size in bytes");

  static constexpr int size = Bytes / static_cast<int>(sizeof(T));

  T data[size];

  DEVCOMM_DEVICE T& operator[](int i) { return data[i]; }
  DEVCOMM_DEVICE const T& operator[](int i) const { return data[i]; }
};

/// What an access of `Bytes` bytes moves: one `T`, a `pack<T>`, or a `vec`.
template <class T, int Bytes>
using value = detail::conditional_t<Bytes == sizeof(T), T, detail::conditional_t<Bytes == 16, pack<T>, vec<T, Bytes>>>;

/// The most bytes of `T` that one access reduces: 16, but of integers and `double` one element.
template <class T>
inline constexpr int widest = detail::widest_multimem(arch::multimem_type_of<T>);

}  // namespace devcomm::multimem

namespace devcomm::detail {

template <class Operator>
inline constexpr multimem_operation multimem_operation_of = multimem_operation::none;
template <>
inline constexpr multimem_operation multimem_operation_of<sum> = multimem_operation::add;
template <>
inline constexpr multimem_operation multimem_operation_of<minimum> = multimem_operation::min;
template <>
inline constexpr multimem_operation multimem_operation_of<maximum> = multimem_operation::max;
template <>
inline constexpr multimem_operation multimem_operation_of<bitwise_and> = multimem_operation::bit_and;
template <>
inline constexpr multimem_operation multimem_operation_of<bitwise_or> = multimem_operation::bit_or;
template <>
inline constexpr multimem_operation multimem_operation_of<bitwise_xor> = multimem_operation::bit_xor;

DEVCOMM_HOST_DEVICE constexpr bool is_bitwise(multimem_operation operation) {
  return operation == multimem_operation::bit_and || operation == multimem_operation::bit_or ||
         operation == multimem_operation::bit_xor;
}

/// Whether `load_reduce` of a multicast address has this; `check_load_reduce` says why not.
template <class Operator, class T, int Bytes>
inline constexpr bool has_load_reduce = has_multimem_operation(arch::multimem_type_of<T>,
                                                               multimem_operation_of<Operator>) &&
                                        has_multimem_width(arch::multimem_type_of<T>, Bytes);

template <class Operator, class T, int Bytes>
DEVCOMM_HOST_DEVICE constexpr void check_load_reduce() {
  constexpr multimem_type type = arch::multimem_type_of<T>;
  constexpr multimem_operation operation = multimem_operation_of<Operator>;
  static_assert(type != multimem_type::none,
                "multimem reduces float, double, half, bfloat16, 8-bit floats, and integers of 4 and 8 bytes: "
                "convert to one of them, or use reduce_copy");
  static_assert(operation != multimem_operation::none,
                "multimem has sum, minimum, maximum and the bitwise operators: for average or scaled_sum take sum and "
                "multiply its result; for others use reduce_copy");
  static_assert(type == multimem_type::none || is_multimem_integer(type) || !is_bitwise(operation),
                "bitwise operators take integers: reduce through as<uint32_t>()");
  static_assert((type != multimem_type::f32 && type != multimem_type::f64) || is_bitwise(operation) ||
                    operation == multimem_operation::none || operation == multimem_operation::add,
                "of float and double multimem has only the sum: use half or bfloat16, or reduce_copy");
  static_assert(type == multimem_type::none || widest_multimem(type) == 16 || has_multimem_width(type, Bytes),
                "multimem reduces integers and double one at a time: use an access of the element's size, which is "
                "multimem::widest<T>");
  static_assert(type == multimem_type::none || widest_multimem(type) != 16 || has_multimem_width(type, Bytes),
                "multimem accesses have 4, 8 or 16 bytes: take a vec or a pack of smaller elements");
}

template <class Operator, class T, int Bytes>
DEVCOMM_HOST_DEVICE constexpr void check_reduce() {
  check_load_reduce<Operator, T, Bytes>();
  static_assert(!is_multimem_quarter(arch::multimem_type_of<T>),
                "multimem has no reduction in place of 8-bit floats: use load_reduce and store, or half");
}

template <class T>
DEVCOMM_HOST_DEVICE constexpr void check_multimem_target() {
  static_assert(arch::has_small_multimem || !is_multimem_quarter(arch::multimem_type_of<T>),
                "this target's switch does not reduce 8-bit floats: compile for sm_100a, sm_103a or sm_120a, use "
                "multimem::software, or half");
}

}  // namespace devcomm::detail
