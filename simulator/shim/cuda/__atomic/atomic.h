/// \file atomic.h
/// CCCL's atomics, and its fence, whose scope is dropped on hosts: here the race detector sees it.
#pragma once

#include <cuda/std/atomic>

#include <devcomm/simulator/detail/scope.hpp>

_LIBCUDACXX_BEGIN_NAMESPACE_STD
inline void __library_thread_fence(memory_order order) { _CUDA_VSTD::atomic_thread_fence(order); }
_LIBCUDACXX_END_NAMESPACE_STD

#define atomic_thread_fence __library_thread_fence
#include_next <cuda/__atomic/atomic.h>
#undef atomic_thread_fence

_LIBCUDACXX_BEGIN_NAMESPACE_CUDA
inline void atomic_thread_fence(memory_order order, thread_scope scope = thread_scope_system) {
  using own = ::devcomm::simulator::detail::atomic_scope;
  if (scope == thread_scope_system) {
    _CUDA_VSTD::atomic_thread_fence(order);
  } else if (scope == thread_scope_device) {
    const ::devcomm::simulator::detail::at_scope<own::device> here;
    _CUDA_VSTD::atomic_thread_fence(order);
  } else if (scope == thread_scope_block) {
    const ::devcomm::simulator::detail::at_scope<own::block> here;
    _CUDA_VSTD::atomic_thread_fence(order);
  }
}
_LIBCUDACXX_END_NAMESPACE_CUDA
