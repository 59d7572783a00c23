/// \file cuda_fp8.h
/// CUDA's 8-bit floating-point types, for the simulator.
#pragma once

#include <devcomm/simulator/device/fp8.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_types.h>

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

using __nv_fp8_e5m2 = devcomm::simulator::detail::fp8<5, 2>;
using __nv_fp8_e4m3 = devcomm::simulator::detail::fp8<4, 3>;

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate,
                                                 __nv_fp8_interpretation_t interpretation) {
  return interpretation == __NV_E4M3 ? __nv_fp8_e4m3::format::encode(x, saturate == __NV_SATFINITE)
                                     : __nv_fp8_e5m2::format::encode(x, saturate == __NV_SATFINITE);
}
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                __nv_fp8_interpretation_t interpretation) {
  return interpretation == __NV_E4M3 ? __nv_fp8_e4m3::format::encode(x, saturate == __NV_SATFINITE)
                                     : __nv_fp8_e5m2::format::encode(x, saturate == __NV_SATFINITE);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate,
                                                  __nv_fp8_interpretation_t interpretation) {
  return __nv_cvt_float_to_fp8(__half(x), saturate, interpretation);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturate,
                                                      __nv_fp8_interpretation_t interpretation) {
  return __nv_cvt_float_to_fp8(__nv_bfloat16(x), saturate, interpretation);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t interpretation) {
  return __half(interpretation == __NV_E4M3 ? __nv_fp8_e4m3::format::decode(x) : __nv_fp8_e5m2::format::decode(x));
}

// The first of two, or four, in the lowest bits.
inline __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 x, __nv_saturation_t saturate,
                                                      __nv_fp8_interpretation_t interpretation) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_double_to_fp8(x.x, saturate, interpretation) |
                                           __nv_cvt_double_to_fp8(x.y, saturate, interpretation) << 8);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturate,
                                                     __nv_fp8_interpretation_t interpretation) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_float_to_fp8(x.x, saturate, interpretation) |
                                           __nv_cvt_float_to_fp8(x.y, saturate, interpretation) << 8);
}
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t interpretation) {
  return __nv_cvt_float2_to_fp8x2(__half22float2(x), saturate, interpretation);
}
inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw x, __nv_saturation_t saturate,
                                                           __nv_fp8_interpretation_t interpretation) {
  return __nv_cvt_float2_to_fp8x2(__bfloat1622float2(x), saturate, interpretation);
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t interpretation) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x), interpretation).x,
          __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x >> 8), interpretation).x};
}

namespace devcomm::simulator::detail {

template <__nv_fp8_interpretation_t Interpretation>
struct alignas(2) fp8_pair {
  __nv_fp8x2_storage_t __x;

  fp8_pair() = default;
  explicit fp8_pair(float2 x) : __x(__nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, Interpretation)) {}
  explicit fp8_pair(double2 x) : __x(__nv_cvt_double2_to_fp8x2(x, __NV_SATFINITE, Interpretation)) {}
  explicit fp8_pair(__half2 x) : __x(__nv_cvt_halfraw2_to_fp8x2(x, __NV_SATFINITE, Interpretation)) {}
  explicit fp8_pair(__nv_bfloat162 x) : __x(__nv_cvt_bfloat16raw2_to_fp8x2(x, __NV_SATFINITE, Interpretation)) {}
  explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, Interpretation); }
  explicit operator float2() const { return __half22float2(__nv_cvt_fp8x2_to_halfraw2(__x, Interpretation)); }
};

template <__nv_fp8_interpretation_t Interpretation>
struct alignas(4) fp8_quad {
  using pair = fp8_pair<Interpretation>;

  __nv_fp8x4_storage_t __x;

  fp8_quad() = default;
  explicit fp8_quad(float4 x) : fp8_quad(pair(float2{x.x, x.y}), pair(float2{x.z, x.w})) {}
  explicit fp8_quad(__half2 low, __half2 high) : fp8_quad(pair(low), pair(high)) {}
  explicit fp8_quad(__nv_bfloat162 low, __nv_bfloat162 high) : fp8_quad(pair(low), pair(high)) {}
  explicit operator float4() const {
    pair low;
    pair high;
    low.__x = static_cast<__nv_fp8x2_storage_t>(__x);
    high.__x = static_cast<__nv_fp8x2_storage_t>(__x >> 16);
    const auto xy = static_cast<float2>(low);
    const auto zw = static_cast<float2>(high);
    return {xy.x, xy.y, zw.x, zw.y};
  }

 private:
  fp8_quad(pair low, pair high) : __x(low.__x | __nv_fp8x4_storage_t{high.__x} << 16) {}
};

}  // namespace devcomm::simulator::detail

using __nv_fp8x2_e5m2 = devcomm::simulator::detail::fp8_pair<__NV_E5M2>;
using __nv_fp8x2_e4m3 = devcomm::simulator::detail::fp8_pair<__NV_E4M3>;
using __nv_fp8x4_e5m2 = devcomm::simulator::detail::fp8_quad<__NV_E5M2>;
using __nv_fp8x4_e4m3 = devcomm::simulator::detail::fp8_quad<__NV_E4M3>;
