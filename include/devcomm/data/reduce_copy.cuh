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

  /// `Unroll` units of each of the sources, as they are reduced.
  template <int Bytes, int Unroll>
  struct totals {
    accumulator_t<T> of[Unroll][unit<T, Bytes>::size];
  };

  /// Adds the sources from `first` on to `total`, in their order: `AtOnce` at a time, whose loads are all under way
  /// before the first is waited for, and what is left by half as many.
  template <int Bytes, int Unroll, int AtOnce>
  DEVCOMM_DEVICE void add(totals<Bytes, Unroll>& total, int first, uint64_t i, uint64_t stride) const {
    DEVCOMM_UNROLL_BY(1)
    for (; first + AtOnce <= source_count; first += AtOnce) {
      unit<T, Bytes> values[AtOnce][Unroll];
      DEVCOMM_UNROLL
      for (int s = 0; s < AtOnce; ++s) {
        const T* source = sources(first + s) + i;
        DEVCOMM_UNROLL
        for (int u = 0; u < Unroll; ++u) values[s][u] = load_unit<Bytes>(source + static_cast<uint64_t>(u) * stride);
      }
      DEVCOMM_UNROLL
      for (int s = 0; s < AtOnce; ++s) {
        DEVCOMM_UNROLL
        for (int u = 0; u < Unroll; ++u) {
          DEVCOMM_UNROLL
          for (int e = 0; e < unit<T, Bytes>::size; ++e) {
            const accumulator_t<T> value = to_accumulator<T>(values[s][u].data[e], op);
            total.of[u][e] = first + s == 0 ? value : op(total.of[u][e], value);
          }
        }
      }
    }
    if constexpr (AtOnce > 1) add<Bytes, Unroll, AtOnce / 2>(total, first, i, stride);
  }

  /// Reduces the unit at element `i` of all sources and writes it to all destinations; and `Unroll - 1` more, each
  /// `stride` elements on.
  template <int Bytes, int Unroll, int AtOnce>
  DEVCOMM_DEVICE void move(uint64_t i, uint64_t stride) const {
    totals<Bytes, Unroll> total;
    add<Bytes, Unroll, AtOnce>(total, 0, i, stride);
    DEVCOMM_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      unit<T, Bytes> result;
      DEVCOMM_UNROLL
      for (int e = 0; e < unit<T, Bytes>::size; ++e)
        result.data[e] = from_accumulator<T>(total.of[u][e], source_count, op);
      for (int d = 0; d < destination_count; ++d)
        store_unit<Bytes>(destinations(d) + i + static_cast<uint64_t>(u) * stride, result);
    }
  }

  template <int Bytes>
  DEVCOMM_DEVICE void run() const {
    constexpr uint64_t per_unit = unit<T, Bytes>::size;
    // Registers of the loop: 8 loads under way, and the totals, of which elements of one byte have many.
    constexpr int unroll = sizeof(T) == 1 ? 2 : 4;
    const auto range = split_range::of<Bytes>(sources(0), count);
    DEVCOMM_UNROLL_BY(1)
    for (uint64_t i = rank; i < range.edge_count(); i += threads) move<0, 1, 4>(range.edge_index(i, per_unit), 0);
    uint64_t u = rank;
    DEVCOMM_UNROLL_BY(1)
    for (; u + (unroll - 1) * threads < range.units; u += unroll * threads)
      move<Bytes, unroll, 8 / unroll>(range.head + u * per_unit, threads * per_unit);
    DEVCOMM_UNROLL_BY(1)
    for (; u < range.units; u += threads) move<Bytes, 1, 8>(range.head + u * per_unit, 0);
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
