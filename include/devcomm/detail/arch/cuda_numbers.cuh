/// \file cuda_numbers.cuh
/// The seam's arithmetic on GPUs; see detail/arch.cuh for what each function guarantees.
#pragma once

#include <devcomm/config.hpp>

// CUDA's headers define them; to tell them from other classes, their names are enough.
struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace devcomm::detail::arch {

template <class T>
inline constexpr bool is_small_float = false;
template <>
inline constexpr bool is_small_float<__half> = true;
template <>
inline constexpr bool is_small_float<__nv_bfloat16> = true;
template <>
inline constexpr bool is_small_float<__nv_fp8_e4m3> = true;
template <>
inline constexpr bool is_small_float<__nv_fp8_e5m2> = true;

__device__ inline float smaller(float a, float b) { return ::fminf(a, b); }
__device__ inline double smaller(double a, double b) { return ::fmin(a, b); }
__device__ inline float larger(float a, float b) { return ::fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return ::fmax(a, b); }

__device__ inline float multiply(float a, float b) { return ::__fmul_rn(a, b); }
__device__ inline double multiply(double a, double b) { return ::__dmul_rn(a, b); }

}  // namespace devcomm::detail::arch
