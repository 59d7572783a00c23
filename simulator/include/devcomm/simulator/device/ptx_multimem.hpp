/// \file ptx_multimem.hpp
/// `multimem` instructions of inline PTX as functions. Included where a file has them, as they need the seam.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <devcomm/arch/arch.cuh>
#include <devcomm/arch/multimem.cuh>

#include <devcomm/simulator/device/ptx.hpp>

namespace devcomm::simulator::detail::ptx {

using multimem_operation = devcomm::detail::multimem_operation;
using multimem_f16 = __half;
using multimem_bf16 = __nv_bfloat16;
using multimem_e4m3 = __nv_fp8_e4m3;
using multimem_e5m2 = __nv_fp8_e5m2;

/// Of a built-in's order.
constexpr memory_order order_of(int order) {
  return order == __ATOMIC_ACQUIRE   ? memory_order::acquire
         : order == __ATOMIC_RELEASE ? memory_order::release
         : order == __ATOMIC_ACQ_REL ? memory_order::acq_rel
                                     : memory_order::relaxed;
}
constexpr scope scope_of(atomic_scope scope) {
  return scope == atomic_scope::block    ? devcomm::scope::block
         : scope == atomic_scope::device ? devcomm::scope::device
                                         : devcomm::scope::system;
}

template <int Bytes, class... Registers>
devcomm::detail::multimem_words<Bytes> words_of(Registers... registers) {
  static_assert((sizeof(Registers) + ...) == Bytes);
  const std::common_type_t<Registers...> each[] = {registers...};
  devcomm::detail::multimem_words<Bytes> words;
  __builtin_memcpy(&words, each, Bytes);
  return words;
}

template <multimem_operation Operation, class T, int Bytes, int Order, atomic_scope Scope>
DEVCOMM_SIMULATOR_OF_CALLER auto multimem_load_reduce(const void* address) {
  using word = arch::multimem_word<T>;
  const auto words =
      arch::multimem_load_reduce<Operation, T, Bytes, Order == weak_access, order_of(Order), scope_of(Scope)>(address);
  vector<std::conditional_t<sizeof(word) == 8, unsigned long long, unsigned>, Bytes / sizeof(word)> result;
  __builtin_memcpy(&result, &words, Bytes);
  return result;
}
template <int Bytes, int Order, atomic_scope Scope, class... Registers>
DEVCOMM_SIMULATOR_OF_CALLER void multimem_store(void* address, Registers... registers) {
  arch::multimem_store<Bytes, Order == weak_access, order_of(Order), scope_of(Scope)>(address,
                                                                                      words_of<Bytes>(registers...));
}
template <multimem_operation Operation, class T, int Bytes, int Order, atomic_scope Scope, class... Registers>
DEVCOMM_SIMULATOR_OF_CALLER void multimem_reduce(void* address, Registers... registers) {
  arch::multimem_reduce<Operation, T, Bytes, order_of(Order), scope_of(Scope)>(address, words_of<Bytes>(registers...));
}

}  // namespace devcomm::simulator::detail::ptx
