/// \file warp.hpp
/// Shuffles, votes and matches among the lanes of a warp. They order no memory.
#pragma once

#include <devcomm/simulator/detail/execution.hpp>

#include <cstdint>

namespace devcomm::simulator::detail {

template <class T>
uint64_t to_bits(const T& value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T value;
  __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

inline int own_lane() { return static_cast<int>(thread_rank() % 32); }

/// `value` of lane `source`, which every lane computes for itself.
template <class T>
T shuffle_from(unsigned mask, T value, int source) {
  return from_bits<T>(warp_meet(warp_operation::shuffle, mask, to_bits(value), static_cast<uint32_t>(source)));
}

/// First lane of the caller's segment of `width` lanes.
inline int segment(int width) {
  if (width <= 0 || width > 32 || (width & (width - 1)) != 0)
    fail_misuse("the width of a shuffle must be 1, 2, 4, 8, 16 or 32");
  return own_lane() & ~(width - 1);
}

/// Types that CUDA shuffles: arithmetic ones of 4 or 8 bytes, and the 2- and 4-byte floats of cuda_fp16.h
/// and cuda_bf16.h, which say so.
template <class T>
struct shuffles : std::bool_constant<std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)> {};
template <class T>
using shuffled = std::enable_if_t<shuffles<T>::value>;

}  // namespace devcomm::simulator::detail

template <class T, class = devcomm::simulator::detail::shuffled<T>>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  using namespace devcomm::simulator::detail;
  return shuffle_from(mask, value, segment(width) | (source & (width - 1)));
}
template <class T, class = devcomm::simulator::detail::shuffled<T>>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  using namespace devcomm::simulator::detail;
  const int source = own_lane() - static_cast<int>(delta);
  return shuffle_from(mask, value, source < segment(width) ? own_lane() : source);
}
template <class T, class = devcomm::simulator::detail::shuffled<T>>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  using namespace devcomm::simulator::detail;
  const int source = own_lane() + static_cast<int>(delta);
  return shuffle_from(mask, value, source >= segment(width) + width ? own_lane() : source);
}
template <class T, class = devcomm::simulator::detail::shuffled<T>>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  using namespace devcomm::simulator::detail;
  const int source = own_lane() ^ bits;
  return shuffle_from(mask, value, source >= segment(width) + width ? own_lane() : source);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using namespace devcomm::simulator::detail;
  return static_cast<unsigned>(warp_meet(warp_operation::ballot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate == 0) == 0; }
template <class T, class = devcomm::simulator::detail::shuffled<T>>
inline unsigned __match_any_sync(unsigned mask, T value) {
  using namespace devcomm::simulator::detail;
  return static_cast<unsigned>(warp_meet(warp_operation::match, mask, to_bits(value), 0));
}
template <class T, class = devcomm::simulator::detail::shuffled<T>>
inline unsigned __match_all_sync(unsigned mask, T value, int* all) {
  const unsigned equal = __match_any_sync(mask, value);
  *all = __all_sync(mask, equal == __ballot_sync(mask, 1));
  return *all != 0 ? equal : 0;
}

#define DEVCOMM_SIMULATOR_REDUCE(name, T, expression)                                         \
  inline T name(unsigned mask, T value) {                                                     \
    T a = value;                                                                              \
    bool first = true;                                                                        \
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {                                 \
      const T b = devcomm::simulator::detail::shuffle_from(mask, value, __builtin_ctz(rest)); \
      a = first ? b : static_cast<T>(expression);                                             \
      first = false;                                                                          \
    }                                                                                         \
    return a;                                                                                 \
  }
DEVCOMM_SIMULATOR_REDUCE(__reduce_add_sync, unsigned, a + b)
DEVCOMM_SIMULATOR_REDUCE(__reduce_add_sync, int, static_cast<unsigned>(a) + static_cast<unsigned>(b))
DEVCOMM_SIMULATOR_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
DEVCOMM_SIMULATOR_REDUCE(__reduce_min_sync, int, a < b ? a : b)
DEVCOMM_SIMULATOR_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
DEVCOMM_SIMULATOR_REDUCE(__reduce_max_sync, int, a > b ? a : b)
DEVCOMM_SIMULATOR_REDUCE(__reduce_and_sync, unsigned, a& b)
DEVCOMM_SIMULATOR_REDUCE(__reduce_or_sync, unsigned, a | b)
DEVCOMM_SIMULATOR_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef DEVCOMM_SIMULATOR_REDUCE

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  using namespace devcomm::simulator::detail;
  warp_meet(warp_operation::sync, mask, 0, 0);
}
/// As many lanes as reach this call without waiting for each other.
DEVCOMM_SIMULATOR_CONVERGENT inline unsigned __activemask() {
  return devcomm::simulator::detail::converged_lanes(__builtin_return_address(0));
}
