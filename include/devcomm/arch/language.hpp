/// \file language.hpp
/// What the headers use of a standard library. NVRTC has none of its own, and libcu++'s `<cuda/std/type_traits>` adds
/// two seconds to an nvcc compilation, so each compiler gets what it has.
#pragma once

#include <devcomm/config.hpp>

#if defined(__CUDACC_RTC__)
#  include <cuda/std/type_traits>
namespace devcomm::detail {
namespace traits = cuda::std;
}
#else
#  include <type_traits>
#  include <utility>
namespace devcomm::detail {
namespace traits = std;
}
#endif

namespace devcomm::detail {

template <class T>
inline constexpr bool is_trivially_copyable = traits::is_trivially_copyable<T>::value;
template <class T>
inline constexpr bool is_arithmetic = traits::is_arithmetic<T>::value;
template <class T>
inline constexpr bool is_integral = traits::is_integral<T>::value;
template <class T>
inline constexpr bool is_floating_point = traits::is_floating_point<T>::value;
template <class T, class U>
inline constexpr bool is_same = traits::is_same<T, U>::value;
template <bool Condition, class Then, class Else>
using conditional_t = typename traits::conditional<Condition, Then, Else>::type;
template <bool Condition>
using enable_if_t = typename traits::enable_if<Condition, int>::type;
template <class... T>
using void_t = traits::void_t<T...>;
using traits::declval;

/// A number as a type.
template <int Value>
struct constant {
  static constexpr int value = Value;
};

/// Copies `bytes` bytes; NVRTC has `memcpy` of its own and no built-in of GCC's.
DEVCOMM_HOST_DEVICE inline void copy_bytes(void* to, const void* from, size_t bytes) {
#if defined(__CUDACC_RTC__)
  memcpy(to, from, bytes);
#else
  __builtin_memcpy(to, from, bytes);
#endif
}

}  // namespace devcomm::detail
