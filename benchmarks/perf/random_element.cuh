/// \file random_element.cuh
/// Random elements as a function of their place, and what rounding may do to them.
#pragma once

#include "perf/data_type.hpp"

#include <devcomm/arch/language.hpp>

#include <cstdint>

namespace perf {

/// A well mixed word for each seed, rank and place (the finalizer of splitmix64).
__device__ inline std::uint64_t mix(std::uint64_t seed, int rank, std::uint64_t i) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xd1342543de82ef95u + i;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class T>
__device__ T random_element(std::uint64_t seed, int rank, std::uint64_t i) {
  const std::uint64_t word = mix(seed, rank, i);
  if constexpr (devcomm::detail::is_same<T, std::int32_t>) {
    return static_cast<T>(word % 201) - 100;
  } else if constexpr (devcomm::detail::is_same<T, double>) {
    return static_cast<double>(word >> 11) * 0x1p-52 - 1.0;
  } else {
    return static_cast<T>(static_cast<float>(word >> 40) * 0x1p-23f - 1.0f);
  }
}

/// Half the distance from 1 to the next number.
template <class T>
inline constexpr double rounding = devcomm::detail::is_same<T, double>          ? 0x1p-53
                                   : devcomm::detail::is_same<T, float>         ? 0x1p-24
                                   : devcomm::detail::is_same<T, __half>        ? 0x1p-11
                                   : devcomm::detail::is_same<T, __nv_bfloat16> ? 0x1p-8
                                                                                : 0;

template <class T>
__device__ double to_double(T value) {
  if constexpr (sizeof(T) == 2) {
    return static_cast<float>(value);
  } else {
    return static_cast<double>(value);
  }
}

}  // namespace perf
