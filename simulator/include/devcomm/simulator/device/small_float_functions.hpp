/// \file small_float_functions.hpp
/// Functions that CUDA has for half precision and for bfloat16 under the same names.
#pragma once

#include <devcomm/simulator/device/atomics.hpp>
#include <devcomm/simulator/device/small_float.hpp>
#include <devcomm/simulator/device/warp.hpp>

#include <cmath>

namespace devcomm::simulator::detail {

template <int E, int M, class Raw>
struct shuffles<small_float<E, M, Raw>> : std::true_type {};
template <class T>
struct shuffles<small_pair<T>> : std::true_type {};

template <class T>
T smaller(T a, T b) {
  const float x = a;
  const float y = b;
  if (x != x) return b;
  if (y != y) return a;
  if (x == y) return (a.bits & 0x8000u) != 0 ? a : b;  // -0 is below +0
  return x < y ? a : b;
}
template <class T>
T larger(T a, T b) {
  const float x = a;
  const float y = b;
  if (x != x) return b;
  if (y != y) return a;
  if (x == y) return (a.bits & 0x8000u) != 0 ? b : a;
  return x > y ? a : b;
}

}  // namespace devcomm::simulator::detail

// Each for one number, and under the second name for a pair of them.
#define DEVCOMM_SIMULATOR_BINARY(name, name2, expression)                                               \
  template <class T, class = devcomm::simulator::detail::small<T>>                                      \
  inline T name(T a, T b) {                                                                             \
    return expression;                                                                                  \
  }                                                                                                     \
  template <class T, class = devcomm::simulator::detail::small<T>>                                      \
  inline devcomm::simulator::detail::small_pair<T> name2(devcomm::simulator::detail::small_pair<T> a,   \
                                                         devcomm::simulator::detail::small_pair<T> b) { \
    return {name(a.x, b.x), name(a.y, b.y)};                                                            \
  }
#define DEVCOMM_SIMULATOR_UNARY(name, name2, expression)                                                \
  template <class T, class = devcomm::simulator::detail::small<T>>                                      \
  inline T name(T a) {                                                                                  \
    return expression;                                                                                  \
  }                                                                                                     \
  template <class T, class = devcomm::simulator::detail::small<T>>                                      \
  inline devcomm::simulator::detail::small_pair<T> name2(devcomm::simulator::detail::small_pair<T> a) { \
    return {name(a.x), name(a.y)};                                                                      \
  }
#define DEVCOMM_SIMULATOR_COMPARE(name, operation)                 \
  template <class T, class = devcomm::simulator::detail::small<T>> \
  inline bool name(T a, T b) {                                     \
    return a operation b;                                          \
  }

DEVCOMM_SIMULATOR_BINARY(__hadd, __hadd2, a + b)
DEVCOMM_SIMULATOR_BINARY(__hadd_rn, __hadd2_rn, a + b)
DEVCOMM_SIMULATOR_BINARY(__hsub, __hsub2, a - b)
DEVCOMM_SIMULATOR_BINARY(__hmul, __hmul2, a* b)
DEVCOMM_SIMULATOR_BINARY(__hmul_rn, __hmul2_rn, a* b)
DEVCOMM_SIMULATOR_BINARY(__hdiv, __h2div, a / b)
DEVCOMM_SIMULATOR_BINARY(__hmin, __hmin2, devcomm::simulator::detail::smaller(a, b))
DEVCOMM_SIMULATOR_BINARY(__hmax, __hmax2, devcomm::simulator::detail::larger(a, b))
DEVCOMM_SIMULATOR_BINARY(__hmin_nan, __hmin2_nan, a != a || b != b ? T::from_bits(0x7fff) : __hmin(a, b))
DEVCOMM_SIMULATOR_BINARY(__hmax_nan, __hmax2_nan, a != a || b != b ? T::from_bits(0x7fff) : __hmax(a, b))
DEVCOMM_SIMULATOR_UNARY(__hneg, __hneg2, -a)
DEVCOMM_SIMULATOR_UNARY(__habs, __habs2, T::from_bits(a.bits & 0x7fffu))
DEVCOMM_SIMULATOR_UNARY(hsqrt, h2sqrt, T(std::sqrt(float{a})))
DEVCOMM_SIMULATOR_UNARY(hrsqrt, h2rsqrt, T(1.0 / std::sqrt(static_cast<double>(float{a}))))
DEVCOMM_SIMULATOR_UNARY(hrcp, h2rcp, T(1.0f / float{a}))
DEVCOMM_SIMULATOR_UNARY(hexp, h2exp, T(std::exp(static_cast<double>(float{a}))))
DEVCOMM_SIMULATOR_UNARY(hexp2, h2exp2, T(std::exp2(static_cast<double>(float{a}))))
DEVCOMM_SIMULATOR_UNARY(hlog, h2log, T(std::log(static_cast<double>(float{a}))))
DEVCOMM_SIMULATOR_UNARY(hlog2, h2log2, T(std::log2(static_cast<double>(float{a}))))
DEVCOMM_SIMULATOR_UNARY(hsin, h2sin, T(std::sin(static_cast<double>(float{a}))))
DEVCOMM_SIMULATOR_UNARY(hcos, h2cos, T(std::cos(static_cast<double>(float{a}))))
DEVCOMM_SIMULATOR_UNARY(hfloor, h2floor, T(std::floor(float{a})))
DEVCOMM_SIMULATOR_UNARY(hceil, h2ceil, T(std::ceil(float{a})))
DEVCOMM_SIMULATOR_UNARY(htrunc, h2trunc, T(std::trunc(float{a})))
DEVCOMM_SIMULATOR_UNARY(hrint, h2rint, T(std::nearbyint(float{a})))
DEVCOMM_SIMULATOR_COMPARE(__heq, ==)
DEVCOMM_SIMULATOR_COMPARE(__hne, !=)
DEVCOMM_SIMULATOR_COMPARE(__hlt, <)
DEVCOMM_SIMULATOR_COMPARE(__hle, <=)
DEVCOMM_SIMULATOR_COMPARE(__hgt, >)
DEVCOMM_SIMULATOR_COMPARE(__hge, >=)

#undef DEVCOMM_SIMULATOR_BINARY
#undef DEVCOMM_SIMULATOR_UNARY
#undef DEVCOMM_SIMULATOR_COMPARE

template <class T, class = devcomm::simulator::detail::small<T>>
inline T __hfma(T a, T b, T c) {
  return devcomm::simulator::detail::fused_multiply_add(a, b, c);
}
template <class T, class = devcomm::simulator::detail::small<T>>
inline devcomm::simulator::detail::small_pair<T> __hfma2(devcomm::simulator::detail::small_pair<T> a,
                                                         devcomm::simulator::detail::small_pair<T> b,
                                                         devcomm::simulator::detail::small_pair<T> c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <class T, class = devcomm::simulator::detail::small<T>>
inline T __hfma_relu(T a, T b, T c) {
  const T sum = __hfma(a, b, c);
  return sum < T(0.0f) ? T(0.0f) : sum;
}
template <class T, class = devcomm::simulator::detail::small<T>>
inline devcomm::simulator::detail::small_pair<T> __hfma2_relu(devcomm::simulator::detail::small_pair<T> a,
                                                              devcomm::simulator::detail::small_pair<T> b,
                                                              devcomm::simulator::detail::small_pair<T> c) {
  return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}
template <class T, class = devcomm::simulator::detail::small<T>>
inline bool __hisnan(T a) {
  return a != a;
}
template <class T, class = devcomm::simulator::detail::small<T>>
inline int __hisinf(T a) {
  return std::isinf(float{a}) ? (float{a} > 0 ? 1 : -1) : 0;
}
template <class T, class = devcomm::simulator::detail::small<T>>
inline float __low2float(devcomm::simulator::detail::small_pair<T> a) {
  return a.x;
}
template <class T, class = devcomm::simulator::detail::small<T>>
inline float __high2float(devcomm::simulator::detail::small_pair<T> a) {
  return a.y;
}

/// As in CUDA, relaxed; of a pair, each half by itself.
template <class T, class = devcomm::simulator::detail::small<T>>
inline T atomicAdd(T* p, T v) {
  using devcomm::simulator::detail::atomic_scope;
  return devcomm::simulator::detail::update<atomic_scope::device, uint16_t>(p, [v](T old) { return old + v; });
}
template <class T, class = devcomm::simulator::detail::small<T>>
inline devcomm::simulator::detail::small_pair<T> atomicAdd(devcomm::simulator::detail::small_pair<T>* p,
                                                           devcomm::simulator::detail::small_pair<T> v) {
  return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)};
}
