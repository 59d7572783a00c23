/// \file copy.cuh
/// A group copies a range, whatever its size and alignment.
#pragma once

#include <devcomm/group.cuh>
#include <devcomm/pack.cuh>

namespace devcomm {

namespace detail {

/// A range of elements split into those before the first multiple of 16 bytes, whole packs, and the rest.
struct split_range {
  uint64_t head;   ///< elements
  uint64_t packs;  ///< 16 bytes each
  uint64_t tail;   ///< elements

  template <class T>
  DEVCOMM_DEVICE static split_range of(const T* first, uint64_t count) {
    constexpr uint64_t per_pack = 16 / sizeof(T);
    // A struct may be aligned to less than its size: then no pack ever starts on 16 bytes.
    if (reinterpret_cast<uintptr_t>(first) % sizeof(T) != 0) return {count, 0, 0};
    const uint64_t misaligned = reinterpret_cast<uintptr_t>(first) % 16 / sizeof(T);
    const uint64_t before = misaligned == 0 ? 0 : per_pack - misaligned;
    const uint64_t head = before < count ? before : count;
    const uint64_t packs = (count - head) / per_pack;
    return {head, packs, count - head - packs * per_pack};
  }
};

/// Whether a 16-byte boundary of `a` is one of `b` as well, at the same element.
DEVCOMM_DEVICE inline bool same_alignment(const void* a, const void* b) {
  return (reinterpret_cast<uintptr_t>(a) ^ reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

}  // namespace detail

/// Copies `count` elements. The ranges must not overlap. In packs where both have the same alignment
/// modulo 16 bytes, else element by element.
///
/// *Collective* over `group`; does not synchronise it.
template <class Group, class T>
DEVCOMM_DEVICE void copy(const Group& group, T* destination, const T* source, uint64_t count) {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  const uint64_t rank = group.thread_rank();
  const uint64_t threads = group.size();
  if (!detail::same_alignment(destination, source)) {
    for (uint64_t i = rank; i < count; i += threads) destination[i] = source[i];
    return;
  }
  const auto range = detail::split_range::of(source, count);
  constexpr uint64_t per_pack = pack<T>::size;
  constexpr uint64_t unroll = 4;
  for (uint64_t i = rank; i < range.head; i += threads) destination[i] = source[i];
  const T* from = source + range.head;
  T* to = destination + range.head;
  uint64_t i = rank;
  for (; i + (unroll - 1) * threads < range.packs; i += unroll * threads) {
    pack<T> values[unroll];
    for (uint64_t k = 0; k < unroll; ++k) values[k] = load_pack(from + (i + k * threads) * per_pack);
    for (uint64_t k = 0; k < unroll; ++k) store_pack_streaming(to + (i + k * threads) * per_pack, values[k]);
  }
  for (; i < range.packs; i += threads) {
    store_pack_streaming(to + i * per_pack, load_pack(from + i * per_pack));
  }
  const uint64_t done = range.head + range.packs * per_pack;
  for (uint64_t k = rank; k < range.tail; k += threads) destination[done + k] = source[done + k];
}

}  // namespace devcomm
