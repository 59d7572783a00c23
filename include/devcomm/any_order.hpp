/// \file any_order.hpp
/// The orders that calls take, libcu++'s among them, and which of them make sense where.
#pragma once

#include <devcomm/arch/language.hpp>
#include <devcomm/assert.hpp>
#include <devcomm/config.hpp>
#include <devcomm/memory_order.hpp>

namespace devcomm {

namespace detail {

// The orders of a standard library, recognized by their last enumerator: an enum class from C++20 on.
template <class T, class = void>
inline constexpr bool is_scoped_order = false;
template <class T>
inline constexpr bool is_scoped_order<T, void_t<decltype(T::seq_cst)>> = true;
template <class T, class = void>
inline constexpr bool is_unscoped_order = false;
template <class T>
inline constexpr bool is_unscoped_order<T, void_t<decltype(T::memory_order_seq_cst)>> = true;

template <class T, class = void>
inline constexpr bool is_thread_scope = false;
template <class T>
inline constexpr bool is_thread_scope<T, void_t<decltype(T::thread_scope_system)>> = true;

}  // namespace detail

/// The order that a call was given: a `devcomm::memory_order`, or where the caller uses libcu++ or the standard
/// library, theirs. There is no sequentially consistent order: it is refused in checked mode, and `acq_rel` otherwise.
///
/// Orders are run-time values, as those of `cuda::atomic_ref` are; so orders that make no sense, such as a wait that
/// releases, are found in checked mode, in the simulator always, and not by the compiler.
class any_order {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): orders are arguments
  DEVCOMM_HOST_DEVICE constexpr any_order(memory_order order) : order_(order) {}
  template <class Order, detail::enable_if_t<detail::is_scoped_order<Order> || detail::is_unscoped_order<Order>> = 0>
  // NOLINTNEXTLINE(google-explicit-constructor): orders are arguments
  DEVCOMM_HOST_DEVICE constexpr any_order(Order order) : order_(of_number(static_cast<int>(order))) {}

  // NOLINTNEXTLINE(google-explicit-constructor): so that it is one
  DEVCOMM_HOST_DEVICE constexpr operator memory_order() const { return order_; }

 private:
  DEVCOMM_HOST_DEVICE static constexpr memory_order of_number(int number) {
    constexpr int consume = 1;
    constexpr int seq_cst = 5;
    DEVCOMM_ASSERT(number != seq_cst, "no call is sequentially consistent: acq_rel is the strongest order");
    if (number == seq_cst) return memory_order::acq_rel;
    return number == consume ? memory_order::acquire : static_cast<memory_order>(number);
  }

  memory_order order_;
};

/// The scope that libcu++'s `cuda::thread_scope` names. The scope of one thread is that of its block.
template <class Scope, detail::enable_if_t<detail::is_thread_scope<Scope>> = 0>
DEVCOMM_HOST_DEVICE constexpr scope to_scope(Scope of_thread) {
  return of_thread == Scope::thread_scope_system   ? scope::system
         : of_thread == Scope::thread_scope_device ? scope::device
                                                   : scope::block;
}
DEVCOMM_HOST_DEVICE constexpr scope to_scope(scope same) { return same; }

namespace detail {

/// What a call that stores may be given: what releases, or relaxed.
DEVCOMM_DEVICE inline void check_store_order([[maybe_unused]] memory_order order) {
  DEVCOMM_ASSERT(order != memory_order::acquire,
                 "what stores cannot acquire: give it memory_order::release or relaxed, and acquire to the wait");
}
/// What a call that waits or loads may be given: what acquires, or relaxed.
DEVCOMM_DEVICE inline void check_load_order([[maybe_unused]] memory_order order) {
  DEVCOMM_ASSERT(order != memory_order::release,
                 "what waits cannot release: give it memory_order::acquire or relaxed, and release to what stores");
}

}  // namespace detail

}  // namespace devcomm
