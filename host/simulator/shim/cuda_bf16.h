/// \file cuda_bf16.h
/// The simulator's `__nv_bfloat16` and `__nv_bfloat162`: the types, conversions, arithmetic and comparisons of CUDA's
/// header of this name. What is not here does not compile.
#pragma once

#include <cuda_runtime.h>
#include <devcomm/simulator/small_float.hpp>

#include <cstdint>

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
  __nv_bfloat16() = default;
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
  __nv_bfloat16(float value) : bits(devcomm::simulator::bfloat16_format::from_float(value)) {}
  __nv_bfloat16(double value) : bits(devcomm::simulator::bfloat16_format::from_double(value)) {}
  __nv_bfloat16(int value) : __nv_bfloat16(static_cast<double>(value)) {}
  __nv_bfloat16(unsigned value) : __nv_bfloat16(static_cast<double>(value)) {}
  __nv_bfloat16(short value) : __nv_bfloat16(static_cast<double>(value)) {}
  __nv_bfloat16(unsigned short value) : __nv_bfloat16(static_cast<double>(value)) {}

  operator float() const { return devcomm::simulator::bfloat16_format::to_float(bits); }
  operator __nv_bfloat16_raw() const { return {bits}; }
  explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
  explicit operator int() const { return static_cast<int>(static_cast<float>(*this)); }
  explicit operator bool() const { return (bits & 0x7fff) != 0; }

  std::uint16_t bits;
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) : x(low), y(high) {}

  __nv_bfloat16 x;
  __nv_bfloat16 y;
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __double2bfloat16(double value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __int2bfloat16_rn(int value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return static_cast<float>(value); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline short __bfloat16_as_short(__nv_bfloat16 value) { return static_cast<short>(value.bits); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16(__nv_bfloat16_raw{bits}); }
inline __nv_bfloat16 __short_as_bfloat16(short bits) {
  return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(bits)});
}

inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __nv_bfloat16(static_cast<float>(a) + static_cast<float>(b));
}
inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __nv_bfloat16(static_cast<float>(a) - static_cast<float>(b));
}
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __nv_bfloat16(static_cast<float>(a) * static_cast<float>(b));
}
inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __nv_bfloat16(static_cast<float>(a) / static_cast<float>(b));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __nv_bfloat16(__nv_bfloat16_raw{devcomm::simulator::bfloat16_format::fused_multiply_add(a, b, c)});
}
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) {
  return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(a.bits ^ 0x8000)});
}
inline __nv_bfloat16 __habs(__nv_bfloat16 a) {
  return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(a.bits & 0x7fff)});
}
inline bool __hisnan(__nv_bfloat16 a) { return (a.bits & 0x7fff) > devcomm::simulator::bfloat16_format::infinity; }
inline int __hisinf(__nv_bfloat16 a) {
  if ((a.bits & 0x7fff) != devcomm::simulator::bfloat16_format::infinity) return 0;
  return (a.bits & 0x8000) != 0 ? -1 : 1;
}
/// The number where one operand is NaN; +0 is greater than -0.
inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) {
  if (__hisnan(a) || __hisnan(b)) return __hisnan(a) ? (__hisnan(b) ? __ushort_as_bfloat16(0x7fff) : b) : a;
  if (static_cast<float>(a) == static_cast<float>(b)) return (a.bits & 0x8000) != 0 ? b : a;
  return static_cast<float>(a) > static_cast<float>(b) ? a : b;
}
inline __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) {
  if (__hisnan(a) || __hisnan(b)) return __hisnan(a) ? (__hisnan(b) ? __ushort_as_bfloat16(0x7fff) : b) : a;
  if (static_cast<float>(a) == static_cast<float>(b)) return (a.bits & 0x8000) != 0 ? a : b;
  return static_cast<float>(a) < static_cast<float>(b) ? a : b;
}
inline bool __heq(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) == static_cast<float>(b); }
inline bool __hlt(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) < static_cast<float>(b); }
inline bool __hle(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) <= static_cast<float>(b); }
inline bool __hgt(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) > static_cast<float>(b); }
inline bool __hge(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) >= static_cast<float>(b); }
/// False when an operand is NaN, as `__hne` of the hardware is.
inline bool __hne(__nv_bfloat16 a, __nv_bfloat16 b) {
  return !__hisnan(a) && !__hisnan(b) && static_cast<float>(a) != static_cast<float>(b);
}

inline __nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b) { return __hadd(a, b); }
inline __nv_bfloat16& operator+=(__nv_bfloat16& a, __nv_bfloat16 b) { return a = __hadd(a, b); }
inline __nv_bfloat16 operator-(__nv_bfloat16 a, __nv_bfloat16 b) { return __hsub(a, b); }
inline __nv_bfloat16& operator-=(__nv_bfloat16& a, __nv_bfloat16 b) { return a = __hsub(a, b); }
inline __nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b) { return __hmul(a, b); }
inline __nv_bfloat16& operator*=(__nv_bfloat16& a, __nv_bfloat16 b) { return a = __hmul(a, b); }
inline __nv_bfloat16 operator/(__nv_bfloat16 a, __nv_bfloat16 b) { return __hdiv(a, b); }
inline __nv_bfloat16& operator/=(__nv_bfloat16& a, __nv_bfloat16 b) { return a = __hdiv(a, b); }
inline __nv_bfloat16 operator-(__nv_bfloat16 a) { return __hneg(a); }
inline __nv_bfloat16 operator+(__nv_bfloat16 a) { return a; }
inline bool operator==(__nv_bfloat16 a, __nv_bfloat16 b) { return __heq(a, b); }
inline bool operator<(__nv_bfloat16 a, __nv_bfloat16 b) { return __hlt(a, b); }
inline bool operator<=(__nv_bfloat16 a, __nv_bfloat16 b) { return __hle(a, b); }
inline bool operator>(__nv_bfloat16 a, __nv_bfloat16 b) { return __hgt(a, b); }
inline bool operator>=(__nv_bfloat16 a, __nv_bfloat16 b) { return __hge(a, b); }
inline bool operator!=(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) != static_cast<float>(b); }

inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) { return {low, high}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 both) { return {both, both}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 pair) { return pair.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 pair) { return pair.y; }
inline float __low2float(__nv_bfloat162 pair) { return static_cast<float>(pair.x); }
inline float __high2float(__nv_bfloat162 pair) { return static_cast<float>(pair.y); }
inline __nv_bfloat162 __float2bfloat162_rn(float both) { return {__nv_bfloat16(both), __nv_bfloat16(both)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) { return {__nv_bfloat16(low), __nv_bfloat16(high)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 pair) { return {__nv_bfloat16(pair.x), __nv_bfloat16(pair.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 pair) {
  return {static_cast<float>(pair.x), static_cast<float>(pair.y)};
}
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hsub(a.x, b.x), __hsub(a.y, b.y)}; }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
inline __nv_bfloat162 __h2div(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline __nv_bfloat162 __hmin2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
inline __nv_bfloat162 __hneg2(__nv_bfloat162 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline __nv_bfloat162 __habs2(__nv_bfloat162 a) { return {__habs(a.x), __habs(a.y)}; }
inline __nv_bfloat162 operator+(__nv_bfloat162 a, __nv_bfloat162 b) { return __hadd2(a, b); }
inline __nv_bfloat162& operator+=(__nv_bfloat162& a, __nv_bfloat162 b) { return a = __hadd2(a, b); }
inline __nv_bfloat162 operator-(__nv_bfloat162 a, __nv_bfloat162 b) { return __hsub2(a, b); }
inline __nv_bfloat162& operator-=(__nv_bfloat162& a, __nv_bfloat162 b) { return a = __hsub2(a, b); }
inline __nv_bfloat162 operator*(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmul2(a, b); }
inline __nv_bfloat162& operator*=(__nv_bfloat162& a, __nv_bfloat162 b) { return a = __hmul2(a, b); }
inline __nv_bfloat162 operator/(__nv_bfloat162 a, __nv_bfloat162 b) { return __h2div(a, b); }
inline __nv_bfloat162& operator/=(__nv_bfloat162& a, __nv_bfloat162 b) { return a = __h2div(a, b); }
inline bool operator==(__nv_bfloat162 a, __nv_bfloat162 b) { return a.x == b.x && a.y == b.y; }
inline bool operator!=(__nv_bfloat162 a, __nv_bfloat162 b) { return a.x != b.x && a.y != b.y; }
