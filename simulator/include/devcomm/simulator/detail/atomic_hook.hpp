/// \file atomic_hook.hpp
/// Makes the atomics of libcu++ and the standard library points at which another thread may go on, and
/// looks that a waiting thread sleeps on.
///
/// Their host versions end in compiler built-ins. A macro of the same name calls the built-in, as a
/// macro does not expand in itself, and tells the runtime. On host threads that does nothing.
#pragma once

#include <devcomm/simulator/detail/execution.hpp>

#include <cstddef>
#include <cstdint>

namespace devcomm::simulator::detail {

template <class T>
void looked_at(const volatile void* address, const T& value) {
  if constexpr (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    looked(const_cast<const void*>(address), sizeof(T), bits);
  } else {
    preempt();
  }
}

template <class T>
void wrote_at(const volatile T* address) {
  wrote(const_cast<const T*>(address), sizeof(T));
}

/// A compare-exchange that failed is a look; one that succeeded a change.
template <class T>
bool exchanged(bool success, const volatile void* address, const T& found) {
  if (success) {
    wrote(const_cast<const void*>(address), sizeof(T));
  } else {
    looked_at(address, found);
  }
  return success;
}

template <class T, class Memory>
T changed(T old, const volatile Memory* address) {
  wrote_at(address);
  return old;
}

}  // namespace devcomm::simulator::detail

#define __atomic_load(pointer, result, order) \
  (__atomic_load((pointer), (result), (order)), ::devcomm::simulator::detail::looked_at((pointer), *(result)))
#define __atomic_store(pointer, value, order) \
  (__atomic_store((pointer), (value), (order)), ::devcomm::simulator::detail::wrote_at((pointer)))
#define __atomic_exchange(pointer, value, result, order) \
  (__atomic_exchange((pointer), (value), (result), (order)), ::devcomm::simulator::detail::wrote_at((pointer)))
#define __atomic_compare_exchange(pointer, expected, desired, weak, success, failure)                       \
  ::devcomm::simulator::detail::exchanged(                                                                  \
      __atomic_compare_exchange((pointer), (expected), (desired), (weak), (success), (failure)), (pointer), \
      *(expected))
#define __atomic_fetch_add(pointer, value, order) \
  ::devcomm::simulator::detail::changed(__atomic_fetch_add((pointer), (value), (order)), (pointer))
#define __atomic_fetch_sub(pointer, value, order) \
  ::devcomm::simulator::detail::changed(__atomic_fetch_sub((pointer), (value), (order)), (pointer))
#define __atomic_fetch_and(pointer, value, order) \
  ::devcomm::simulator::detail::changed(__atomic_fetch_and((pointer), (value), (order)), (pointer))
#define __atomic_fetch_or(pointer, value, order) \
  ::devcomm::simulator::detail::changed(__atomic_fetch_or((pointer), (value), (order)), (pointer))
#define __atomic_fetch_xor(pointer, value, order) \
  ::devcomm::simulator::detail::changed(__atomic_fetch_xor((pointer), (value), (order)), (pointer))
#define __atomic_thread_fence(order) (__atomic_thread_fence(order), ::devcomm::simulator::detail::preempt())
