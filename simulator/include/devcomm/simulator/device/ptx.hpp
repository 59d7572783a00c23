/// \file ptx.hpp
/// Instructions of PTX as functions: what `devcomm_translate.py` makes of the inline PTX in CUB's headers.
#pragma once

#include <devcomm/simulator/detail/execution.hpp>
#include <devcomm/simulator/detail/scope.hpp>
#include <devcomm/simulator/device/warp.hpp>

#include <cstdint>
#include <type_traits>

namespace devcomm::simulator::detail::ptx {

/// The bits of a register, as a register of another type: as many of them as both have.
template <class To, class From>
To as(const From& from) {
  if constexpr (std::is_arithmetic_v<From> && std::is_integral_v<To> && std::is_integral_v<From>) {
    return static_cast<To>(from);
  } else if constexpr (sizeof(To) == sizeof(From)) {
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
  } else {
    To to{};
    __builtin_memcpy(&to, &from, sizeof to < sizeof from ? sizeof to : sizeof from);
    return to;
  }
}

/// Of a load with this modifier, such as "nc": what is not coherent reads as `__ldg` does.
__attribute__((always_inline)) inline void note_load(const char* modifier, unsigned long long address,
                                                     unsigned long bytes) {
  const char* last = modifier;  // "nc" of "global.nc"
  for (const char* at = modifier; *at != 0; ++at) {
    if (*at == '.') last = at + 1;
  }
  if (last[0] == 'n' && last[1] == 'c' && last[2] == 0) read_only(reinterpret_cast<const void*>(address), bytes);
}

/// What an instruction writes to an operand of the program.
template <class To, class From>
void set(To& to, From from) {
  to = as<To>(from);
}

template <int Bits>
unsigned long long low(unsigned long long value) {
  return value & ((1ull << Bits) - 1);
}
template <int Bits>
unsigned long long high(unsigned long long value) {
  return value >> Bits;
}
inline unsigned long long pack(unsigned low, unsigned high) {
  return static_cast<unsigned long long>(high) << 32 | low;
}
inline unsigned pack(unsigned short low, unsigned short high) { return static_cast<unsigned>(high) << 16 | low; }

/// Shifts by more than the register has bits give 0, or the sign.
template <class T>
T shl(T value, unsigned by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(value << by);
}
template <class T>
T shr(T value, unsigned by) {
  if (by >= 8 * sizeof(T)) return value < T{0} ? static_cast<T>(-1) : T{0};
  return static_cast<T>(value >> by);
}
inline unsigned bfe(unsigned value, unsigned start, unsigned bits) {
  start &= 0xffu;
  bits &= 0xffu;
  const unsigned shifted = shr(value, start);
  return bits >= 32 ? shifted : shifted & ((1u << bits) - 1);
}

/// `shfl.sync`: `control` has the last lane of the segment and, from bit 8 on, the mask of segments.
struct shuffle_lanes {
  explicit shuffle_lanes(unsigned control)
      : lane(own_lane()),
        segment_mask(static_cast<int>(control >> 8 & 31u)),
        first(lane & segment_mask),
        last(first | (static_cast<int>(control & 31u) & ~segment_mask)) {}
  int lane;
  int segment_mask;
  int first;
  int last;
};
inline unsigned shuffle(bool& valid, bool within, unsigned value, int source, unsigned mask) {
  valid = within;
  return shuffle_from(mask, value, within ? source : own_lane());
}
inline unsigned shfl_up(bool& valid, unsigned value, unsigned by, unsigned control, unsigned mask) {
  const shuffle_lanes lanes(control);
  const int source = lanes.lane - static_cast<int>(by & 31u);
  return shuffle(valid, source >= lanes.last, value, source, mask);
}
inline unsigned shfl_down(bool& valid, unsigned value, unsigned by, unsigned control, unsigned mask) {
  const shuffle_lanes lanes(control);
  const int source = lanes.lane + static_cast<int>(by & 31u);
  return shuffle(valid, source <= lanes.last, value, source, mask);
}
inline unsigned shfl_bfly(bool& valid, unsigned value, unsigned bits, unsigned control, unsigned mask) {
  const shuffle_lanes lanes(control);
  const int source = lanes.lane ^ static_cast<int>(bits & 31u);
  return shuffle(valid, source <= lanes.last, value, source, mask);
}
inline unsigned shfl_idx(bool& valid, unsigned value, unsigned from, unsigned control, unsigned mask) {
  const shuffle_lanes lanes(control);
  const int source = lanes.first | (static_cast<int>(from & 31u) & ~lanes.segment_mask);
  return shuffle(valid, source <= lanes.last, value, source, mask);
}

// Special registers.
inline unsigned special_laneid() { return static_cast<unsigned>(own_lane()); }
inline unsigned special_lanemask_eq() { return 1u << own_lane(); }
inline unsigned special_lanemask_lt() { return special_lanemask_eq() - 1; }
inline unsigned special_lanemask_le() { return special_lanemask_lt() | special_lanemask_eq(); }
inline unsigned special_lanemask_gt() { return ~special_lanemask_le(); }
inline unsigned special_lanemask_ge() { return ~special_lanemask_lt(); }

}  // namespace devcomm::simulator::detail::ptx
