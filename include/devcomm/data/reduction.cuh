/// \file reduction.cuh
/// Reduction operators, and the type in which they accumulate.
///
/// An operator is any functor with `A operator()(A, A) const` for an accumulator `A`; each of these is one template for
/// all element types. It may have two more members, and pays for neither where it has none:
///
///     A prepare(A) const              // of every input, before the first operation
///     A finish(A, int inputs) const   // of the result, once; `inputs` are the ranks, or sources, that went in
///
/// Operators are passed by value and must be the same on all ranks.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/arch/language.hpp>
#include <devcomm/config.hpp>
#include <devcomm/data/small_float.cuh>

namespace devcomm {

/// The type in which elements of `T` are accumulated: `float` where `is_small_float<T>`, else `T` itself.
template <class T>
using accumulator_t = detail::conditional_t<is_small_float<T>, float, T>;

namespace detail {

/// The unsigned type in which integers of type `A` are computed, so that they wrap around.
template <class A>
using modular_t = conditional_t<sizeof(A) <= 4, uint32_t, uint64_t>;

/// Where a compiler's options make `__int128` no integer to the standard library, it is summed as it is.
template <class A>
DEVCOMM_HOST_DEVICE constexpr void check_width() {
  static_assert(!is_integral<A> || sizeof(A) <= 8,
                "sums and products are of integers of up to 8 bytes: give an operator of your own for __int128");
}

template <class Operator, class A, class = void>
inline constexpr bool has_prepare = false;
template <class Operator, class A>
inline constexpr bool has_prepare<Operator, A, void_t<decltype(declval<const Operator&>().prepare(declval<A>()))>> =
    true;

template <class Operator, class A, class = void>
inline constexpr bool has_finish = false;
template <class Operator, class A>
inline constexpr bool has_finish<Operator, A, void_t<decltype(declval<const Operator&>().finish(declval<A>(), 1))>> =
    true;

/// An input, as `op` accumulates it.
template <class T, class Operator>
DEVCOMM_DEVICE accumulator_t<T> to_accumulator(const T& element, const Operator& op) {
  const auto value = static_cast<accumulator_t<T>>(element);
  if constexpr (has_prepare<Operator, accumulator_t<T>>) {
    return op.prepare(value);
  } else {
    static_cast<void>(op);
    return value;
  }
}

/// The result, once all `inputs` are in `total`.
template <class T, class Operator>
DEVCOMM_DEVICE T from_accumulator(const accumulator_t<T>& total, int inputs, const Operator& op) {
  if constexpr (has_finish<Operator, accumulator_t<T>>) {
    return static_cast<T>(op.finish(total, inputs));
  } else {
    static_cast<void>(inputs), static_cast<void>(op);
    return static_cast<T>(total);
  }
}

}  // namespace detail

/// Integers wrap around.
struct sum {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    detail::check_width<A>();
    if constexpr (detail::is_integral<A>) {
      using modular = detail::modular_t<A>;
      return static_cast<A>(static_cast<modular>(a) + static_cast<modular>(b));
    } else {
      return a + b;
    }
  }
};

/// Integers wrap around.
struct product {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    detail::check_width<A>();
    if constexpr (detail::is_integral<A>) {
      using modular = detail::modular_t<A>;
      return static_cast<A>(static_cast<modular>(a) * static_cast<modular>(b));
    } else {
      return a * b;
    }
  }
};

/// Of floating-point numbers: NaN where all inputs are NaN, else the smallest of the others; -0 is below +0.
struct minimum {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    if constexpr (detail::is_floating_point<A>) {
      return arch::smaller(a, b);
    } else {
      return b < a ? b : a;
    }
  }
};

/// Of floating-point numbers: NaN where all inputs are NaN, else the largest of the others; -0 is below +0.
struct maximum {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    if constexpr (detail::is_floating_point<A>) {
      return arch::larger(a, b);
    } else {
      return a < b ? b : a;
    }
  }
};

/// `sum`, divided once by the number of inputs, in the accumulator. Integers wrap around in the sum, and the quotient
/// is rounded toward zero, as C++ and NCCL do.
struct average : sum {
  template <class A>
  DEVCOMM_DEVICE A finish(A total, int inputs) const {
    if constexpr (detail::is_integral<A> && sizeof(A) < sizeof(int)) {
      return static_cast<A>(total / inputs);
    } else {
      return total / static_cast<A>(inputs);
    }
  }
};

/// `sum` of the inputs times `scale`; each product is rounded by itself, in the accumulator. `Scale` is converted to
/// the accumulator's type once for each element: give a `float` for types that accumulate in `float`.
///
/// *Requires* the same `scale` on every rank; a factor of one rank alone belongs in its producer.
template <class Scale>
struct scaled_sum : sum {
  Scale scale;

  DEVCOMM_HOST_DEVICE explicit constexpr scaled_sum(Scale factor) : scale(factor) {}

  template <class A>
  DEVCOMM_DEVICE A prepare(A value) const {
    static_assert(!detail::is_integral<A> || detail::is_integral<Scale>,
                  "a fraction would be cut off: integers are scaled by integers");
    if constexpr (detail::is_floating_point<A>) {
      return arch::multiply(value, static_cast<A>(scale));
    } else {
      return product{}(value, static_cast<A>(scale));
    }
  }
};
template <class Scale>
scaled_sum(Scale) -> scaled_sum<Scale>;

namespace detail {

template <class A>
DEVCOMM_HOST_DEVICE constexpr void check_bitwise() {
  static_assert(!is_floating_point<A>, "bitwise operators take integers: reduce the bits as integers of the same size");
}

}  // namespace detail

struct bitwise_and {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    detail::check_bitwise<A>();
    return static_cast<A>(a & b);
  }
};

struct bitwise_or {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    detail::check_bitwise<A>();
    return static_cast<A>(a | b);
  }
};

struct bitwise_xor {
  template <class A>
  DEVCOMM_DEVICE A operator()(A a, A b) const {
    detail::check_bitwise<A>();
    return static_cast<A>(a ^ b);
  }
};

}  // namespace devcomm
