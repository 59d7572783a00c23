/// \file arch.cuh
/// The seam in the simulator; see devcomm/arch/arch.cuh for what each function guarantees.
///
/// Memory operations are compiler built-ins in the calling file, so that ThreadSanitizer sees them
/// with their orders; each strong one is a preemption point.
#pragma once

#include <devcomm/arch/observed.hpp>
#include <devcomm/config.hpp>
#include <devcomm/memory_order.hpp>
#include <devcomm/simulator/arch_numbers.cuh>
#include <devcomm/simulator/detail/copies.hpp>
#include <devcomm/simulator/detail/execution.hpp>
#include <devcomm/simulator/detail/scope.hpp>

#include <exception>
#include <type_traits>

namespace devcomm::arch {

namespace sim = ::devcomm::simulator::detail;

inline constexpr uint32_t warp_threads = 32;
inline constexpr uint32_t full_mask = 0xffffffffu;

/// Every poll is followed by a check of the abort word and the clock: the runtime then knows all that a
/// waiting thread depends on.
inline constexpr int polls_per_round = 1;
inline constexpr uint32_t rounds_per_check = 1;
/// The cost of a simulated wait grows with the words that it polls, and it sleeps until one of them changes. So it asks
/// for a turn at the host's word from the first poll on, gets one when the host has set that word, and is noted for the
/// watchdog immediately.
inline constexpr uint64_t noted_after = 0;

/// Sixteen bytes in registers.
struct alignas(16) vec16 {
  uint32_t x, y, z, w;
};

inline uint32_t thread_rank() { return sim::thread_rank(); }
inline uint32_t block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
inline uint32_t block_rank() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
inline uint32_t grid_blocks() { return gridDim.x * gridDim.y * gridDim.z; }
inline uint32_t lane() { return sim::thread_rank() % warp_threads; }

inline void sync_block() { sim::aligned_block_barrier(false); }
inline void sync_block_apart() { sim::block_barrier(0, 0, false); }
inline bool sync_block_or(bool predicate) { return sim::aligned_block_barrier(predicate) != 0; }
inline bool sync_block_or_apart(bool predicate) { return sim::block_barrier(0, 0, predicate) != 0; }
inline void sync_warp(uint32_t mask) { sim::warp_meet(sim::warp_operation::sync, mask, 0, 0); }
inline void sync_named(uint32_t barrier, uint32_t threads) { sim::block_barrier(barrier, threads, false); }
inline bool sync_named_or(uint32_t barrier, uint32_t threads, bool predicate) {
  return sim::block_barrier(barrier, threads, predicate) != 0;
}

inline uint32_t ballot(uint32_t mask, bool predicate) {
  return static_cast<uint32_t>(sim::warp_meet(sim::warp_operation::ballot, mask, predicate ? 1 : 0, 0));
}
inline bool any(uint32_t mask, bool predicate) { return ballot(mask, predicate) != 0; }
DEVCOMM_SIMULATOR_CONVERGENT inline uint32_t active_mask() { return sim::converged_lanes(__builtin_return_address(0)); }
inline uint32_t shuffle(uint32_t mask, uint32_t value, uint32_t source_lane) {
  return static_cast<uint32_t>(sim::warp_meet(sim::warp_operation::shuffle, mask, value, source_lane % warp_threads));
}
inline uint64_t shuffle_wide(uint32_t mask, uint64_t value, uint32_t source_lane) {
  return sim::warp_meet(sim::warp_operation::shuffle, mask, value, source_lane % warp_threads);
}

/// `N` elements of shared memory that belong to `Tag`.
template <class Tag, class T, int N>
inline T* shared_array() {
  static thread_local struct alignas(16) { unsigned char bytes[sizeof(T) * N]; } storage;
  return reinterpret_cast<T*>(storage.bytes);
}

constexpr int built_in_order(memory_order order) {
  return order == memory_order::acquire   ? __ATOMIC_ACQUIRE
         : order == memory_order::release ? __ATOMIC_RELEASE
         : order == memory_order::acq_rel ? __ATOMIC_ACQ_REL
                                          : __ATOMIC_RELAXED;
}

template <scope Scope>
using at_scope = sim::at_scope<Scope == scope::block    ? sim::atomic_scope::block
                               : Scope == scope::device ? sim::atomic_scope::device
                                                        : sim::atomic_scope::system>;

template <memory_order Order, scope Scope, class T>
DEVCOMM_SIMULATOR_OF_CALLER T load(const T* address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong loads take 4- or 8-byte integers");
  static_assert(!releases(Order), "a load is relaxed or acquires");
  sim::require_global(address);
  const at_scope<Scope> here;
  const T value = __atomic_load_n(address, built_in_order(Order));
  sim::loaded(address, sizeof(T), static_cast<uint64_t>(value));
  return value;
}

template <memory_order Order, scope Scope, class T>
DEVCOMM_SIMULATOR_OF_CALLER void store(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong stores take 4- or 8-byte integers");
  static_assert(!acquires(Order), "a store is relaxed or releases");
  sim::require_global(address);
  const at_scope<Scope> here;
  __atomic_store_n(address, value, built_in_order(Order));
  sim::stored(address, sizeof(T));
}

template <memory_order Order, scope Scope, class T>
DEVCOMM_SIMULATOR_OF_CALLER T fetch_add(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong operations take 4- or 8-byte integers");
  sim::require_global(address);
  const at_scope<Scope> here;
  return __atomic_fetch_add(address, value, built_in_order(Order));  // hooked by the prelude
}

template <memory_order Order, scope Scope, class T>
DEVCOMM_SIMULATOR_OF_CALLER T fetch_or(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong operations take 4- or 8-byte integers");
  sim::require_global(address);
  const at_scope<Scope> here;
  return __atomic_fetch_or(address, value, built_in_order(Order));  // hooked by the prelude
}

template <memory_order Order, scope Scope, class T>
DEVCOMM_SIMULATOR_OF_CALLER T exchange(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong operations take 4- or 8-byte integers");
  sim::require_global(address);
  const at_scope<Scope> here;
  const T old = __atomic_exchange_n(address, value, built_in_order(Order));
  sim::stored(address, sizeof(T));
  return old;
}

inline void tell_launch(uint32_t* flag, uint32_t value) {
  const sim::at_launch begun;
  if (begun.known()) {
    exchange<memory_order::relaxed, scope::system>(flag, value);
  } else {
    exchange<memory_order::acq_rel, scope::system>(flag, value);
  }
}
inline void see_launch(const uint32_t* flag) { static_cast<void>(load<memory_order::acquire, scope::system>(flag)); }

/// Returns what was there.
template <memory_order Order, scope Scope = scope::system, class T>
DEVCOMM_SIMULATOR_OF_CALLER T exchange_if(T* address, T expected, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong operations take 4- or 8-byte integers");
  sim::require_global(address);
  const at_scope<Scope> here;
  // Hooked by the prelude.
  static_cast<void>(
      __atomic_compare_exchange(address, &expected, &value, false, built_in_order(Order), __ATOMIC_RELAXED));
  return expected;
}
template <scope Scope, class T>
DEVCOMM_SIMULATOR_OF_CALLER T compare_exchange(T* address, T expected, T value) {
  return exchange_if<memory_order::relaxed, Scope>(address, expected, value);
}

template <memory_order Order, scope Scope>
inline void fence() {
  static_assert(Order != memory_order::relaxed, "a relaxed fence orders nothing");
  const at_scope<Scope> here;
  __atomic_thread_fence(built_in_order(Order));
}

#if defined(__clang__)
#  define DEVCOMM_SIMULATOR_UNSEEN __attribute__((noinline, disable_sanitizer_instrumentation))
#else
#  define DEVCOMM_SIMULATOR_UNSEEN __attribute__((noinline, no_sanitize("thread")))
#endif

// What compares launches and calls is hidden from schedules and from the race detector, as it is not the user's. Tests
// of the comparison itself define DEVCOMM_SIMULATOR_SEES_CHECKS.
#if defined(DEVCOMM_SIMULATOR_SEES_CHECKS)
inline void store_check(uint64_t* address, uint64_t value) {
  store<memory_order::relaxed, scope::system>(address, value);
}
inline uint64_t load_check(const uint64_t* address) { return load<memory_order::relaxed, scope::system>(address); }
inline uint64_t poll_check(const uint64_t* address) { return load_check(address); }
template <memory_order Order>
inline void check_fence() {
  fence<Order, scope::system>();
}
#else
DEVCOMM_SIMULATOR_UNSEEN inline void store_check(uint64_t* address, uint64_t value) {
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
}
DEVCOMM_SIMULATOR_UNSEEN inline uint64_t load_check(const uint64_t* address) {
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}
inline uint64_t poll_check(const uint64_t* address) {
  const uint64_t value = load_check(address);
  sim::loaded(address, sizeof value, value);
  return value;
}
template <memory_order Order>
DEVCOMM_SIMULATOR_UNSEEN inline void check_fence() {
  // The macro of this name would tell the runtime.
  (__atomic_thread_fence)(built_in_order(Order));
}
#endif

inline void check_pack(const void* address) {
  sim::require_global(address);
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) {
    sim::fail_misuse("a 16-byte access to an address that is no multiple of 16");
  }
}
template <int Bytes>
void check_aligned(const void* address) {
  sim::require_global(address);
  if (reinterpret_cast<uintptr_t>(address) % Bytes != 0)
    sim::fail_misuse("an access to an address that is not aligned");
}
DEVCOMM_SIMULATOR_OF_CALLER vec16 load16(const void* address) {
  check_pack(address);
  vec16 value;
  __builtin_memcpy(&value, __builtin_assume_aligned(address, 16), sizeof value);
  return value;
}
DEVCOMM_SIMULATOR_OF_CALLER vec16 load16_streaming(const void* address) { return load16(address); }
DEVCOMM_SIMULATOR_OF_CALLER void store16(void* address, vec16 value) {
  check_pack(address);
  __builtin_memcpy(__builtin_assume_aligned(address, 16), &value, sizeof value);
}
DEVCOMM_SIMULATOR_OF_CALLER void store16_streaming(void* address, vec16 value) { store16(address, value); }

template <int Bytes>
DEVCOMM_SIMULATOR_OF_CALLER auto load_bytes(const void* address) {
  if constexpr (Bytes == 16) {
    return load16(address);
  } else {
    check_aligned<Bytes>(address);
    std::conditional_t<Bytes == 8, uint64_t, uint32_t> value;
    static_assert(sizeof value == Bytes, "weak loads take 4, 8 or 16 bytes");
    __builtin_memcpy(&value, __builtin_assume_aligned(address, Bytes), Bytes);
    return value;
  }
}
template <int Bytes, class Raw>
DEVCOMM_SIMULATOR_OF_CALLER void store_bytes_streaming(void* address, const Raw& value) {
  static_assert(sizeof(Raw) == Bytes, "as many bytes as load_bytes returns");
  check_aligned<Bytes>(address);
  __builtin_memcpy(__builtin_assume_aligned(address, Bytes), &value, Bytes);
}

/// Two halves of eight bytes; another thread may run between them.
struct alignas(16) halves {
  uint64_t low, high;
};

DEVCOMM_SIMULATOR_OF_CALLER halves load_halves(const void* address) {
  check_pack(address);
  const auto* words = static_cast<const uint64_t*>(address);
  halves value{};
  value.low = load<memory_order::relaxed, scope::system>(words);
  value.high = load<memory_order::relaxed, scope::system>(words + 1);
  return value;
}
DEVCOMM_SIMULATOR_OF_CALLER void store_halves(void* address, halves value) {
  check_pack(address);
  auto* words = static_cast<uint64_t*>(address);
  store<memory_order::relaxed, scope::system>(words, value.low);
  store<memory_order::relaxed, scope::system>(words + 1, value.high);
}

DEVCOMM_SIMULATOR_OF_CALLER vec16 load_words(const void* address) {
  check_pack(address);
  const auto* words = static_cast<const uint32_t*>(address);
  vec16 value{};
  value.x = load<memory_order::relaxed, scope::system>(words);
  value.y = load<memory_order::relaxed, scope::system>(words + 1);
  value.z = load<memory_order::relaxed, scope::system>(words + 2);
  value.w = load<memory_order::relaxed, scope::system>(words + 3);
  return value;
}
DEVCOMM_SIMULATOR_OF_CALLER void store_words(void* address, vec16 value) {
  check_pack(address);
  auto* words = static_cast<uint32_t*>(address);
  store<memory_order::relaxed, scope::system>(words, value.x);
  store<memory_order::relaxed, scope::system>(words + 1, value.y);
  store<memory_order::relaxed, scope::system>(words + 2, value.z);
  store<memory_order::relaxed, scope::system>(words + 3, value.w);
}

inline void fence_async() { sim::fence_async(); }
inline void store_bulk(void* to, const void* shared, uint32_t bytes) {
  check_pack(to);
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0 || bytes % 16 != 0)
    sim::fail_misuse("a bulk copy whose address or size is no multiple of 16 bytes");
  const sim::copy_chunk chunk{to, shared, bytes};
  sim::copy_bulk("cp.async.bulk", &chunk, 1, nullptr, nullptr);
}
inline void finish_bulk_stores() {
  sim::commit_bulk();
  sim::await_bulk(0, false);
}

inline void wait_for_prior_launch() { sim::wait_for_prior_launch(); }
inline void allow_dependent_launch() { sim::allow_dependent_launch(); }

inline bool unwinding() { return std::uncaught_exceptions() > 0; }

inline uint64_t global_time() { return sim::clock_now(); }
inline uint64_t time_stamp() { return sim::clock_now(); }
inline void sleep(uint32_t nanoseconds) { sim::sleep_for(nanoseconds); }

inline bool host_turn(uint64_t* turn, uint64_t now, uint64_t waited) { return sim::host_turn(turn, now, waited); }

inline uint64_t proxy_turn(uint64_t*, uint64_t) { return 1; }
inline uint64_t latest_proxy_turn(uint64_t*) { return 0; }
#if defined(DEVCOMM_SHORT_PUTS_ARE_VALUES)  // by a program that tests what GPUs do
inline constexpr bool short_puts_are_values = true;
#else
inline constexpr bool short_puts_are_values = false;
#endif

class wait_scope {
 public:
  template <class Label, class AbortWord, class Log>
  wait_scope(const Label& label, const AbortWord& abort_word, const Log& log) : label_((sim::begin_label(), label())) {
    sim::begin_wait(label_, abort_word(), log());
  }
  /// Of a wait that only other threads end.
  template <class Label, class AbortWord>
  wait_scope(const Label& label, const AbortWord& abort_word) : wait_scope(label, abort_word, [] { return nullptr; }) {}
  ~wait_scope() { sim::end_wait(); }
  wait_scope(const wait_scope&) = delete;
  wait_scope& operator=(const wait_scope&) = delete;
  template <class Label>
  static auto describe(const Label& label) {
    sim::begin_label();
    const auto said = label();
    sim::end_label();
    return said;
  }
  void pause() { sim::pause_wait(); }

 private:
  detail::wait_label label_;  // read while the wait lasts
};

inline constexpr bool observes_sessions = true;

template <class Id>
void begin_session(const Id& id) {
  sim::begin_session(id());
}
template <class Id>
void call_session(const Id& id, detail::session_call call) {
  sim::call_session(id(), call);
}
template <class Id>
void leave_session(const Id& id) {
  sim::leave_session(id());
}
inline void note_post(const uint64_t* word) { sim::note_post(word); }

}  // namespace devcomm::arch

#include <devcomm/simulator/arch_lines.cuh>  // IWYU pragma: export
