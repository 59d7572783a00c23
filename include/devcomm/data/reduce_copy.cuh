/// \file reduce_copy.cuh
/// Reads a range from N sources, reduces it, and writes it to M destinations.
///
///     // Sum of all ranks' inputs into this rank's output.
///     reduce_copy<float>(block{}, comm.lsa_size, [&](int rank) { return input.lsa(rank); }, 1,
///                        [&](int) { return output; }, count, sum{});
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/data/copy.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/group.cuh>

namespace devcomm {

namespace detail {

template <class T, class Sources, class Destinations, class Operator>
struct reduced_range {
  uint64_t rank;
  uint64_t threads;
  int source_count;
  const Sources& sources;
  int destination_count;
  const Destinations& destinations;
  uint64_t count;
  const Operator& op;

  /// Reduces the unit at element `i` of all sources, in their order, and writes it to all destinations; and `Unroll -
  /// 1` more, each `stride` elements on.
  template <int Bytes, int Unroll>
  DEVCOMM_DEVICE void move(uint64_t i, uint64_t stride) const {
    using accumulator = accumulator_t<T>;
    constexpr int per_unit = unit<T, Bytes>::size;
    accumulator total[Unroll][per_unit];
    for (int s = 0; s < source_count; ++s) {
      const T* source = sources(s) + i;
      unit<T, Bytes> values[Unroll];
      DEVCOMM_UNROLL
      for (int u = 0; u < Unroll; ++u) values[u] = load_unit<Bytes>(source + static_cast<uint64_t>(u) * stride);
      DEVCOMM_UNROLL
      for (int u = 0; u < Unroll; ++u) {
        DEVCOMM_UNROLL
        for (int e = 0; e < per_unit; ++e) {
          const accumulator value = to_accumulator<T>(values[u].data[e], op);
          total[u][e] = s == 0 ? value : op(total[u][e], value);
        }
      }
    }
    DEVCOMM_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      unit<T, Bytes> result;
      DEVCOMM_UNROLL
      for (int e = 0; e < per_unit; ++e) result.data[e] = from_accumulator<T>(total[u][e], source_count, op);
      for (int d = 0; d < destination_count; ++d)
        store_unit<Bytes>(destinations(d) + i + static_cast<uint64_t>(u) * stride, result);
    }
  }

  template <int Bytes>
  DEVCOMM_DEVICE void run() const {
    constexpr uint64_t per_unit = unit<T, Bytes>::size;
    constexpr int unroll = 4;
    const auto range = split_range::of<Bytes>(sources(0), count);
    for (uint64_t i = rank; i < range.head; i += threads) move<0, 1>(i, 0);
    uint64_t u = rank;
    for (; u + (unroll - 1) * threads < range.units; u += unroll * threads)
      move<Bytes, unroll>(range.head + u * per_unit, threads * per_unit);
    for (; u < range.units; u += threads) move<Bytes, 1>(range.head + u * per_unit, 0);
    for (uint64_t i = count - range.tail + rank; i < count; i += threads) move<0, 1>(i, 0);
  }
};

}  // namespace detail

/// `destinations(d)[i] = op(...op(sources(0)[i], sources(1)[i])..., sources(source_count - 1)[i])` for
/// `count` elements. `sources(s)` and `destinations(d)` return pointers; local or peer memory. A
/// destination may be one of the sources, at the same address. The order of reduction is that of the
/// sources, so ranks that name them in one order get the same bits.
///
/// Moves 16 bytes at a time where all pointers have the same alignment modulo 16 bytes, else 8, 4 or an element, the
/// most that all have in common; elements of a size that 16 is no multiple of one by one.
///
/// *Collective* over `group`; does not synchronize it. *Requires* at least one source.
template <class T, class Group, class Sources, class Destinations, class Operator>
DEVCOMM_DEVICE void reduce_copy(const Group& group, int source_count, const Sources& sources, int destination_count,
                                const Destinations& destinations, uint64_t count, Operator op) {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  static_assert(detail::is_trivially_copyable<T>, "elements that are reduced must be trivially copyable");
  DEVCOMM_ASSERT(source_count >= 1, "reduce_copy needs at least one source");
  detail::alignment<T> common(sources(0));
  for (int s = 1; s < source_count; ++s) common.include(sources(s));
  for (int d = 0; d < destination_count; ++d) common.include(destinations(d));
  common.with_widest(detail::reduced_range<T, Sources, Destinations, Operator>{
      static_cast<uint32_t>(group.thread_rank()), static_cast<uint32_t>(group.size()), source_count, sources,
      destination_count, destinations, count, op});
}

}  // namespace devcomm
