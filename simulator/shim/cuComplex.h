/// \file cuComplex.h
/// CUDA's complex numbers of floats and doubles, as in the toolkit's header of this name.
#pragma once

#include <vector_types.h>

#include <cmath>

#define DEVCOMM_SIM_COMPLEX(type, vector, real_type, suffix)                                             \
  using type = vector;                                                                                   \
  inline type make_##type(real_type real, real_type imaginary) { return {real, imaginary}; }             \
  inline real_type cuCreal##suffix(type x) { return x.x; }                                               \
  inline real_type cuCimag##suffix(type x) { return x.y; }                                               \
  inline type cuConj##suffix(type x) { return {x.x, -x.y}; }                                             \
  inline type cuCadd##suffix(type a, type b) { return {a.x + b.x, a.y + b.y}; }                          \
  inline type cuCsub##suffix(type a, type b) { return {a.x - b.x, a.y - b.y}; }                          \
  inline type cuCmul##suffix(type a, type b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }  \
  inline real_type cuCabs##suffix(type x) { return std::hypot(x.x, x.y); }                               \
  inline type cuCdiv##suffix(type a, type b) {                                                           \
    const real_type scale = std::abs(b.x) + std::abs(b.y);                                               \
    const type s{b.x / scale, b.y / scale}, t = cuCmul##suffix({a.x / scale, a.y / scale}, {s.x, -s.y}); \
    const real_type square = s.x * s.x + s.y * s.y;                                                      \
    return {t.x / square, t.y / square};                                                                 \
  }                                                                                                      \
  inline type cuCfma##suffix(type a, type b, type c) { return cuCadd##suffix(cuCmul##suffix(a, b), c); }

DEVCOMM_SIM_COMPLEX(cuFloatComplex, float2, float, f)
DEVCOMM_SIM_COMPLEX(cuDoubleComplex, double2, double, )
#undef DEVCOMM_SIM_COMPLEX

using cuComplex = cuFloatComplex;
inline cuComplex make_cuComplex(float real, float imaginary) { return {real, imaginary}; }
