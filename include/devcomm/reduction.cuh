/// \file reduction.cuh
/// Reduction operators, and the type in which they accumulate.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/detail/traits.hpp>

namespace devcomm {

/// The type in which elements of `T` are accumulated: `float` for floating-point types of 1 or 2 bytes
/// (`__half`, `__nv_bfloat16`, fp8; any class that converts to and from `float`), else `T` itself.
template <class T>
using accumulator_t = detail::conditional_t<!detail::is_arithmetic<T> && sizeof(T) <= 2, float, T>;

/// Operators work on accumulators, so each is one template for all element types.
struct sum {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    return a + b;
  }
};

struct product {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    return a * b;
  }
};

struct minimum {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    return b < a ? b : a;
  }
};

struct maximum {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    return a < b ? b : a;
  }
};

}  // namespace devcomm
