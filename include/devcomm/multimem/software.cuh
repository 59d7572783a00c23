/// \file software.cuh
/// Software multimem: the accesses of a multimem pointer, to each member's memory in turn.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/multimem/forms.cuh>
#include <devcomm/sym_ptr.hpp>

namespace devcomm::detail {

/// Whether `address` is at a multiple of `Bytes` bytes on every member if it is one in the window: memory that the
/// library allocated is; what members registered may be anywhere.
template <int Bytes, class T>
DEVCOMM_DEVICE bool is_aligned_on_members(const sym_ptr<T>& address) {
  if (address.memory.base != nullptr) return true;
  for (int member = 0; member < address.memory.lsa_size; ++member)
    if (reinterpret_cast<uintptr_t>(address.lsa(member)) % Bytes != 0) return false;
  return true;
}

/// Strong loads are of 4 bytes, but of elements that have 8.
template <class T>
using strong_word = conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class Word, int Bytes, memory_order Order, scope Scope>
DEVCOMM_DEVICE multimem_words<Bytes> load_strong(const void* address) {
  constexpr int count = Bytes / static_cast<int>(sizeof(Word));
  Word words[count];
  DEVCOMM_UNROLL
  for (int w = 0; w < count; ++w) words[w] = arch::load<Order, Scope>(static_cast<const Word*>(address) + w);
  multimem_words<Bytes> result;
  copy_bytes(&result, words, Bytes);
  return result;
}

template <class T, int Bytes, bool Plain, memory_order Order, scope Scope>
DEVCOMM_DEVICE multimem_words<Bytes> load_member(const sym_ptr<T>& address, int member) {
  multimem_words<Bytes> result;
  if constexpr (Plain) {
    const auto raw = arch::load_bytes<Bytes>(address.lsa(member));
    copy_bytes(&result, &raw, Bytes);
  } else {
    result = load_strong<strong_word<T>, Bytes, Order, Scope>(address.lsa(member));
  }
  return result;
}

/// In the order of the ranks, each rank's in the accumulator's type; rounded once.
template <class Operator, class T, int Bytes, bool Plain, memory_order Order, scope Scope>
DEVCOMM_DEVICE multimem::value<T, Bytes> load_reduce_members(const sym_ptr<T>& address) {
  using accumulator = accumulator_t<T>;
  constexpr int count = Bytes / static_cast<int>(sizeof(T));
  constexpr int at_once = 4;  // loads under way
  const Operator op{};
  const int members = address.memory.lsa_size;
  accumulator total[count];
  for (int first = 0; first < members; first += at_once) {
    multimem_words<Bytes> words[at_once];
    DEVCOMM_UNROLL
    for (int m = 0; m < at_once; ++m) {
      if (first + m < members) words[m] = load_member<T, Bytes, Plain, Order, Scope>(address, first + m);
    }
    DEVCOMM_UNROLL
    for (int m = 0; m < at_once; ++m) {
      if (first + m >= members) break;
      unit<T, Bytes> values;
      copy_bytes(&values, &words[m], Bytes);
      DEVCOMM_UNROLL
      for (int e = 0; e < count; ++e) {
        const auto one = static_cast<accumulator>(values.data[e]);
        total[e] = first + m == 0 ? one : op(total[e], one);
      }
    }
  }
  unit<T, Bytes> rounded;
  DEVCOMM_UNROLL
  for (int e = 0; e < count; ++e) rounded.data[e] = static_cast<T>(total[e]);
  multimem::value<T, Bytes> result;
  copy_bytes(&result, &rounded, Bytes);
  return result;
}

/// One store for each member; each releases what came before, where the order does.
template <int Bytes, bool Plain, memory_order Order, scope Scope, class T>
DEVCOMM_DEVICE void store_members(const sym_ptr<T>& address, const multimem_words<Bytes>& words) {
  constexpr int count = Bytes / static_cast<int>(sizeof(strong_word<T>));
  const int members = address.memory.lsa_size;
  for (int step = 0; step < members; ++step) {  // ranks store to different members at a time
    const int next = address.memory.lsa_rank + step;
    T* const to = address.lsa(next < members ? next : next - members);
    if constexpr (Plain) {
      decltype(arch::load_bytes<Bytes>(to)) raw;
      copy_bytes(&raw, &words, Bytes);
      arch::store_bytes_streaming<Bytes>(to, raw);
    } else {
      strong_word<T> parts[count];
      copy_bytes(parts, &words, Bytes);
      DEVCOMM_UNROLL
      for (int w = 0; w < count; ++w) arch::store<Order, Scope>(reinterpret_cast<strong_word<T>*>(to) + w, parts[w]);
    }
  }
}

/// Atomic on each element, by compare-and-swap of its word.
template <class Operator, class T, int Bytes, memory_order Order, scope Scope>
DEVCOMM_DEVICE void reduce_members(const sym_ptr<T>& address, const multimem_words<Bytes>& words) {
  using word = strong_word<T>;
  constexpr int per_word = static_cast<int>(sizeof(word) / sizeof(T));
  constexpr int count = Bytes / static_cast<int>(sizeof(word));
  const Operator op{};
  unit<T, sizeof(word)> given[count];
  copy_bytes(given, &words, Bytes);
  if constexpr (releases(Order)) arch::fence<memory_order::release, Scope>();
  const int members = address.memory.lsa_size;
  for (int m = 0; m < members; ++m) {
    for (int w = 0; w < count; ++w) {
      word* const to = reinterpret_cast<word*>(address.lsa(m)) + w;
      word old = arch::load<memory_order::relaxed, Scope>(to);
      for (;;) {
        unit<T, sizeof(word)> values;
        copy_bytes(&values, &old, sizeof old);
        DEVCOMM_UNROLL
        for (int e = 0; e < per_word; ++e) {
          using accumulator = accumulator_t<T>;
          values.data[e] =
              static_cast<T>(op(static_cast<accumulator>(values.data[e]), static_cast<accumulator>(given[w].data[e])));
        }
        word next;
        copy_bytes(&next, &values, sizeof next);
        const word found = arch::compare_exchange<Scope>(to, old, next);
        if (found == old) break;
        old = found;
      }
    }
  }
}

}  // namespace devcomm::detail
