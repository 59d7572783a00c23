/// \file ptx.hpp
/// Instructions of PTX as functions: what `devcomm_ptx.py` makes of inline PTX.
#pragma once

#include <devcomm/simulator/detail/cluster.hpp>
#include <devcomm/simulator/detail/copies.hpp>
#include <devcomm/simulator/detail/execution.hpp>
#include <devcomm/simulator/detail/scope.hpp>
#include <devcomm/simulator/detail/tensor_map.hpp>
#include <devcomm/simulator/device/atomics.hpp>
#include <devcomm/simulator/device/math.hpp>
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
/// Of shared memory of the block, or of another one of its cluster.
inline void* at_cluster(unsigned long long address, long long offset) {
  return shared_of_cluster(static_cast<std::uint32_t>(address + static_cast<unsigned long long>(offset)));
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

/// What an atomic operation makes of a value, and the operation.
#define DEVCOMM_SIMULATOR_PTX_ATOMIC(name, integers_only, expression)                                     \
  struct reduction_##name {                                                                               \
    static constexpr bool of_integers = integers_only;                                                    \
    template <class T>                                                                                    \
    T operator()([[maybe_unused]] T old, T value) const {                                                 \
      return static_cast<T>(expression);                                                                  \
    }                                                                                                     \
  };                                                                                                      \
  template <class T, int Order, atomic_scope Scope>                                                       \
  DEVCOMM_SIMULATOR_OF_CALLER T atomic_##name(void* address, int i, T value) {                            \
    return update<Scope, bits_like<T>, Order>(static_cast<T*>(address) + i,                               \
                                              [value](T old) { return reduction_##name{}(old, value); }); \
  }
DEVCOMM_SIMULATOR_PTX_ATOMIC(add, false, static_cast<wrapping<T>>(old) + static_cast<wrapping<T>>(value))
DEVCOMM_SIMULATOR_PTX_ATOMIC(and, true, old& value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(or, true, old | value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(xor, true, old ^ value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(exch, false, value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(min, false, old < value ? old : value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(max, false, old > value ? old : value)
DEVCOMM_SIMULATOR_PTX_ATOMIC(inc, true, old >= value ? T{0} : old + 1)
DEVCOMM_SIMULATOR_PTX_ATOMIC(dec, true, old == 0 || old > value ? value : old - 1)
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

// --- asynchronous copies ---

using detail::await_all_elements;
using detail::await_bulk;
using detail::await_elements;
using detail::commit_bulk;
using detail::commit_elements;
using detail::copy_element;
using detail::fence_async;

/// Of a bulk copy: its addresses and size.
inline void check_bulk(const void* to, const void* from, unsigned bytes) {
  if (bytes % 16 != 0) fail_misuse("a bulk copy has a size that is no multiple of 16 bytes");
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % 16 != 0)
    fail_misuse("a bulk copy has an address that is no multiple of 16 bytes");
}
inline void copy_bulk(const char* instruction, void* to, const void* from, unsigned bytes, void* mbarrier,
                      copy_reduction reduces = nullptr) {
  check_bulk(to, from, bytes);
  if (bytes == 0 && mbarrier != nullptr) return;
  const copy_chunk chunk{to, from, bytes};
  detail::copy_bulk(instruction, &chunk, 1, reduces, mbarrier);
}

inline void copy_bulk_to_many(const char* instruction, unsigned to, const void* from, unsigned bytes, unsigned mbarrier,
                              unsigned blocks) {
  for (unsigned rest = blocks; rest != 0; rest &= rest - 1) {
    const auto rank = static_cast<std::uint32_t>(__builtin_ctz(rest));
    copy_bulk(instruction, shared_of_cluster(mapped_address(to, rank)), from, bytes,
              shared_of_cluster(mapped_address(mbarrier, rank)));
  }
}
template <int Rank>
void copy_tensor(const char* instruction, unsigned long long map, const int (&coordinates)[Rank], void* shared,
                 bool loads, void* mbarrier) {
  detail::copy_tensor(instruction, reinterpret_cast<const void*>(map), coordinates, Rank, shared, loads, nullptr,
                      mbarrier);
}
template <int Rank>
void copy_tensor_to_many(const char* instruction, unsigned long long map, const int (&coordinates)[Rank],
                         unsigned shared, unsigned mbarrier, unsigned blocks) {
  for (unsigned rest = blocks; rest != 0; rest &= rest - 1) {
    const auto rank = static_cast<std::uint32_t>(__builtin_ctz(rest));
    copy_tensor(instruction, map, coordinates, shared_of_cluster(mapped_address(shared, rank)), true,
                shared_of_cluster(mapped_address(mbarrier, rank)));
  }
}
template <class T, int Count>
void store_async(void* to, const vector<T, Count>& value, void* mbarrier) {
  detail::store_async(to, &value, sizeof value, mbarrier);
}

/// Each element is changed atomically, at scope `.gpu`, in no order.
template <class T, class Reduction>
void reduce_bulk(void* to, const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
    T value;
    __builtin_memcpy(&value, static_cast<const char*>(from) + i * sizeof(T), sizeof value);
    // No thread runs this, so that none can run instead of it: built-ins of which the runtime hears nothing.
    auto* const word = reinterpret_cast<bits_like<T>*>(static_cast<T*>(to) + i);
    bits_like<T> old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, as<bits_like<T>>(Reduction{}(as<T>(old), value)), false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
}

template <class Reduction>
copy_reduction reduction_of_tensor(const void* map) {
  const std::uint32_t type = type_of_tensor(map);  // a CUtensorMapDataType
  if (type == 2) return reduce_bulk<std::uint32_t, Reduction>;
  if (type == 3) return reduce_bulk<std::int32_t, Reduction>;
  if (type == 4) return reduce_bulk<std::uint64_t, Reduction>;
  if (type == 5) return reduce_bulk<std::int64_t, Reduction>;
  if constexpr (!Reduction::of_integers) {
    if (type == 7) return reduce_bulk<float, Reduction>;
    if (type == 8) return reduce_bulk<double, Reduction>;
  }
  fail_misuse("the simulator has no such reduction into tensors of this type");
}
template <class Reduction, int Rank>
void reduce_tensor(const char* instruction, unsigned long long map, const int (&coordinates)[Rank], void* shared) {
  const auto* const at = reinterpret_cast<const void*>(map);
  detail::copy_tensor(instruction, at, coordinates, Rank, shared, false, reduction_of_tensor<Reduction>(at), nullptr);
}

// --- mbarriers ---

/// The race detector's view of an operation on the barrier's word, in which the runtime keeps what it is.
DEVCOMM_SIMULATOR_OF_CALLER void* mbarrier_changed(void* at) {
  static_cast<void>(__atomic_fetch_add(static_cast<std::uint64_t*>(at), std::uint64_t{0}, __ATOMIC_RELAXED));
  return at;
}
DEVCOMM_SIMULATOR_OF_CALLER void mbarrier_init(void* at, unsigned count) {
  *static_cast<std::uint64_t*>(at) = 0;
  initialize_mbarrier(at, count);
}
DEVCOMM_SIMULATOR_OF_CALLER void mbarrier_inval(void* at) { invalidate_mbarrier(mbarrier_changed(at)); }
DEVCOMM_SIMULATOR_OF_CALLER unsigned long long mbarrier_arrive(void* at, unsigned count, long long bytes, bool drop,
                                                               bool releases) {
  return arrive_at_mbarrier(mbarrier_changed(at), count, bytes, drop, releases);
}
DEVCOMM_SIMULATOR_OF_CALLER void mbarrier_expect(void* at, long long bytes) {
  expect_at_mbarrier(mbarrier_changed(at), bytes);
}
DEVCOMM_SIMULATOR_OF_CALLER void mbarrier_arrive_after_elements(void* at, bool counted) {
  arrive_after_elements(mbarrier_changed(at), counted);
}
DEVCOMM_SIMULATOR_OF_CALLER bool mbarrier_test(void* at, unsigned long long state, bool acquires) {
  static_cast<void>(__atomic_load_n(static_cast<const std::uint64_t*>(at), __ATOMIC_RELAXED));
  return mbarrier_left(at, state, acquires);
}
DEVCOMM_SIMULATOR_OF_CALLER bool mbarrier_test_parity(void* at, unsigned parity, bool acquires) {
  static_cast<void>(__atomic_load_n(static_cast<const std::uint64_t*>(at), __ATOMIC_RELAXED));
  return mbarrier_passed(at, parity, acquires);
}
inline unsigned mbarrier_pending(unsigned long long state) { return pending_of(state); }

// --- clusters ---

using detail::arrive_at_cluster;
using detail::mapped_address;
using detail::rank_of_address;
using detail::wait_for_cluster;
inline unsigned long long mapped_generic(unsigned long long pointer, unsigned rank) {
  return reinterpret_cast<unsigned long long>(mapped_pointer(reinterpret_cast<const void*>(pointer), rank));
}
inline unsigned rank_of_generic(unsigned long long pointer) {
  return rank_of_pointer(reinterpret_cast<const void*>(pointer));
}
inline bool is_cluster(unsigned long long address) { return is_in_cluster(reinterpret_cast<const void*>(address)); }

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
using detail::saturated;

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
inline unsigned special_cluster_ctarank() { return own_place_in_cluster().rank; }
inline unsigned special_cluster_nctarank() {
  const dim3 blocks = own_place_in_cluster().blocks;
  return blocks.x * blocks.y * blocks.z;
}
inline bool special_is_explicit_cluster() { return !clusters_are_blocks(); }
#define DEVCOMM_SIMULATOR_CLUSTER_REGISTERS(x)                                                     \
  inline unsigned special_cluster_ctaid_##x() { return own_place_in_cluster().index.x; }           \
  inline unsigned special_cluster_nctaid_##x() { return own_place_in_cluster().blocks.x; }         \
  inline unsigned special_clusterid_##x() { return blockIdx.x / own_place_in_cluster().blocks.x; } \
  inline unsigned special_nclusterid_##x() { return gridDim.x / own_place_in_cluster().blocks.x; }
DEVCOMM_SIMULATOR_CLUSTER_REGISTERS(x)
DEVCOMM_SIMULATOR_CLUSTER_REGISTERS(y)
DEVCOMM_SIMULATOR_CLUSTER_REGISTERS(z)
#undef DEVCOMM_SIMULATOR_CLUSTER_REGISTERS
inline unsigned special_laneid() { return static_cast<unsigned>(own_lane()); }
inline unsigned special_lanemask_eq() { return 1u << own_lane(); }
inline unsigned special_lanemask_lt() { return special_lanemask_eq() - 1; }
inline unsigned special_lanemask_le() { return special_lanemask_lt() | special_lanemask_eq(); }
inline unsigned special_lanemask_gt() { return ~special_lanemask_le(); }
inline unsigned special_lanemask_ge() { return ~special_lanemask_lt(); }

}  // namespace devcomm::simulator::detail::ptx
