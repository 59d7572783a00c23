/// \file scopes.h
/// CCCL's scopes, which its atomics drop on hosts. Their tags are made where an operation is called, and live until it
/// ends: these tell the race detector.
#pragma once

#define __scope_to_tag __scope_to_library_tag
#include_next <cuda/std/__atomic/scopes.h>
#undef __scope_to_tag

#include <devcomm/simulator/detail/scope.hpp>

_LIBCUDACXX_BEGIN_NAMESPACE_STD

template <int Scope>
struct __observed_scope_tag : __scope_to_library_tag<Scope> {
  using __own = ::devcomm::simulator::detail::atomic_scope;
  ::devcomm::simulator::detail::at_scope<Scope == __ATOMIC_SYSTEM   ? __own::system
                                         : Scope == __ATOMIC_DEVICE ? __own::device
                                                                    : __own::block>
      __here{};
};
template <int Scope>
using __scope_to_tag = __observed_scope_tag<Scope>;

_LIBCUDACXX_END_NAMESPACE_STD
