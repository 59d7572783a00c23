/// \file atomic_hook.hpp
/// Makes the atomics of libcu++ and the standard library preemption points, and
/// loads that a waiting thread may sleep on.
///
/// Their host versions end in compiler built-ins. A macro of the same name calls the built-in, as a
/// macro does not expand in itself, and calls the runtime. On host threads that does nothing.
#pragma once

#include <devcomm/simulator/detail/execution.hpp>

#include <cstddef>
#include <cstdint>

namespace devcomm::simulator::detail {

template <class T>
void loaded_value(const volatile void* address, const T& value) {
  if constexpr (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    loaded(const_cast<const void*>(address), sizeof(T), bits);
  } else {
    preempt();
  }
}

template <class T>
void stored_at(const volatile T* address) {
  stored(const_cast<const T*>(address), sizeof(T));
}

/// A failed compare-exchange counts as a load, a successful one as a store.
template <class T>
bool exchanged(bool success, const volatile void* address, const T& found) {
  if (success) {
    stored(const_cast<const void*>(address), sizeof(T));
  } else {
    loaded_value(address, found);
  }
  return success;
}

template <class T, class Memory>
T changed(T old, const volatile Memory* address) {
  stored_at(address);
  return old;
}

}  // namespace devcomm::simulator::detail

#define __atomic_load(pointer, result, order) \
  (__atomic_load((pointer), (result), (order)), ::devcomm::simulator::detail::loaded_value((pointer), *(result)))
#define __atomic_store(pointer, value, order) \
  (__atomic_store((pointer), (value), (order)), ::devcomm::simulator::detail::stored_at((pointer)))
#define __atomic_exchange(pointer, value, result, order) \
  (__atomic_exchange((pointer), (value), (result), (order)), ::devcomm::simulator::detail::stored_at((pointer)))
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
