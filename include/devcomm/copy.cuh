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

/// Copies `count` elements from `source` to each of `destination_count` places; `destinations(d)` returns a pointer.
/// The source is read once. In packs where all have the same alignment modulo 16 bytes, else element by element.
///
/// A destination may be the source itself; ranges must not overlap otherwise.
///
/// *Collective* over `group`; does not synchronise it.
template <class T, class Group, class Destinations>
DEVCOMM_DEVICE void copy_to_all(const Group& group, int destination_count, const Destinations& destinations,
                                const T* source, uint64_t count) {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  const uint64_t rank = group.thread_rank();
  const uint64_t threads = group.size();
  bool aligned = true;
  for (int d = 0; d < destination_count; ++d) aligned = aligned && detail::same_alignment(destinations(d), source);
  const auto range = aligned ? detail::split_range::of(source, count) : detail::split_range{count, 0, 0};
  const auto copy_element = [&](uint64_t i) {
    const T value = source[i];
    for (int d = 0; d < destination_count; ++d) destinations(d)[i] = value;
  };
  constexpr uint64_t per_pack = pack<T>::size;
  constexpr int unroll = 4;
  for (uint64_t i = rank; i < range.head; i += threads) copy_element(i);
  const T* from = source + range.head;
  uint64_t i = rank;
  for (; i + (unroll - 1) * threads < range.packs; i += unroll * threads) {
    pack<T> values[unroll];
    DEVCOMM_UNROLL
    for (int k = 0; k < unroll; ++k) values[k] = load_pack(from + (i + static_cast<uint64_t>(k) * threads) * per_pack);
    for (int d = 0; d < destination_count; ++d) {
      T* to = destinations(d) + range.head;
      DEVCOMM_UNROLL
      for (int k = 0; k < unroll; ++k)
        store_pack_streaming(to + (i + static_cast<uint64_t>(k) * threads) * per_pack, values[k]);
    }
  }
  for (; i < range.packs; i += threads) {
    const pack<T> value = load_pack(from + i * per_pack);
    for (int d = 0; d < destination_count; ++d)
      store_pack_streaming(destinations(d) + range.head + i * per_pack, value);
  }
  for (uint64_t k = range.head + range.packs * per_pack + rank; k < count; k += threads) copy_element(k);
}

/// `copy_to_all` to one place.
template <class Group, class T>
DEVCOMM_DEVICE void copy(const Group& group, T* destination, const T* source, uint64_t count) {
  copy_to_all<T>(
      group, 1, [&](int) { return destination; }, source, count);
}

}  // namespace devcomm
