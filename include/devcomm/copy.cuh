/// \file copy.cuh
/// A group copies a range, whatever its size and alignment.
#pragma once

#include <devcomm/detail/units.cuh>
#include <devcomm/group.cuh>

namespace devcomm {

namespace detail {

template <class T, class Destinations>
struct copied_range {
  uint64_t rank;
  uint64_t threads;
  int destination_count;
  const Destinations& destinations;
  const T* source;
  uint64_t count;

  /// Copies the unit at element `i`, and `Unroll - 1` more, each `stride` elements on.
  template <int Bytes, int Unroll>
  DEVCOMM_DEVICE void move(uint64_t i, uint64_t stride) const {
    unit<T, Bytes> values[Unroll];
    DEVCOMM_UNROLL
    for (int u = 0; u < Unroll; ++u) values[u] = load_unit<Bytes>(source + i + static_cast<uint64_t>(u) * stride);
    for (int d = 0; d < destination_count; ++d) {
      T* to = destinations(d) + i;
      DEVCOMM_UNROLL
      for (int u = 0; u < Unroll; ++u) store_unit<Bytes>(to + static_cast<uint64_t>(u) * stride, values[u]);
    }
  }

  template <int Bytes>
  DEVCOMM_DEVICE void run() const {
    constexpr uint64_t per_unit = unit<T, Bytes>::size;
    constexpr int unroll = 4;
    const auto range = split_range::of<Bytes>(source, count);
    for (uint64_t i = rank; i < range.head; i += threads) move<0, 1>(i, 0);
    uint64_t u = rank;
    for (; u + (unroll - 1) * threads < range.units; u += unroll * threads)
      move<Bytes, unroll>(range.head + u * per_unit, threads * per_unit);
    for (; u < range.units; u += threads) move<Bytes, 1>(range.head + u * per_unit, 0);
    for (uint64_t i = count - range.tail + rank; i < count; i += threads) move<0, 1>(i, 0);
  }
};

}  // namespace detail

/// Copies `count` elements from `source` to each of `destination_count` places; `destinations(d)` returns a pointer.
/// The source is read once. Moves 16 bytes at a time where all places have the same alignment modulo 16 bytes, else 8,
/// 4 or an element, the most that all have in common.
///
/// A destination may be the source itself; ranges must not overlap otherwise.
///
/// *Collective* over `group`; does not synchronise it.
template <class T, class Group, class Destinations>
DEVCOMM_DEVICE void copy_to_all(const Group& group, int destination_count, const Destinations& destinations,
                                const T* source, uint64_t count) {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  detail::alignment<T> common(source);
  for (int d = 0; d < destination_count; ++d) common.meet(destinations(d));
  common.with_widest(detail::copied_range<T, Destinations>{group.thread_rank(), group.size(), destination_count,
                                                           destinations, source, count});
}

/// `copy_to_all` to one place.
template <class Group, class T>
DEVCOMM_DEVICE void copy(const Group& group, T* destination, const T* source, uint64_t count) {
  const auto only = [&](int) { return destination; };
  copy_to_all<T>(group, 1, only, source, count);
}

}  // namespace devcomm
