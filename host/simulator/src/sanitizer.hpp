/// \file sanitizer.hpp
/// What the runtime tells ThreadSanitizer and AddressSanitizer. Every call does nothing in a program
/// without the sanitizer, so one build of the runtime serves all.
///
/// ThreadSanitizer's view: each simulated thread is a thread of its own; switching orders nothing.
/// Barriers, stream order and host synchronisation order what they promise and no more.
#pragma once

#include <cstddef>

extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber(void);
__attribute__((weak)) void* __tsan_create_fiber(unsigned);
__attribute__((weak)) void __tsan_destroy_fiber(void*);
__attribute__((weak)) void __tsan_switch_to_fiber(void*, unsigned);
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char*, int);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char*, int);
__attribute__((weak)) void __sanitizer_start_switch_fiber(void**, const void*, size_t);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
__attribute__((weak)) void __asan_poison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
}

namespace devcomm::simulator::detail::sanitizer {

/// A point in memory through which an order between simulated threads is announced.
struct cell {
  char byte;
};

inline bool thread() { return __tsan_switch_to_fiber != nullptr; }
inline bool address() { return __asan_poison_memory_region != nullptr; }

inline void release(cell& c) {
  if (thread()) __tsan_release(&c);
}
inline void acquire(cell& c) {
  if (thread()) __tsan_acquire(&c);
}

/// ThreadSanitizer's identity of the running thread; null without it.
inline void* identity() { return thread() ? __tsan_get_current_fiber() : nullptr; }
/// A new identity, ordered after what the running one has done so far.
inline void* new_identity() { return thread() ? __tsan_create_fiber(0) : nullptr; }
inline void drop_identity(void* id) {
  if (id != nullptr) __tsan_destroy_fiber(id);
}
/// The calling thread becomes `id`; orders nothing.
inline void become(void* id) {
  constexpr unsigned no_sync = 1;
  if (thread()) __tsan_switch_to_fiber(id, no_sync);
}

inline void poison(const void* p, size_t bytes) {
  if (address()) __asan_poison_memory_region(p, bytes);
}
inline void unpoison(const void* p, size_t bytes) {
  if (address()) __asan_unpoison_memory_region(p, bytes);
}

/// While it lives, ThreadSanitizer ignores this identity's accesses: the runtime's own memory is
/// guarded by the baton, of which it knows nothing.
class unobserved {
 public:
  unobserved() {
    if (!thread()) return;
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~unobserved() {
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
