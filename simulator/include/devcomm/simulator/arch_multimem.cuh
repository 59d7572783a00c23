/// \file arch_multimem.cuh
/// Accesses to multicast addresses in the simulator; see devcomm/arch/arch.cuh for what each function
/// guarantees. Included behind arch.cuh.
///
/// A multicast address is a range without memory. An access to it is one to each member's memory at the address by
/// which kernels of this process reach it, so that race detectors and delays of stores see each, in an order drawn from
/// the seed.
#pragma once

#include <devcomm/arch/language.hpp>
#include <devcomm/arch/multimem_forms.hpp>

namespace devcomm::arch {

inline constexpr bool has_multimem = true;
inline constexpr bool has_small_multimem = true;

template <class T>
inline constexpr detail::multimem_type multimem_type_of = detail::multimem_arithmetic_type<T>();
template <class Raw>
inline constexpr detail::multimem_type multimem_type_of<simulator::detail::small_float<5, 10, Raw>> =
    detail::multimem_type::f16;
template <class Raw>
inline constexpr detail::multimem_type multimem_type_of<simulator::detail::small_float<8, 7, Raw>> =
    detail::multimem_type::bf16;
template <>
inline constexpr detail::multimem_type multimem_type_of<simulator::detail::fp8<4, 3>> = detail::multimem_type::e4m3;
template <>
inline constexpr detail::multimem_type multimem_type_of<simulator::detail::fp8<5, 2>> = detail::multimem_type::e5m2;

/// The members that an access to a multicast address reaches, while it lives.
class multicast_scope {
 public:
  multicast_scope(const void* address, int bytes)
      : members_(sim::begin_multicast(address, static_cast<std::size_t>(bytes))) {}
  ~multicast_scope() { sim::end_multicast(); }
  multicast_scope(const multicast_scope&) = delete;
  multicast_scope& operator=(const multicast_scope&) = delete;
  [[nodiscard]] int count() const { return members_.count; }
  /// The `i`th word of `words`, in the order in which they go.
  [[nodiscard]] int word(int i, int words) const {
    return static_cast<int>((members_.first_word + static_cast<uint32_t>(i)) % static_cast<uint32_t>(words));
  }
  [[nodiscard]] char* operator[](int i) const { return members_.at[i]; }

 private:
  sim::multicast_members members_;
};

template <detail::multimem_operation Operation, class A>
A multimem_combine(A a, A b) {
  if constexpr (Operation == detail::multimem_operation::add) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) + static_cast<std::make_unsigned_t<A>>(b));
    } else {
      return a + b;
    }
  } else if constexpr (Operation == detail::multimem_operation::bit_and) {
    return static_cast<A>(a & b);
  } else if constexpr (Operation == detail::multimem_operation::bit_or) {
    return static_cast<A>(a | b);
  } else if constexpr (Operation == detail::multimem_operation::bit_xor) {
    return static_cast<A>(a ^ b);
  } else if constexpr (std::is_integral_v<A>) {
    return (Operation == detail::multimem_operation::min) == (b < a) ? b : a;
  } else {
    return Operation == detail::multimem_operation::min ? smaller(a, b) : larger(a, b);
  }
}

template <class T>
using multimem_word = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
using multimem_accumulator = std::conditional_t<is_small_float<T>, float, T>;

template <detail::multimem_operation Operation, class T, int Bytes, bool Plain, memory_order Order, scope Scope>
DEVCOMM_SIMULATOR_OF_CALLER detail::multimem_words<Bytes> multimem_load_reduce(const void* address) {
  static_assert(detail::has_multimem_operation(multimem_type_of<T>, Operation) &&
                    detail::has_multimem_width(multimem_type_of<T>, Bytes),
                "PTX has no such form");
  using word = multimem_word<T>;
  constexpr int words = Bytes / static_cast<int>(sizeof(word));
  constexpr int elements = Bytes / static_cast<int>(sizeof(T));
  multimem_accumulator<T> total[elements] = {};
  const multicast_scope members(address, Bytes);
  for (int m = 0; m < members.count(); ++m) {
    word raw[words];
    for (int w = 0; w < words; ++w) {
      const auto* const from = reinterpret_cast<const word*>(members[m]) + w;
      if constexpr (Plain) {
        __builtin_memcpy(&raw[w], __builtin_assume_aligned(from, sizeof(word)), sizeof(word));
      } else {
        raw[w] = load<Order, Scope>(from);
      }
    }
    T values[elements];
    __builtin_memcpy(static_cast<void*>(values), raw, Bytes);
    for (int e = 0; e < elements; ++e) {
      const auto value = static_cast<multimem_accumulator<T>>(values[e]);
      total[e] = m == 0 ? value : multimem_combine<Operation>(total[e], value);
    }
  }
  T rounded[elements];
  for (int e = 0; e < elements; ++e) rounded[e] = static_cast<T>(total[e]);
  detail::multimem_words<Bytes> result;
  __builtin_memcpy(&result, static_cast<const void*>(rounded), Bytes);
  return result;
}

/// One word of 8 bytes; of wider stores, words of 4 bytes in any order, as GPUs promise no more.
template <int Bytes, bool Plain, memory_order Order, scope Scope>
DEVCOMM_SIMULATOR_OF_CALLER void multimem_store(void* address, detail::multimem_words<Bytes> value) {
  using word = std::conditional_t<Bytes == 8, uint64_t, uint32_t>;
  constexpr int words = Bytes / static_cast<int>(sizeof(word));
  word raw[words];
  __builtin_memcpy(raw, &value, Bytes);
  const multicast_scope members(address, Bytes);
  for (int m = 0; m < members.count(); ++m) {
    auto* const to = reinterpret_cast<word*>(members[m]);
    for (int i = 0; i < words; ++i) {
      const int w = members.word(i, words);
      if constexpr (Plain) {
        __builtin_memcpy(__builtin_assume_aligned(to + w, sizeof(word)), &raw[w], sizeof(word));
      } else {
        store<Order, Scope>(to + w, raw[w]);
      }
      sim::preempt();
    }
  }
}

template <detail::multimem_operation Operation, class T, int Bytes, memory_order Order, scope Scope>
DEVCOMM_SIMULATOR_OF_CALLER void multimem_reduce(void* address, detail::multimem_words<Bytes> value) {
  static_assert(detail::has_multimem_operation(multimem_type_of<T>, Operation) &&
                    detail::has_multimem_width(multimem_type_of<T>, Bytes) &&
                    !detail::is_multimem_quarter(multimem_type_of<T>),
                "PTX has no such form");
  using word = multimem_word<T>;
  constexpr int words = Bytes / static_cast<int>(sizeof(word));
  constexpr int elements = static_cast<int>(sizeof(word) / sizeof(T));
  T given[Bytes / sizeof(T)];
  __builtin_memcpy(static_cast<void*>(given), &value, Bytes);
  const multicast_scope members(address, Bytes);
  for (int m = 0; m < members.count(); ++m) {
    for (int w = 0; w < words; ++w) {
      word* const to = reinterpret_cast<word*>(members[m]) + w;
      if constexpr (std::is_integral_v<T> &&
                    Operation == detail::multimem_operation::add) {  // the change of a barrier's word
        static_cast<void>(fetch_add<Order, Scope>(to, static_cast<word>(given[w])));
        continue;
      }
      word old = load<memory_order::relaxed, Scope>(to);
      for (;;) {
        T values[elements];
        __builtin_memcpy(static_cast<void*>(values), &old, sizeof old);
        for (int e = 0; e < elements; ++e) {
          using accumulator = multimem_accumulator<T>;
          values[e] = static_cast<T>(multimem_combine<Operation>(static_cast<accumulator>(values[e]),
                                                                 static_cast<accumulator>(given[w * elements + e])));
        }
        word next = 0;
        __builtin_memcpy(&next, static_cast<const void*>(values), sizeof next);
        const word found = exchange_if<Order>(to, old, next);
        if (found == old) break;
        old = found;
      }
    }
    sim::preempt();
  }
}

inline void fence_alias() { sim::fence_alias(); }

}  // namespace devcomm::arch
