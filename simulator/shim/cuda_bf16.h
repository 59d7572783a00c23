/// \file cuda_bf16.h
/// CUDA's bfloat16, for the simulator.
#pragma once

#include <devcomm/simulator/device/small_float_functions.hpp>

#include <vector_types.h>

/// The bits of a `__nv_bfloat16`.
struct __nv_bfloat16_raw {
  unsigned short x;
};

using __nv_bfloat16 = devcomm::simulator::detail::small_float<8, 7, __nv_bfloat16_raw>;

/// The bits of two.
struct __nv_bfloat162_raw {
  unsigned short x, y;
};
template <>
struct devcomm::simulator::detail::raw_pair<__nv_bfloat16> {
  using type = __nv_bfloat162_raw;
};

using __nv_bfloat162 = devcomm::simulator::detail::small_pair<__nv_bfloat16>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float a) { return __nv_bfloat16(a); }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16(a); }
inline __nv_bfloat16 __double2bfloat16(double a) { return __nv_bfloat16(a); }
inline float __bfloat162float(__nv_bfloat16 a) { return a; }
inline __nv_bfloat16 __int2bfloat16_rn(int a) { return __nv_bfloat16(a); }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned a) { return __nv_bfloat16(a); }
inline int __bfloat162int_rn(__nv_bfloat16 a) { return static_cast<int>(std::nearbyint(float{a})); }
inline int __bfloat162int_rz(__nv_bfloat16 a) { return static_cast<int>(float{a}); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.bits; }
inline short __bfloat16_as_short(__nv_bfloat16 a) { return static_cast<short>(a.bits); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16::from_bits(a); }
inline __nv_bfloat16 __short_as_bfloat16(short a) { return __nv_bfloat16::from_bits(static_cast<unsigned short>(a)); }

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return {__nv_bfloat16(a), __nv_bfloat16(a)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {__nv_bfloat16(a.x), __nv_bfloat16(a.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return float2{a.x, a.y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return {a.x, a.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return {a.y, a.y}; }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return {a.y, a.x}; }
