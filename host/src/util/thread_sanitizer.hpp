/// \file thread_sanitizer.hpp
/// Informs ThreadSanitizer what the counts of `shared_ptr` order, when this library, compiled without it, is
/// linked into a program that is compiled with it. Does nothing in other programs. Included by the build
/// before everything else, as libstdc++ asks (its manual, "Data Race Hunting").
#pragma once

// NOLINTBEGIN(readability-identifier-naming): names of ThreadSanitizer and of libstdc++
extern "C" {
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
}

namespace devcomm::host::detail {

inline void order_before(void* word) {
  if (__tsan_release != nullptr) __tsan_release(word);
}
inline void order_after(void* word) {
  if (__tsan_acquire != nullptr) __tsan_acquire(word);
}

}  // namespace devcomm::host::detail

#define _GLIBCXX_SYNCHRONIZATION_HAPPENS_BEFORE(word) ::devcomm::host::detail::order_before(word)
#define _GLIBCXX_SYNCHRONIZATION_HAPPENS_AFTER(word) ::devcomm::host::detail::order_after(word)
// NOLINTEND(readability-identifier-naming)
