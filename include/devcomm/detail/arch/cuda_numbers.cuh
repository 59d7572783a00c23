/// \file cuda_numbers.cuh
/// The seam's arithmetic on GPUs; see detail/arch.cuh for what each function guarantees.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm::detail::arch {

__device__ inline float smaller(float a, float b) { return ::fminf(a, b); }
__device__ inline double smaller(double a, double b) { return ::fmin(a, b); }
__device__ inline float larger(float a, float b) { return ::fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return ::fmax(a, b); }

__device__ inline float multiply(float a, float b) { return ::__fmul_rn(a, b); }
__device__ inline double multiply(double a, double b) { return ::__dmul_rn(a, b); }

}  // namespace devcomm::detail::arch
