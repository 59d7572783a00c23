/// \file reduce_copy.cuh
/// Reads the same range from N places, reduces it, and writes it to M places.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/copy.cuh>
#include <devcomm/reduction.cuh>

namespace devcomm {

namespace detail {

/// Reduces element `i` of all sources, in their order, and writes it to all destinations.
template <class T, class Sources, class Destinations, class Operator>
DEVCOMM_DEVICE void reduce_copy_element(const Sources& sources, int source_count, const Destinations& destinations,
                                        int destination_count, uint64_t i, Operator op) {
  auto total = to_accumulator<T>(sources(0)[i], op);
  for (int s = 1; s < source_count; ++s) total = op(total, to_accumulator<T>(sources(s)[i], op));
  const T result = from_accumulator<T>(total, source_count, op);
  for (int d = 0; d < destination_count; ++d) destinations(d)[i] = result;
}

/// The same for the packs that start at elements `i`, `i + stride`, and so on, `Unroll` of them.
template <int Unroll, class T, class Sources, class Destinations, class Operator>
DEVCOMM_DEVICE void reduce_copy_packs(const Sources& sources, int source_count, const Destinations& destinations,
                                      int destination_count, uint64_t i, uint64_t stride, Operator op) {
  using accumulator = accumulator_t<T>;
  constexpr int per_pack = pack<T>::size;
  accumulator total[Unroll][per_pack];
  for (int s = 0; s < source_count; ++s) {
    const T* source = sources(s) + i;
    pack<T> values[Unroll];
    DEVCOMM_UNROLL
    for (int u = 0; u < Unroll; ++u) values[u] = load_pack(source + static_cast<uint64_t>(u) * stride);
    DEVCOMM_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      DEVCOMM_UNROLL
      for (int e = 0; e < per_pack; ++e) {
        const accumulator value = to_accumulator<T>(values[u][e], op);
        total[u][e] = s == 0 ? value : op(total[u][e], value);
      }
    }
  }
  DEVCOMM_UNROLL
  for (int u = 0; u < Unroll; ++u) {
    pack<T> result;
    DEVCOMM_UNROLL
    for (int e = 0; e < per_pack; ++e) result[e] = from_accumulator<T>(total[u][e], source_count, op);
    for (int d = 0; d < destination_count; ++d) {
      store_pack_streaming(destinations(d) + i + static_cast<uint64_t>(u) * stride, result);
    }
  }
}

}  // namespace detail

/// `destinations(d)[i] = op(...op(sources(0)[i], sources(1)[i])..., sources(source_count - 1)[i])` for
/// `count` elements. `sources(s)` and `destinations(d)` return pointers; local or peer memory. A
/// destination may be one of the sources, at the same place. The order of reduction is that of the
/// sources, so ranks that name them in one order get the same bits.
///
/// Works in packs where all pointers have the same alignment modulo 16 bytes, else by element.
///
/// *Collective* over `group`; does not synchronise it. *Requires* at least one source.
template <class T, class Group, class Sources, class Destinations, class Operator>
DEVCOMM_DEVICE void reduce_copy(const Group& group, int source_count, const Sources& sources, int destination_count,
                                const Destinations& destinations, uint64_t count, Operator op) {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  DEVCOMM_ASSERT(source_count >= 1, "reduce_copy needs at least one source");
  const uint64_t rank = group.thread_rank();
  const uint64_t threads = group.size();
  const T* first = sources(0);
  bool aligned = true;
  for (int s = 1; s < source_count; ++s) aligned = aligned && detail::same_alignment(first, sources(s));
  for (int d = 0; d < destination_count; ++d) aligned = aligned && detail::same_alignment(first, destinations(d));

  const auto range = aligned ? detail::split_range::of(first, count) : detail::split_range{count, 0, 0};
  for (uint64_t i = rank; i < range.head; i += threads) {
    detail::reduce_copy_element<T>(sources, source_count, destinations, destination_count, i, op);
  }
  constexpr int unroll = 4;
  constexpr uint64_t per_pack = pack<T>::size;
  uint64_t p = rank;
  for (; p + (unroll - 1) * threads < range.packs; p += unroll * threads) {
    detail::reduce_copy_packs<unroll, T>(sources, source_count, destinations, destination_count,
                                         range.head + p * per_pack, threads * per_pack, op);
  }
  for (; p < range.packs; p += threads) {
    detail::reduce_copy_packs<1, T>(sources, source_count, destinations, destination_count, range.head + p * per_pack,
                                    0, op);
  }
  const uint64_t done = range.head + range.packs * per_pack;
  for (uint64_t i = done + rank; i < count; i += threads) {
    detail::reduce_copy_element<T>(sources, source_count, destinations, destination_count, i, op);
  }
}

}  // namespace devcomm
