/// \file ptx.hpp
/// Instructions of PTX as functions: what `devcomm_ptx.py` makes of inline PTX.
#pragma once

#include <devcomm/simulator/detail/execution.hpp>
#include <devcomm/simulator/detail/scope.hpp>
#include <devcomm/simulator/device/atomics.hpp>
#include <devcomm/simulator/device/warp.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace devcomm::simulator::detail::ptx {

using detail::atomic_scope;

/// The bits of a register, as a register of another type: as many of them as both have.
template <class To, class From>
To as(From from) {
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
DEVCOMM_SIMULATOR_OF_CALLER void note_load(const char* modifier, const void* address, unsigned long bytes) {
  const char* last = modifier;  // "nc" of "global.nc"
  for (const char* at = modifier; *at != 0; ++at) {
    if (*at == '.') last = at + 1;
  }
  if (last[0] == 'n' && last[1] == 'c' && last[2] == 0) read_only(address, bytes);
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

// --- addresses ---

DEVCOMM_SIMULATOR_OF_CALLER void* at_generic(unsigned long long address, long long offset) {
  return reinterpret_cast<void*>(address + static_cast<unsigned long long>(offset));
}
/// Throws `misuse` where an instruction for global memory would fault.
DEVCOMM_SIMULATOR_OF_CALLER void* at_global(unsigned long long address, long long offset) {
  void* const at = at_generic(address, offset);
  require_global(at);
  return at;
}
/// Addresses in the space of shared memory count from where the block's begins.
inline unsigned long long to_shared(unsigned long long address) { return address - shared_of_block.first; }
inline unsigned long long from_shared(unsigned long long address) { return address + shared_of_block.first; }
inline bool is_shared(unsigned long long address) {
  return shared_of_block.contains(reinterpret_cast<const void*>(address));
}
inline bool is_global(unsigned long long address) {
  return !is_shared(address) && !stacks_of_block.contains(reinterpret_cast<const void*>(address));
}
DEVCOMM_SIMULATOR_OF_CALLER void* at_shared(unsigned long long address, long long offset) {
  void* const at = at_generic(from_shared(address), offset);
  if (!shared_of_block.contains(at))
    fail_misuse("an instruction for shared memory has an address that is not in the block's shared memory");
  return at;
}

// --- memory ---

// Orders by their names: programs of which the preprocessor has run have no macros.
inline constexpr int weak_access = -1;
inline constexpr int relaxed = __ATOMIC_RELAXED;
inline constexpr int acquire = __ATOMIC_ACQUIRE;
inline constexpr int release = __ATOMIC_RELEASE;
inline constexpr int acq_rel = __ATOMIC_ACQ_REL;
inline constexpr int seq_cst = __ATOMIC_SEQ_CST;

template <class T>
DEVCOMM_SIMULATOR_OF_CALLER T& weak(void* address) {
  return *static_cast<T*>(address);
}

template <class T, int Count>
struct alignas(sizeof(T) * Count) vector {
  T at[Count];
};
template <class T, int Count>
DEVCOMM_SIMULATOR_OF_CALLER void check_vector(const void* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % (sizeof(T) * Count) != 0)
    fail_misuse("an access to an address that is no multiple of its size");
}
template <class T, int Count>
DEVCOMM_SIMULATOR_OF_CALLER vector<T, Count> load_vector(const void* address) {
  check_vector<T, Count>(address);
  vector<T, Count> value;
  __builtin_memcpy(&value, __builtin_assume_aligned(address, alignof(vector<T, Count>)), sizeof value);
  return value;
}
template <class T, int Count>
DEVCOMM_SIMULATOR_OF_CALLER void store_vector(void* address, const vector<T, Count>& value) {
  check_vector<T, Count>(address);
  __builtin_memcpy(__builtin_assume_aligned(address, alignof(vector<T, Count>)), &value, sizeof value);
}

template <class T>
using bits_like = std::conditional_t<
    sizeof(T) == 8, std::uint64_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;

/// What a strong access reads or writes at once: all of it, or 8 bytes of a vector. PTX promises no more than elements;
/// GPUs do this much, and packets with a flag beside each datum rely on it.
template <class T, int Count>
using piece = std::conditional_t<sizeof(T) * Count >= 8, std::uint64_t, bits_like<vector<T, Count>>>;

template <class T, int Count, int Order, atomic_scope Scope>
DEVCOMM_SIMULATOR_OF_CALLER vector<T, Count> load(const void* address) {
  check_vector<T, Count>(address);
  const at_scope<Scope> here;
  const auto* const word = static_cast<const piece<T, Count>*>(address);
  vector<T, Count> value;
  constexpr int pieces = sizeof value / sizeof *word;
  static_assert(pieces <= max_loaded_at_once, "PTX has no such vector");
  if constexpr (pieces > 1) {
    if (loads_at_once()) {
      std::uint64_t found[pieces];
      for (int i = 0; i < pieces; ++i) found[i] = __atomic_load_n(word + i, Order);
      loaded_at_once(word, found, pieces);
      __builtin_memcpy(&value, found, sizeof value);
      return value;
    }
  }
  for (int i = 0; i < pieces; ++i) {
    const piece<T, Count> bits = __atomic_load_n(word + i, Order);
    loaded(word + i, sizeof bits, static_cast<std::uint64_t>(bits));
    __builtin_memcpy(reinterpret_cast<char*>(&value) + static_cast<std::size_t>(i) * sizeof bits, &bits, sizeof bits);
  }
  return value;
}
template <int Order, atomic_scope Scope, class T, int Count>
DEVCOMM_SIMULATOR_OF_CALLER void store(void* address, const vector<T, Count>& value) {
  check_vector<T, Count>(address);
  const at_scope<Scope> here;
  auto* const word = static_cast<piece<T, Count>*>(address);
  for (std::size_t i = 0; i < sizeof value / sizeof *word; ++i) {
    piece<T, Count> bits;
    __builtin_memcpy(&bits, reinterpret_cast<const char*>(&value) + i * sizeof bits, sizeof bits);
    __atomic_store_n(word + i, bits, Order);
    stored(word + i, sizeof bits);
  }
}

template <class T>
using wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::enable_if<true, T>>::type;

#define DEVCOMM_SIMULATOR_PTX_ATOMIC(name, expression)                                                              \
  template <class T, int Order, atomic_scope Scope>                                                                 \
  DEVCOMM_SIMULATOR_OF_CALLER T atomic_##name(void* address, int i, T value) {                                      \
    return update<Scope, bits_like<T>, Order>(                                                                      \
        static_cast<T*>(address) + i, [value]([[maybe_unused]] T old) -> T { return static_cast<T>(expression); }); \
  }
DEVCOMM_SIMULATOR_PTX_ATOMIC(add, static_cast<wrapping<T>>(old) + static_cast<wrapping<T>>(value))
DEVCOMM_SIMULATOR_PTX_ATOMIC(and, old& value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(or, old | value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(xor, old ^ value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(exch, value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(min, old < value ? old : value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(max, old > value ? old : value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(inc, old >= value ? T{0} : old + 1)
DEVCOMM_SIMULATOR_PTX_ATOMIC(dec, old == 0 || old > value ? value : old - 1)
#undef DEVCOMM_SIMULATOR_PTX_ATOMIC
template <class T, int Order, atomic_scope Scope>
DEVCOMM_SIMULATOR_OF_CALLER T atomic_cas(void* address, int i, T expected, T desired) {
  return update<Scope, bits_like<T>, Order>(static_cast<T*>(address) + i,
                                            [=](T old) { return old == expected ? desired : old; });
}

template <int Order, atomic_scope Scope>
DEVCOMM_SIMULATOR_OF_CALLER void fence() {
  const at_scope<Scope> here;
  __atomic_thread_fence(Order);
}
using detail::fence_alias;

// --- barriers, warps, launches ---

/// Of all threads of the block. Barrier 0 is that of `__syncthreads`, whose calls are identified by their lines.
inline void block_barrier(unsigned barrier, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (barrier == 0) {
    aligned_block_barrier(false, file, line);
  } else {
    detail::block_barrier(barrier, 0, false);
  }
}
inline void block_barrier(unsigned barrier, unsigned threads) { detail::block_barrier(barrier, threads, false); }
inline unsigned barrier_popc(unsigned barrier, unsigned threads, bool predicate) {
  return detail::block_barrier(barrier, threads, predicate);
}
inline bool barrier_or(unsigned barrier, unsigned threads, bool predicate) {
  return barrier_popc(barrier, threads, predicate) != 0;
}
inline bool barrier_and(unsigned barrier, unsigned threads, bool predicate) {
  return barrier_popc(barrier, threads, !predicate) == 0;
}
inline unsigned first_lane(unsigned mask) { return static_cast<unsigned>(__builtin_ctz(mask)); }
using detail::allow_dependent_launch;
using detail::wait_for_prior_launch;

// --- arithmetic ---

template <class T>
T minimum(T a, T b) {
  return a != a || b < a ? b : a;  // a number wins over NaN
}
template <class T>
T maximum(T a, T b) {
  return a != a || b > a ? b : a;
}
template <class T>
T absolute(T value) {
  return value < T{0} ? static_cast<T>(-value) : value;
}
template <class T>
using twice_as_wide = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int, unsigned>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;
template <class T>
twice_as_wide<T> mul_wide(T a, T b) {
  return static_cast<twice_as_wide<T>>(a) * static_cast<twice_as_wide<T>>(b);
}
template <class T>
T mul_hi(T a, T b) {
  return static_cast<T>(mul_wide(a, b) >> (8 * sizeof(T)));
}
template <class T>
unsigned popc(T value) {
  return static_cast<unsigned>(__builtin_popcountll(static_cast<bits_like<T>>(value)));
}
template <class T>
unsigned clz(T value) {
  constexpr unsigned bits = 8 * sizeof(T);
  return value == 0 ? bits : static_cast<unsigned>(__builtin_clzll(static_cast<bits_like<T>>(value))) - (64 - bits);
}
template <class T>
T brev(T value) {
  T result = 0;
  for (unsigned i = 0; i < 8 * sizeof(T); ++i) result = static_cast<T>(result << 1 | (value >> i & 1));
  return result;
}
inline unsigned bfi(unsigned bits, unsigned into, unsigned start, unsigned count) {
  start &= 0xffu;
  count &= 0xffu;
  const unsigned mask = shl(count >= 32 ? ~0u : (1u << count) - 1, start);
  return (into & ~mask) | (shl(bits, start) & mask);
}
inline unsigned lop3(unsigned a, unsigned b, unsigned c, unsigned table) {
  unsigned result = 0;
  for (unsigned i = 0; i < 32; ++i)
    result |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
  return result;
}
template <bool Wraps>
unsigned shf_l(unsigned low, unsigned high, unsigned by) {
  const unsigned shift = Wraps ? by & 31u : (by < 32 ? by : 32);
  return static_cast<unsigned>((pack(low, high) << shift) >> 32);
}
template <bool Wraps>
unsigned shf_r(unsigned low, unsigned high, unsigned by) {
  const unsigned shift = Wraps ? by & 31u : (by < 32 ? by : 32);
  return static_cast<unsigned>(pack(low, high) >> shift);
}
/// Saturates; NaN is 0.
template <class To, class From>
To to_integer(From value) {
  if (value != value) return 0;
  constexpr To lowest = std::numeric_limits<To>::lowest();
  constexpr To highest = std::numeric_limits<To>::max();
  if (value <= static_cast<From>(lowest)) return lowest;
  if (value >= static_cast<From>(highest)) return highest;
  return static_cast<To>(value);
}

// --- special registers ---

inline unsigned special_tid_x() { return threadIdx.x; }
inline unsigned special_tid_y() { return threadIdx.y; }
inline unsigned special_tid_z() { return threadIdx.z; }
inline unsigned special_ntid_x() { return blockDim.x; }
inline unsigned special_ntid_y() { return blockDim.y; }
inline unsigned special_ntid_z() { return blockDim.z; }
inline unsigned special_ctaid_x() { return blockIdx.x; }
inline unsigned special_ctaid_y() { return blockIdx.y; }
inline unsigned special_ctaid_z() { return blockIdx.z; }
inline unsigned special_nctaid_x() { return gridDim.x; }
inline unsigned special_nctaid_y() { return gridDim.y; }
inline unsigned special_nctaid_z() { return gridDim.z; }
inline unsigned special_warpid() { return thread_rank() / 32; }
inline unsigned special_nwarpid() { return (blockDim.x * blockDim.y * blockDim.z + 31) / 32; }
inline unsigned long long special_clock64() { return clock_now(); }
inline unsigned special_clock() { return static_cast<unsigned>(clock_now()); }
inline unsigned special_clock_hi() { return static_cast<unsigned>(clock_now() >> 32); }
inline unsigned long long special_globaltimer() { return clock_now(); }
inline unsigned special_globaltimer_lo() { return static_cast<unsigned>(clock_now()); }
inline unsigned special_globaltimer_hi() { return static_cast<unsigned>(clock_now() >> 32); }
inline unsigned special_dynamic_smem_size() { return static_cast<unsigned>(dynamic_shared_bytes()); }
inline unsigned special_laneid() { return static_cast<unsigned>(own_lane()); }
inline unsigned special_lanemask_eq() { return 1u << own_lane(); }
inline unsigned special_lanemask_lt() { return special_lanemask_eq() - 1; }
inline unsigned special_lanemask_le() { return special_lanemask_lt() | special_lanemask_eq(); }
inline unsigned special_lanemask_gt() { return ~special_lanemask_le(); }
inline unsigned special_lanemask_ge() { return ~special_lanemask_lt(); }

}  // namespace devcomm::simulator::detail::ptx
