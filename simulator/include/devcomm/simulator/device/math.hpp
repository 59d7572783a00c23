/// \file math.hpp
/// Mathematical and bit functions of CUDA that the C++ library lacks or names differently. The fast
/// ones are exact here; a GPU's differ in the last bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// CUDA's min and max mix signed and unsigned arguments as C does.
#define DEVCOMM_SIMULATOR_MIN_MAX(A, B, R)                                                                         \
  inline R min(A a, B b) { return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); } \
  inline R max(A a, B b) { return static_cast<R>(a) > static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); }
DEVCOMM_SIMULATOR_MIN_MAX(int, int, int)
DEVCOMM_SIMULATOR_MIN_MAX(unsigned, unsigned, unsigned)
DEVCOMM_SIMULATOR_MIN_MAX(int, unsigned, unsigned)
DEVCOMM_SIMULATOR_MIN_MAX(unsigned, int, unsigned)
DEVCOMM_SIMULATOR_MIN_MAX(long, long, long)
DEVCOMM_SIMULATOR_MIN_MAX(unsigned long, unsigned long, unsigned long)
DEVCOMM_SIMULATOR_MIN_MAX(long, unsigned long, unsigned long)
DEVCOMM_SIMULATOR_MIN_MAX(unsigned long, long, unsigned long)
DEVCOMM_SIMULATOR_MIN_MAX(long long, long long, long long)
DEVCOMM_SIMULATOR_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
DEVCOMM_SIMULATOR_MIN_MAX(long long, unsigned long long, unsigned long long)
DEVCOMM_SIMULATOR_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef DEVCOMM_SIMULATOR_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(float a, double b) { return std::fmin(static_cast<double>(a), b); }
inline double max(float a, double b) { return std::fmax(static_cast<double>(a), b); }
inline double min(double a, float b) { return std::fmin(a, static_cast<double>(b)); }
inline double max(double a, float b) { return std::fmax(a, static_cast<double>(b)); }

inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __tanf(float x) { return std::tan(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
inline float rcbrtf(float x) { return 1.0f / std::cbrt(x); }
inline float sinpif(float x) { return static_cast<float>(std::sin(static_cast<double>(x) * 3.14159265358979323846)); }
inline float cospif(float x) { return static_cast<float>(std::cos(static_cast<double>(x) * 3.14159265358979323846)); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
/// Of the 16-bit halves of two words.
#define DEVCOMM_SIMULATOR_HALVES(name, T, relation)                                     \
  inline unsigned name(unsigned a, unsigned b) {                                        \
    const auto low = static_cast<T>(a) relation static_cast<T>(b) ? a : b;              \
    const auto high = static_cast<T>(a >> 16) relation static_cast<T>(b >> 16) ? a : b; \
    return (high & 0xffff0000u) | (low & 0xffffu);                                      \
  }
DEVCOMM_SIMULATOR_HALVES(__vmins2, int16_t, <)
DEVCOMM_SIMULATOR_HALVES(__vminu2, uint16_t, <)
DEVCOMM_SIMULATOR_HALVES(__vmaxs2, int16_t, >)
DEVCOMM_SIMULATOR_HALVES(__vmaxu2, uint16_t, >)
#undef DEVCOMM_SIMULATOR_HALVES
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
inline int __mulhi(int a, int b) { return static_cast<int>((int64_t{a} * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>((static_cast<__int128>(a) * b) >> 64);
}
inline int __mul24(int a, int b) {
  return static_cast<int>(static_cast<unsigned>(a << 8 >> 8) * static_cast<unsigned>(b << 8 >> 8));
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline int __hadd(int a, int b) { return static_cast<int>((int64_t{a} + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((int64_t{a} + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} + b) >> 1); }
inline unsigned __sad(int a, int b, unsigned c) {
  return c + (a > b ? static_cast<unsigned>(a) - static_cast<unsigned>(b)
                    : static_cast<unsigned>(b) - static_cast<unsigned>(a));
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
/// Of `high` and `low` in a row: 32 bits, shifted by `by` modulo 32, or, with `c` at the end, by at most 32.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>(((uint64_t{high} << 32 | low) << (by & 31u)) >> 32);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>(((uint64_t{high} << 32 | low) << (by < 32 ? by : 32u)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (by & 31u));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (by < 32 ? by : 32u));
}
/// Sums of products of the bytes of two words.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 0xffu) * (b >> (8 * i) & 0xffu);
  return c;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} * b) >> 32); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i);
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (s & 7u))) & 0xffu;
    if ((s & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0u;
    r |= byte << (8 * i);
  }
  return r;
}

namespace devcomm::simulator::detail {
template <class To, class From>
To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}
}  // namespace devcomm::simulator::detail
inline int __float_as_int(float x) { return devcomm::simulator::detail::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return devcomm::simulator::detail::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return devcomm::simulator::detail::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return devcomm::simulator::detail::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return devcomm::simulator::detail::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return devcomm::simulator::detail::same_bits<double>(x); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(
      static_cast<long long>(static_cast<uint64_t>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low)));
}
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }

namespace devcomm::simulator::detail {
/// As GPUs convert: what is too large becomes the largest, and NaN 0.
template <class To, class From>
To saturated(From value) {
  if (value != value) return 0;
  constexpr To lowest = std::numeric_limits<To>::lowest();
  constexpr To highest = std::numeric_limits<To>::max();
  if (value <= static_cast<From>(lowest)) return lowest;
  return value >= static_cast<From>(highest) ? highest : static_cast<To>(value);
}
}  // namespace devcomm::simulator::detail

#define DEVCOMM_SIMULATOR_ROUND(From, To, name)                                                            \
  inline To __##name##_rn(From x) { return devcomm::simulator::detail::saturated<To>(std::nearbyint(x)); } \
  inline To __##name##_rz(From x) { return devcomm::simulator::detail::saturated<To>(std::trunc(x)); }     \
  inline To __##name##_ru(From x) { return devcomm::simulator::detail::saturated<To>(std::ceil(x)); }      \
  inline To __##name##_rd(From x) { return devcomm::simulator::detail::saturated<To>(std::floor(x)); }
#define DEVCOMM_SIMULATOR_CONVERT(To, of_float, of_double)                     \
  DEVCOMM_SIMULATOR_ROUND(float, To, float2##of_float)                         \
  DEVCOMM_SIMULATOR_ROUND(double, To, double2##of_double)                      \
  inline float __##of_float##2float_rn(To x) { return static_cast<float>(x); } \
  inline double __##of_double##2double_rn(To x) { return static_cast<double>(x); }
DEVCOMM_SIMULATOR_CONVERT(int, int, int)
DEVCOMM_SIMULATOR_CONVERT(unsigned, uint, uint)
DEVCOMM_SIMULATOR_CONVERT(long long, ll, ll)
DEVCOMM_SIMULATOR_CONVERT(unsigned long long, ull, ull)
#undef DEVCOMM_SIMULATOR_CONVERT
#undef DEVCOMM_SIMULATOR_ROUND
inline float __double2float_rn(double x) { return static_cast<float>(x); }
