/// \file cuda_fp16.h
/// CUDA's half precision, for the simulator.
#pragma once

#include <devcomm/simulator/device/small_float_functions.hpp>

#include <vector_types.h>

/// The bits of a `__half`.
struct __half_raw {
  unsigned short x;
};

using __half = devcomm::simulator::detail::small_float<5, 10, __half_raw>;

/// The bits of two.
struct __half2_raw {
  unsigned short x, y;
};
template <>
struct devcomm::simulator::detail::raw_pair<__half> {
  using type = __half2_raw;
};

using __half2 = devcomm::simulator::detail::small_pair<__half>;
using half = __half;
using half2 = __half2;

inline __half __float2half(float a) { return __half(a); }
inline __half __float2half_rn(float a) { return __half(a); }
inline __half __double2half(double a) { return __half(a); }
inline float __half2float(__half a) { return a; }
inline __half __int2half_rn(int a) { return __half(a); }
inline __half __uint2half_rn(unsigned a) { return __half(a); }
inline int __half2int_rn(__half a) { return static_cast<int>(std::nearbyint(float{a})); }
inline int __half2int_rz(__half a) { return static_cast<int>(float{a}); }
inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline short __half_as_short(__half a) { return static_cast<short>(a.bits); }
inline __half __ushort_as_half(unsigned short a) { return __half::from_bits(a); }
inline __half __short_as_half(short a) { return __half::from_bits(static_cast<unsigned short>(a)); }

inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
inline float2 __half22float2(__half2 a) { return float2{a.x, a.y}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
