/// \file cuda_fp16.h
/// The simulator's `__half` and `__half2`: the types, conversions, arithmetic and comparisons of CUDA's header
/// of this name. What is not here does not compile.
#pragma once

#include <cuda_runtime.h>
#include <devcomm/simulator/small_float.hpp>

#include <cstdint>

struct __half_raw {
  unsigned short x;
};

struct alignas(2) __half {
  __half() = default;
  __half(__half_raw raw) : bits(raw.x) {}
  __half(float value) : bits(devcomm::simulator::half_format::from_float(value)) {}
  __half(double value) : bits(devcomm::simulator::half_format::from_double(value)) {}
  __half(int value) : __half(static_cast<double>(value)) {}
  __half(unsigned value) : __half(static_cast<double>(value)) {}
  __half(short value) : __half(static_cast<double>(value)) {}
  __half(unsigned short value) : __half(static_cast<double>(value)) {}

  operator float() const { return devcomm::simulator::half_format::to_float(bits); }
  operator __half_raw() const { return {bits}; }
  explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
  explicit operator int() const { return static_cast<int>(static_cast<float>(*this)); }
  explicit operator bool() const { return (bits & 0x7fff) != 0; }

  std::uint16_t bits;
};

struct alignas(4) __half2 {
  __half2() = default;
  __half2(__half low, __half high) : x(low), y(high) {}

  __half x;
  __half y;
};

using half = __half;
using half2 = __half2;

inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline __half __double2half(double value) { return __half(value); }
inline __half __int2half_rn(int value) { return __half(value); }
inline __half __uint2half_rn(unsigned value) { return __half(value); }
inline float __half2float(__half value) { return static_cast<float>(value); }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline short __half_as_short(__half value) { return static_cast<short>(value.bits); }
inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
inline __half __short_as_half(short bits) { return __half(__half_raw{static_cast<unsigned short>(bits)}); }

inline __half __hadd(__half a, __half b) { return __half(static_cast<float>(a) + static_cast<float>(b)); }
inline __half __hsub(__half a, __half b) { return __half(static_cast<float>(a) - static_cast<float>(b)); }
inline __half __hmul(__half a, __half b) { return __half(static_cast<float>(a) * static_cast<float>(b)); }
inline __half __hdiv(__half a, __half b) { return __half(static_cast<float>(a) / static_cast<float>(b)); }
inline __half __hfma(__half a, __half b, __half c) {
  return __half(__half_raw{devcomm::simulator::half_format::fused_multiply_add(a, b, c)});
}
inline __half __hneg(__half a) { return __half(__half_raw{static_cast<unsigned short>(a.bits ^ 0x8000)}); }
inline __half __habs(__half a) { return __half(__half_raw{static_cast<unsigned short>(a.bits & 0x7fff)}); }
inline bool __hisnan(__half a) { return (a.bits & 0x7fff) > devcomm::simulator::half_format::infinity; }
inline int __hisinf(__half a) {
  if ((a.bits & 0x7fff) != devcomm::simulator::half_format::infinity) return 0;
  return (a.bits & 0x8000) != 0 ? -1 : 1;
}
/// The number where one operand is NaN; +0 is greater than -0.
inline __half __hmax(__half a, __half b) {
  if (__hisnan(a) || __hisnan(b)) return __hisnan(a) ? (__hisnan(b) ? __ushort_as_half(0x7fff) : b) : a;
  if (static_cast<float>(a) == static_cast<float>(b)) return (a.bits & 0x8000) != 0 ? b : a;
  return static_cast<float>(a) > static_cast<float>(b) ? a : b;
}
inline __half __hmin(__half a, __half b) {
  if (__hisnan(a) || __hisnan(b)) return __hisnan(a) ? (__hisnan(b) ? __ushort_as_half(0x7fff) : b) : a;
  if (static_cast<float>(a) == static_cast<float>(b)) return (a.bits & 0x8000) != 0 ? a : b;
  return static_cast<float>(a) < static_cast<float>(b) ? a : b;
}
inline bool __heq(__half a, __half b) { return static_cast<float>(a) == static_cast<float>(b); }
inline bool __hlt(__half a, __half b) { return static_cast<float>(a) < static_cast<float>(b); }
inline bool __hle(__half a, __half b) { return static_cast<float>(a) <= static_cast<float>(b); }
inline bool __hgt(__half a, __half b) { return static_cast<float>(a) > static_cast<float>(b); }
inline bool __hge(__half a, __half b) { return static_cast<float>(a) >= static_cast<float>(b); }
/// False when an operand is NaN, as `__hne` of the hardware is.
inline bool __hne(__half a, __half b) {
  return !__hisnan(a) && !__hisnan(b) && static_cast<float>(a) != static_cast<float>(b);
}

inline __half operator+(__half a, __half b) { return __hadd(a, b); }
inline __half& operator+=(__half& a, __half b) { return a = __hadd(a, b); }
inline __half operator-(__half a, __half b) { return __hsub(a, b); }
inline __half& operator-=(__half& a, __half b) { return a = __hsub(a, b); }
inline __half operator*(__half a, __half b) { return __hmul(a, b); }
inline __half& operator*=(__half& a, __half b) { return a = __hmul(a, b); }
inline __half operator/(__half a, __half b) { return __hdiv(a, b); }
inline __half& operator/=(__half& a, __half b) { return a = __hdiv(a, b); }
inline __half operator-(__half a) { return __hneg(a); }
inline __half operator+(__half a) { return a; }
inline bool operator==(__half a, __half b) { return __heq(a, b); }
inline bool operator<(__half a, __half b) { return __hlt(a, b); }
inline bool operator<=(__half a, __half b) { return __hle(a, b); }
inline bool operator>(__half a, __half b) { return __hgt(a, b); }
inline bool operator>=(__half a, __half b) { return __hge(a, b); }
inline bool operator!=(__half a, __half b) { return static_cast<float>(a) != static_cast<float>(b); }

inline __half2 __halves2half2(__half low, __half high) { return {low, high}; }
inline __half2 __half2half2(__half both) { return {both, both}; }
inline __half __low2half(__half2 pair) { return pair.x; }
inline __half __high2half(__half2 pair) { return pair.y; }
inline float __low2float(__half2 pair) { return static_cast<float>(pair.x); }
inline float __high2float(__half2 pair) { return static_cast<float>(pair.y); }
inline __half2 __float2half2_rn(float both) { return {__half(both), __half(both)}; }
inline __half2 __floats2half2_rn(float low, float high) { return {__half(low), __half(high)}; }
inline __half2 __float22half2_rn(float2 pair) { return {__half(pair.x), __half(pair.y)}; }
inline float2 __half22float2(__half2 pair) { return {static_cast<float>(pair.x), static_cast<float>(pair.y)}; }
inline __half2 __hadd2(__half2 a, __half2 b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }
inline __half2 __hsub2(__half2 a, __half2 b) { return {__hsub(a.x, b.x), __hsub(a.y, b.y)}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
inline __half2 __h2div(__half2 a, __half2 b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
inline __half2 __hneg2(__half2 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }
inline __half2 operator+(__half2 a, __half2 b) { return __hadd2(a, b); }
inline __half2& operator+=(__half2& a, __half2 b) { return a = __hadd2(a, b); }
inline __half2 operator-(__half2 a, __half2 b) { return __hsub2(a, b); }
inline __half2& operator-=(__half2& a, __half2 b) { return a = __hsub2(a, b); }
inline __half2 operator*(__half2 a, __half2 b) { return __hmul2(a, b); }
inline __half2& operator*=(__half2& a, __half2 b) { return a = __hmul2(a, b); }
inline __half2 operator/(__half2 a, __half2 b) { return __h2div(a, b); }
inline __half2& operator/=(__half2& a, __half2 b) { return a = __h2div(a, b); }
inline bool operator==(__half2 a, __half2 b) { return a.x == b.x && a.y == b.y; }
inline bool operator!=(__half2 a, __half2 b) { return a.x != b.x && a.y != b.y; }
