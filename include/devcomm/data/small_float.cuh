/// \file small_float.cuh
/// Which classes are floating-point types.
#pragma once

#include <devcomm/arch/arch.cuh>

namespace devcomm {

/// Whether `T` is a floating-point type of 1 or 2 bytes. True of `__half`, `__nv_bfloat16`, `__nv_fp8_e4m3` and
/// `__nv_fp8_e5m2`, whether or not their headers are included. Specialize it as true for a class of your own of which
/// all this holds: it converts to `float` exactly and from `float` with rounding, both by `static_cast`, and it is NaN
/// where all its bits are one, and where all but the highest or all but the lowest are (of 1 byte: all but the
/// highest).
template <class T>
inline constexpr bool is_small_float = arch::is_small_float<T>;

}  // namespace devcomm
