/// \file cuda_multimem.cuh
/// Accesses to multicast addresses on GPUs, in PTX; see arch/arch.cuh.
#pragma once

#include <devcomm/arch/language.hpp>
#include <devcomm/arch/multimem_forms.hpp>
#include <devcomm/config.hpp>
#include <devcomm/memory_order.hpp>

// CUDA's headers define them; to tell them from other classes, their names are enough.
struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace devcomm::arch {

// PTX ISA 8.2 is the first to name the precision of sums; CUDA 12.2 has it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool has_multimem = false;
#elif defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1202
inline constexpr bool has_multimem = false;
#else
inline constexpr bool has_multimem = true;
#endif

// Of Blackwell's targets, those of one architecture (100a) or family (100f) only; of the families not 120f.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL) || \
    defined(__CUDA_ARCH_FEAT_SM110_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
inline constexpr bool has_small_multimem = has_multimem;
#elif defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ < 1200
inline constexpr bool has_small_multimem = has_multimem;
#else
inline constexpr bool has_small_multimem = false;
#endif

template <class T>
inline constexpr detail::multimem_type multimem_type_of = detail::multimem_arithmetic_type<T>();
template <>
inline constexpr detail::multimem_type multimem_type_of<__half> = detail::multimem_type::f16;
template <>
inline constexpr detail::multimem_type multimem_type_of<__nv_bfloat16> = detail::multimem_type::bf16;
template <>
inline constexpr detail::multimem_type multimem_type_of<__nv_fp8_e4m3> = detail::multimem_type::e4m3;
template <>
inline constexpr detail::multimem_type multimem_type_of<__nv_fp8_e5m2> = detail::multimem_type::e5m2;

// One body for every form: order and scope are constants, so that one instruction remains. Words of any type travel in
// untyped registers. `Plain` accesses are relaxed at system scope: what has run on switches so far, and of a load the
// same instruction as a weak one.
#define DEVCOMM_MULTIMEM_IN_ORDER(MACRO, strong, form)    \
  do {                                                    \
    if constexpr (Order == memory_order::relaxed) {       \
      DEVCOMM_MULTIMEM_AT_SCOPE(MACRO, ".relaxed", form); \
    } else {                                              \
      DEVCOMM_MULTIMEM_AT_SCOPE(MACRO, strong, form);     \
    }                                                     \
  } while (false)
#define DEVCOMM_MULTIMEM_AT_SCOPE(MACRO, order, form) \
  do {                                                \
    if constexpr (Scope == scope::system) {           \
      MACRO(order ".sys", form);                      \
    } else if constexpr (Scope == scope::device) {    \
      MACRO(order ".gpu", form);                      \
    } else {                                          \
      MACRO(order ".cta", form);                      \
    }                                                 \
  } while (false)

#define DEVCOMM_MULTIMEM_LD1(how, form) \
  asm volatile("multimem.ld_reduce" how ".global." form " %0, [%1];" : "=r"(value.word[0]) : "l"(address) : "memory")
#define DEVCOMM_MULTIMEM_LD2(how, form)                                    \
  asm volatile("multimem.ld_reduce" how ".global." form " {%0, %1}, [%2];" \
               : "=r"(value.word[0]), "=r"(value.word[1])                  \
               : "l"(address)                                              \
               : "memory")
#define DEVCOMM_MULTIMEM_LD4(how, form)                                                             \
  asm volatile("multimem.ld_reduce" how ".global." form " {%0, %1, %2, %3}, [%4];"                  \
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3]) \
               : "l"(address)                                                                       \
               : "memory")
#define DEVCOMM_MULTIMEM_LD_WIDE(how, form) \
  asm volatile("multimem.ld_reduce" how ".global." form " %0, [%1];" : "=l"(wide) : "l"(address) : "memory")
#define DEVCOMM_MULTIMEM_RED1(how, form) \
  asm volatile("multimem.red" how ".global." form " [%0], %1;" : : "l"(address), "r"(value.word[0]) : "memory")
#define DEVCOMM_MULTIMEM_RED2(how, form)                              \
  asm volatile("multimem.red" how ".global." form " [%0], {%1, %2};"  \
               :                                                      \
               : "l"(address), "r"(value.word[0]), "r"(value.word[1]) \
               : "memory")
#define DEVCOMM_MULTIMEM_RED4(how, form)                                                                      \
  asm volatile("multimem.red" how ".global." form " [%0], {%1, %2, %3, %4};"                                  \
               :                                                                                              \
               : "l"(address), "r"(value.word[0]), "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3]) \
               : "memory")
#define DEVCOMM_MULTIMEM_RED_WIDE(how, form) \
  asm volatile("multimem.red" how ".global." form " [%0], %1;" : : "l"(address), "l"(wide) : "memory")
#define DEVCOMM_MULTIMEM_ST1(how, form) \
  asm volatile("multimem.st" how ".global." form " [%0], %1;" : : "l"(address), "r"(value.word[0]) : "memory")
#define DEVCOMM_MULTIMEM_ST_WIDE(how, form) \
  asm volatile("multimem.st" how ".global." form " [%0], %1;" : : "l"(address), "l"(wide) : "memory")
#define DEVCOMM_MULTIMEM_ST4(how, form)                                                                       \
  asm volatile("multimem.st" how ".global." form " [%0], {%1, %2, %3, %4};"                                   \
               :                                                                                              \
               : "l"(address), "r"(value.word[0]), "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3]) \
               : "memory")

// The forms of one operation on types of 1 and 2 bytes, and on float: one, two or four words. A single word of a `red`
// other than `add` is named as a vector of two elements.
#define DEVCOMM_MULTIMEM_VECTORS(KIND, strong, one, operation, type)                        \
  do {                                                                                      \
    if constexpr (Bytes == 4) {                                                             \
      DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_##KIND##1, strong, one);                   \
    } else if constexpr (Bytes == 8) {                                                      \
      DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_##KIND##2, strong, operation ".v2." type); \
    } else {                                                                                \
      DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_##KIND##4, strong, operation ".v4." type); \
    }                                                                                       \
  } while (false)
#define DEVCOMM_MULTIMEM_SMALL(strong, precision, type)                                      \
  do {                                                                                       \
    if constexpr (Operation == detail::multimem_operation::add) {                            \
      DEVCOMM_MULTIMEM_VECTORS(LD, strong, "add" precision "." type, "add" precision, type); \
    } else if constexpr (Operation == detail::multimem_operation::min) {                     \
      DEVCOMM_MULTIMEM_VECTORS(LD, strong, "min." type, "min", type);                        \
    } else {                                                                                 \
      DEVCOMM_MULTIMEM_VECTORS(LD, strong, "max." type, "max", type);                        \
    }                                                                                        \
  } while (false)
#define DEVCOMM_MULTIMEM_INTEGERS(MACRO, strong, sum, number, bits)          \
  do {                                                                       \
    if constexpr (Operation == detail::multimem_operation::add) {            \
      DEVCOMM_MULTIMEM_IN_ORDER(MACRO, strong, "add." sum);                  \
    } else if constexpr (Operation == detail::multimem_operation::min) {     \
      DEVCOMM_MULTIMEM_IN_ORDER(MACRO, strong, "min." number);               \
    } else if constexpr (Operation == detail::multimem_operation::max) {     \
      DEVCOMM_MULTIMEM_IN_ORDER(MACRO, strong, "max." number);               \
    } else if constexpr (Operation == detail::multimem_operation::bit_and) { \
      DEVCOMM_MULTIMEM_IN_ORDER(MACRO, strong, "and." bits);                 \
    } else if constexpr (Operation == detail::multimem_operation::bit_or) {  \
      DEVCOMM_MULTIMEM_IN_ORDER(MACRO, strong, "or." bits);                  \
    } else {                                                                 \
      DEVCOMM_MULTIMEM_IN_ORDER(MACRO, strong, "xor." bits);                 \
    }                                                                        \
  } while (false)

// PTX has no `red` of one pair but `add`: the word is two elements.
#define DEVCOMM_MULTIMEM_RED_PAIR(how, form)                   \
  asm volatile(                                                \
      "{\n\t.reg .b16 a, b;\n\t"                               \
      "mov.b32 {a, b}, %1;\n\t"                                \
      "multimem.red" how ".global." form " [%0], {a, b};\n\t}" \
      :                                                        \
      : "l"(address), "r"(value.word[0])                       \
      : "memory")
#define DEVCOMM_MULTIMEM_HALVES(operation, type)                                                \
  do {                                                                                          \
    if constexpr (Bytes == 4) {                                                                 \
      DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_RED_PAIR, ".release", operation ".v2." type);  \
    } else {                                                                                    \
      DEVCOMM_MULTIMEM_VECTORS(RED, ".release", operation "." type "x2", operation, type "x2"); \
    }                                                                                           \
  } while (false)

template <detail::multimem_operation Operation, class T, int Bytes, bool Plain, memory_order Order, scope Scope>
__device__ inline detail::multimem_words<Bytes> multimem_load_reduce(const void* address) {
  constexpr detail::multimem_type Type = multimem_type_of<T>;
  static_assert(detail::has_multimem_operation(Type, Operation) && detail::has_multimem_width(Type, Bytes),
                "PTX has no such form");
  static_assert(Plain ? Order == memory_order::relaxed && Scope == scope::system : !releases(Order),
                "a load is relaxed or acquires");
  detail::multimem_words<Bytes> value;
  if constexpr (Type == detail::multimem_type::u32) {
    DEVCOMM_MULTIMEM_INTEGERS(DEVCOMM_MULTIMEM_LD1, ".acquire", "u32", "u32", "b32");
  } else if constexpr (Type == detail::multimem_type::s32) {
    DEVCOMM_MULTIMEM_INTEGERS(DEVCOMM_MULTIMEM_LD1, ".acquire", "s32", "s32", "b32");
  } else if constexpr (Type == detail::multimem_type::f32) {
    DEVCOMM_MULTIMEM_VECTORS(LD, ".acquire", "add.f32", "add", "f32");
  } else if constexpr (Type == detail::multimem_type::f16) {
    DEVCOMM_MULTIMEM_SMALL(".acquire", ".acc::f32", "f16x2");
  } else if constexpr (Type == detail::multimem_type::bf16) {
    DEVCOMM_MULTIMEM_SMALL(".acquire", ".acc::f32", "bf16x2");
  } else if constexpr (Type == detail::multimem_type::e4m3) {
    DEVCOMM_MULTIMEM_SMALL(".acquire", ".acc::f16", "e4m3x4");
  } else if constexpr (Type == detail::multimem_type::e5m2) {
    DEVCOMM_MULTIMEM_SMALL(".acquire", ".acc::f16", "e5m2x4");
  } else {
    uint64_t wide;
    if constexpr (Type == detail::multimem_type::f64) {
      DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_LD_WIDE, ".acquire", "add.f64");
    } else if constexpr (Type == detail::multimem_type::u64) {
      DEVCOMM_MULTIMEM_INTEGERS(DEVCOMM_MULTIMEM_LD_WIDE, ".acquire", "u64", "u64", "b64");
    } else {  // a sum of signed numbers has the bits of one of unsigned numbers
      DEVCOMM_MULTIMEM_INTEGERS(DEVCOMM_MULTIMEM_LD_WIDE, ".acquire", "u64", "s64", "b64");
    }
    detail::copy_bytes(&value, &wide, 8);
  }
  return value;
}

template <detail::multimem_operation Operation, class T, int Bytes, memory_order Order, scope Scope>
__device__ inline void multimem_reduce(void* address, detail::multimem_words<Bytes> value) {
  constexpr detail::multimem_type Type = multimem_type_of<T>;
  static_assert(detail::has_multimem_operation(Type, Operation) && detail::has_multimem_width(Type, Bytes) &&
                    !detail::is_multimem_quarter(Type),
                "PTX has no such form");
  static_assert(!acquires(Order), "a reduction in place is relaxed or releases");
  if constexpr (Type == detail::multimem_type::u32) {
    DEVCOMM_MULTIMEM_INTEGERS(DEVCOMM_MULTIMEM_RED1, ".release", "u32", "u32", "b32");
  } else if constexpr (Type == detail::multimem_type::s32) {
    DEVCOMM_MULTIMEM_INTEGERS(DEVCOMM_MULTIMEM_RED1, ".release", "s32", "s32", "b32");
  } else if constexpr (Type == detail::multimem_type::f32) {
    DEVCOMM_MULTIMEM_VECTORS(RED, ".release", "add.f32", "add", "f32");
  } else if constexpr (detail::is_multimem_half(Type)) {
    constexpr bool is_f16 = Type == detail::multimem_type::f16;
    if constexpr (is_f16 && Operation == detail::multimem_operation::add) {
      DEVCOMM_MULTIMEM_VECTORS(RED, ".release", "add.f16x2", "add", "f16x2");
    } else if constexpr (is_f16 && Operation == detail::multimem_operation::min) {
      DEVCOMM_MULTIMEM_HALVES("min", "f16");
    } else if constexpr (is_f16) {
      DEVCOMM_MULTIMEM_HALVES("max", "f16");
    } else if constexpr (Operation == detail::multimem_operation::add) {
      DEVCOMM_MULTIMEM_VECTORS(RED, ".release", "add.bf16x2", "add", "bf16x2");
    } else if constexpr (Operation == detail::multimem_operation::min) {
      DEVCOMM_MULTIMEM_HALVES("min", "bf16");
    } else {
      DEVCOMM_MULTIMEM_HALVES("max", "bf16");
    }
  } else {
    uint64_t wide;
    detail::copy_bytes(&wide, &value, 8);
    if constexpr (Type == detail::multimem_type::f64) {
      DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_RED_WIDE, ".release", "add.f64");
    } else if constexpr (Type == detail::multimem_type::u64) {
      DEVCOMM_MULTIMEM_INTEGERS(DEVCOMM_MULTIMEM_RED_WIDE, ".release", "u64", "u64", "b64");
    } else {
      DEVCOMM_MULTIMEM_INTEGERS(DEVCOMM_MULTIMEM_RED_WIDE, ".release", "u64", "s64", "b64");
    }
  }
}

template <int Bytes, bool Plain, memory_order Order, scope Scope>
__device__ inline void multimem_store(void* address, detail::multimem_words<Bytes> value) {
  static_assert(Plain ? Order == memory_order::relaxed && Scope == scope::system : !acquires(Order),
                "a store is relaxed or releases");
  if constexpr (Bytes == 4) {
    DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_ST1, ".release", "b32");
  } else if constexpr (Bytes == 8) {
    uint64_t wide;
    detail::copy_bytes(&wide, &value, 8);
    DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_ST_WIDE, ".release", "b64");
  } else {
    DEVCOMM_MULTIMEM_IN_ORDER(DEVCOMM_MULTIMEM_ST4, ".release", "v4.f32");
  }
}

__device__ inline void fence_alias() { asm volatile("fence.proxy.alias;" : : : "memory"); }

#undef DEVCOMM_MULTIMEM_IN_ORDER
#undef DEVCOMM_MULTIMEM_AT_SCOPE
#undef DEVCOMM_MULTIMEM_LD1
#undef DEVCOMM_MULTIMEM_LD2
#undef DEVCOMM_MULTIMEM_LD4
#undef DEVCOMM_MULTIMEM_LD_WIDE
#undef DEVCOMM_MULTIMEM_RED1
#undef DEVCOMM_MULTIMEM_RED2
#undef DEVCOMM_MULTIMEM_RED4
#undef DEVCOMM_MULTIMEM_RED_WIDE
#undef DEVCOMM_MULTIMEM_RED_PAIR
#undef DEVCOMM_MULTIMEM_ST1
#undef DEVCOMM_MULTIMEM_ST_WIDE
#undef DEVCOMM_MULTIMEM_ST4
#undef DEVCOMM_MULTIMEM_VECTORS
#undef DEVCOMM_MULTIMEM_SMALL
#undef DEVCOMM_MULTIMEM_INTEGERS
#undef DEVCOMM_MULTIMEM_HALVES

}  // namespace devcomm::arch
