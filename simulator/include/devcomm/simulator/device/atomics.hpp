/// \file atomics.hpp
/// `atomicAdd` and the like: relaxed, as in CUDA, at scope device unless their suffix says otherwise.
#pragma once

#include <devcomm/simulator/detail/execution.hpp>
#include <devcomm/simulator/detail/scope.hpp>
#include <devcomm/simulator/device/warp.hpp>

#include <cstdint>

namespace devcomm::simulator::detail {

template <class T>
struct bits_of;
template <>
struct bits_of<float> {
  using type = uint32_t;
};
template <>
struct bits_of<double> {
  using type = uint64_t;
};

/// Replaces `*p` by `next(*p)`; returns what it was. An update that changes nothing counts as a load.
template <atomic_scope Scope, class Bits, int Order = __ATOMIC_RELAXED, class T, class Next>
DEVCOMM_SIMULATOR_OF_CALLER T update(T* p, Next next) {
  const at_scope<Scope> here;
  auto* word = reinterpret_cast<Bits*>(p);
  Bits seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  Bits wanted;
  do {
    wanted = static_cast<Bits>(to_bits<T>(next(from_bits<T>(seen))));
  } while (!__atomic_compare_exchange_n(word, &seen, wanted, false, Order, __ATOMIC_RELAXED));
  if (wanted == seen) {
    loaded(p, sizeof(T), static_cast<uint64_t>(seen));
  } else {
    stored(p, sizeof(T));
  }
  return from_bits<T>(seen);
}

}  // namespace devcomm::simulator::detail

#define DEVCOMM_SIMULATOR_RMW_AT(name, scope, T, Bits, expression)                                    \
  DEVCOMM_SIMULATOR_OF_CALLER T name(T* p, T v) {                                                     \
    return devcomm::simulator::detail::update<devcomm::simulator::detail::atomic_scope::scope, Bits>( \
        p, [v](T old) -> T {                                                                          \
          static_cast<void>(old);                                                                     \
          return static_cast<T>(expression);                                                          \
        });                                                                                           \
  }
#define DEVCOMM_SIMULATOR_RMW(name, T, Bits, expression)             \
  DEVCOMM_SIMULATOR_RMW_AT(name, device, T, Bits, expression)        \
  DEVCOMM_SIMULATOR_RMW_AT(name##_block, block, T, Bits, expression) \
  DEVCOMM_SIMULATOR_RMW_AT(name##_system, system, T, Bits, expression)

#define DEVCOMM_SIMULATOR_INTEGER_RMW(name, expression)           \
  DEVCOMM_SIMULATOR_RMW(name, int, uint32_t, expression)          \
  DEVCOMM_SIMULATOR_RMW(name, unsigned int, uint32_t, expression) \
  DEVCOMM_SIMULATOR_RMW(name, unsigned long long, uint64_t, expression)

DEVCOMM_SIMULATOR_RMW(atomicAdd, int, uint32_t, static_cast<unsigned>(old) + static_cast<unsigned>(v))
DEVCOMM_SIMULATOR_RMW(atomicAdd, unsigned int, uint32_t, old + v)
DEVCOMM_SIMULATOR_RMW(atomicAdd, unsigned long long, uint64_t, old + v)
DEVCOMM_SIMULATOR_RMW(atomicAdd, float, uint32_t, old + v)
DEVCOMM_SIMULATOR_RMW(atomicAdd, double, uint64_t, old + v)
DEVCOMM_SIMULATOR_RMW(atomicSub, int, uint32_t, static_cast<unsigned>(old) - static_cast<unsigned>(v))
DEVCOMM_SIMULATOR_RMW(atomicSub, unsigned int, uint32_t, old - v)
DEVCOMM_SIMULATOR_INTEGER_RMW(atomicExch, v)
DEVCOMM_SIMULATOR_RMW(atomicExch, float, uint32_t, v)
DEVCOMM_SIMULATOR_INTEGER_RMW(atomicMin, old < v ? old : v)
DEVCOMM_SIMULATOR_INTEGER_RMW(atomicMax, old > v ? old : v)
DEVCOMM_SIMULATOR_RMW(atomicMin, long long, uint64_t, old < v ? old : v)
DEVCOMM_SIMULATOR_RMW(atomicMax, long long, uint64_t, old > v ? old : v)
DEVCOMM_SIMULATOR_INTEGER_RMW(atomicAnd, old& v)
DEVCOMM_SIMULATOR_INTEGER_RMW(atomicOr, old | v)
DEVCOMM_SIMULATOR_INTEGER_RMW(atomicXor, old ^ v)
DEVCOMM_SIMULATOR_RMW(atomicInc, unsigned int, uint32_t, old >= v ? 0u : old + 1u)
DEVCOMM_SIMULATOR_RMW(atomicDec, unsigned int, uint32_t, old == 0u || old > v ? v : old - 1u)

#undef DEVCOMM_SIMULATOR_INTEGER_RMW
#undef DEVCOMM_SIMULATOR_RMW
#undef DEVCOMM_SIMULATOR_RMW_AT

#define DEVCOMM_SIMULATOR_CAS_AT(name, scope, T, Bits)                                                \
  DEVCOMM_SIMULATOR_OF_CALLER T name(T* p, T expected, T desired) {                                   \
    return devcomm::simulator::detail::update<devcomm::simulator::detail::atomic_scope::scope, Bits>( \
        p, [=](T old) -> T { return old == expected ? desired : old; });                              \
  }
#define DEVCOMM_SIMULATOR_CAS(T, Bits)                      \
  DEVCOMM_SIMULATOR_CAS_AT(atomicCAS, device, T, Bits)      \
  DEVCOMM_SIMULATOR_CAS_AT(atomicCAS_block, block, T, Bits) \
  DEVCOMM_SIMULATOR_CAS_AT(atomicCAS_system, system, T, Bits)
DEVCOMM_SIMULATOR_CAS(int, uint32_t)
DEVCOMM_SIMULATOR_CAS(unsigned int, uint32_t)
DEVCOMM_SIMULATOR_CAS(unsigned short, uint16_t)
DEVCOMM_SIMULATOR_CAS(unsigned long long, uint64_t)
#undef DEVCOMM_SIMULATOR_CAS
#undef DEVCOMM_SIMULATOR_CAS_AT
