/// \file sanitizer.hpp
/// What the runtime reports to devcomm's race detector, ThreadSanitizer and AddressSanitizer. Every call does
/// nothing in a program without the sanitizer, so one build of the runtime serves all.
///
/// A race detector's view: each simulated thread is a thread of its own; switching orders nothing.
/// Barriers, stream order and host synchronization order what they promise and no more.
#pragma once

#include "base/race_port.hpp"

#include <cstddef>
#include <cstdint>

extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber(void);
__attribute__((weak)) void* __tsan_create_fiber(unsigned);
__attribute__((weak)) void __tsan_destroy_fiber(void*);
__attribute__((weak)) void __tsan_switch_to_fiber(void*, unsigned);
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
__attribute__((weak)) void __tsan_atomic64_store(volatile uint64_t*, uint64_t, int);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char*, int);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char*, int);
__attribute__((weak)) void __sanitizer_start_switch_fiber(void**, const void*, size_t);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
__attribute__((weak)) void __asan_poison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void __asan_set_error_report_callback(void (*)(const char*));
}

namespace devcomm::simulator::detail::sanitizer {

/// devcomm's own race detector, which knows more of the simulation than ThreadSanitizer.
inline bool exact() { return &devcomm_simulator_race_port != nullptr; }
inline const race_port& exact_port() { return devcomm_simulator_race_port; }
inline bool thread() { return __tsan_switch_to_fiber != nullptr; }
inline bool address() { return __asan_poison_memory_region != nullptr; }
/// Whether a race detector is there.
inline bool orders() { return exact() || thread(); }

/// A point in memory through which an order between simulated threads is announced.
struct cell {
  void* word = nullptr;  ///< the detector's

  cell() = default;
  ~cell() {
    if (word != nullptr) exact_port().clear(&word);
  }
  cell(const cell&) = delete;
  cell& operator=(const cell&) = delete;
};

inline void release(cell& c) {
  if (exact()) {
    exact_port().release(&c.word);
  } else if (thread()) {
    __tsan_release(&c);
  }
}
inline void acquire(cell& c) {
  if (exact()) {
    exact_port().acquire(&c.word);
  } else if (thread()) {
    __tsan_acquire(&c);
  }
}
/// Who completes a round of a barrier acquires for all that met in it, and then clears the cell: so no
/// round is ordered with another. ThreadSanitizer's threads acquire for themselves.
inline void acquire_as(void* id, cell& c) {
  if (exact()) exact_port().acquire_as(id, &c.word);
}
inline void clear(cell& c) {
  if (exact()) exact_port().clear(&c.word);
}
/// After a round that its completer has acquired for all.
inline void acquire_unless_done(cell& c) {
  if (!exact()) acquire(c);
}

/// The detector's identity of the running thread; null without one.
inline void* identity() {
  if (exact()) return exact_port().identity();
  return thread() ? __tsan_get_current_fiber() : nullptr;
}
/// A new identity; ThreadSanitizer orders it after what the running one has done so far.
inline void* new_identity() {
  if (exact()) return exact_port().new_identity();
  return thread() ? __tsan_create_fiber(0) : nullptr;
}
/// That of a proxy of the network.
inline void* new_network_identity() {
  void* const id = new_identity();
  if (exact()) exact_port().begin_task(id, network_device, nullptr);
  return id;
}
/// An operation of the network, for reports: `race_port` says what of.
inline void note_post(const void* word) {
  if (exact()) exact_port().note_post(word);
}
inline void take_operation(void* id, uint32_t context, uint64_t number, const void* word) {
  if (exact()) exact_port().take_operation(id, context, number, word);
}
inline void describe_operation(void* id, uint32_t context, uint64_t number, int peer, bool puts) {
  if (exact()) exact_port().describe_operation(id, context, number, peer, puts);
}
/// That of an asynchronous copy which the running thread issues.
inline void* new_copy_identity(const char* what, bool async_proxy) {
  void* const id = new_identity();
  if (exact()) exact_port().begin_copy(id, what, async_proxy);
  return id;
}
inline void drop_identity(void* id) {
  if (id == nullptr) return;
  if (exact()) {
    exact_port().drop_identity(id);
  } else {
    __tsan_destroy_fiber(id);
  }
}
/// The calling thread becomes `id`; orders nothing.
inline void become(void* id) {
  constexpr unsigned no_sync = 1;
  if (exact()) {
    exact_port().become(id);
  } else if (thread()) {
    __tsan_switch_to_fiber(id, no_sync);
  }
}

/// A store by the runtime itself, as the running thread.
inline void store_release(uint64_t* word, uint64_t value) {
  if (__tsan_atomic64_store != nullptr) {
    __tsan_atomic64_store(word, value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
}

/// Memory of a device that kernels share, from here to `forget`.
inline void watch(const void* p, size_t bytes, const char* kind, int device) {
  if (exact()) exact_port().watch(p, bytes, kind, device, "");
}
inline void forget(const void* p, size_t bytes) {
  if (exact()) exact_port().forget(p, bytes);
}

/// The calling thread of the host frees it: accesses that may still come are reported.
inline void end_memory(const void* p, size_t bytes) {
  if (exact()) exact_port().end_memory(p, bytes);
}

/// What race reports call the memory; null for no longer.
inline void name(const void* p, size_t bytes, const char* what) {
  if (exact()) exact_port().name(p, bytes, what);
}

/// Stores become visible up to `longest` steps later; does nothing without devcomm's race detector.
inline void set_store_delay(uint64_t longest, uint64_t seed, const uint64_t* step) {
  if (exact()) exact_port().set_store_delay(longest, seed, step);
}
/// Between the two the running thread's stores become visible at one time.
inline void stores_are_one(bool on) {
  if (exact()) exact_port().stores_are_one(on);
}
/// Between the two the running thread's accesses are by a multicast address.
inline void multicast(bool on) {
  if (exact()) exact_port().multicast(on);
}
inline void alias_fence() {
  if (exact()) exact_port().proxy_fence(false);
}
inline void async_fence() {
  if (exact()) exact_port().proxy_fence(true);
}
/// Another thread may load: memory gets back the latest values, where the running thread was shown older ones.
inline void restore_memory() {
  if (exact()) exact_port().restore_memory();
}

/// What lies behind the end of memory that kernels may access, until `unpoison` of it or more.
inline void poison(const void* p, size_t bytes) {
  if (address()) __asan_poison_memory_region(p, bytes);
  if (exact() && bytes != 0) exact_port().poison(p, bytes);
}
inline void unpoison(const void* p, size_t bytes) {
  if (address()) __asan_unpoison_memory_region(p, bytes);
  if (exact()) exact_port().unpoison(p, bytes);
}

/// While it lives, race detectors ignore this identity's accesses: the runtime's own memory is
/// guarded by the baton, of which it knows nothing.
class unobserved {
 public:
  unobserved() {
    if (exact()) exact_port().ignore(1);
    if (!thread()) return;
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~unobserved() {
    if (exact()) exact_port().ignore(-1);
    if (!thread()) return;
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  unobserved(const unobserved&) = delete;
  unobserved& operator=(const unobserved&) = delete;
};

/// Adds to a list of the runtime's, from any identity.
template <class List, class T>
void append(List& list, T value) {
  if (list.size() == list.capacity()) {
    const unobserved hidden;
    list.reserve(list.empty() ? 16 : 2 * list.size());
  }
  list.push_back(value);
}

}  // namespace devcomm::simulator::detail::sanitizer
