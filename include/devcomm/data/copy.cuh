/// \file copy.cuh
/// A group copies a range of any size and alignment.
///
///     copy(block{}, destination, source, count);  // all threads of the block take part
///     block{}.sync();
#pragma once

#include <devcomm/data/pack.cuh>
#include <devcomm/group.cuh>

namespace devcomm::detail {

/// As many `T` as fill `Bytes` bytes, or one where that is 0.
template <class T, int Bytes>
struct unit {
  static constexpr int size = Bytes == 0 ? 1 : Bytes / static_cast<int>(sizeof(T));

  T data[size];
};

template <int Bytes, class T>
DEVCOMM_DEVICE unit<T, Bytes> load_unit(const T* address) {
  unit<T, Bytes> value;
  if constexpr (Bytes == 0) {
    value.data[0] = *address;
  } else {
    const auto raw = arch::load_bytes<Bytes>(address);
    copy_bytes(&value, &raw, Bytes);
  }
  return value;
}

/// For data that this GPU does not read again soon.
template <int Bytes, class T>
DEVCOMM_DEVICE void store_unit(T* address, const unit<T, Bytes>& value) {
  if constexpr (Bytes == 0) {
    *address = value.data[0];
  } else {
    decltype(arch::load_bytes<Bytes>(address)) raw;
    copy_bytes(&raw, &value, Bytes);
    arch::store_bytes_streaming<Bytes>(address, raw);
  }
}

/// Sixteen bytes of any alignment, by two aligned loads. *Requires* that 16 bytes before and behind may be read too.
DEVCOMM_DEVICE inline arch::vec16 load_shifted(const void* address) {
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(address) % 16;
  const char* const first = static_cast<const char*>(address) - misaligned;
  const arch::vec16 aligned[2] = {arch::load16(first), arch::load16(first + 16)};
  uint64_t words[4];
  copy_bytes(words, aligned, sizeof words);
  const bool is_far = misaligned >= 8;
  const auto bits = static_cast<uint32_t>(misaligned % 8 * 8);
  const uint64_t middle = is_far ? words[2] : words[1];
  const uint64_t shifted[2] = {(is_far ? words[1] : words[0]) >> bits | (middle << 1) << (63 - bits),
                               middle >> bits | ((is_far ? words[3] : words[2]) << 1) << (63 - bits)};
  arch::vec16 result;
  copy_bytes(&result, shifted, sizeof result);
  return result;
}

/// A range of elements split into those before the first whole unit, whole units, and the rest.
struct split_range {
  uint64_t head;   ///< elements
  uint64_t units;  ///< `Bytes` bytes each
  uint64_t tail;   ///< elements

  template <int Bytes, class T>
  DEVCOMM_DEVICE static split_range of(const T* first, uint64_t count) {
    if constexpr (Bytes == 0) {
      return {0, count, 0};
    } else {
      constexpr uint64_t per_unit = unit<T, Bytes>::size;
      const uint64_t misaligned = reinterpret_cast<uintptr_t>(first) % Bytes / sizeof(T);
      const uint64_t before = misaligned == 0 ? 0 : per_unit - misaligned;
      const uint64_t head = before < count ? before : count;
      const uint64_t units = (count - head) / per_unit;
      return {head, units, count - head - units * per_unit};
    }
  }
  /// Number of elements before and after the units.
  DEVCOMM_DEVICE uint64_t edge_count() const { return head + tail; }
  /// Index in the range of the `i`-th of them, where a unit has `per_unit` elements.
  DEVCOMM_DEVICE uint64_t edge_index(uint64_t i, uint64_t per_unit) const {
    return i < head ? i : i + units * per_unit;
  }
};

/// Whether a whole number of `T` fills 16 bytes.
template <class T>
inline constexpr bool fills_units = sizeof(T) <= 16 && 16 % sizeof(T) == 0;

/// What elements of other sizes are copied as: bytes aligned as `T` is, up to 16.
template <int Bytes>
struct alignas(Bytes) word {
  unsigned char bytes[Bytes];
};
template <class T>
using word_of = word<(alignof(T) < 16 ? static_cast<int>(alignof(T)) : 16)>;

/// In which bits of their lower four the addresses of `T` differ from that of the first; all where packs never start
/// on 16 bytes, as a class may be aligned to less than its size.
template <class T>
class alignment {
 public:
  DEVCOMM_DEVICE explicit alignment(const T* first)
      : first_(reinterpret_cast<uintptr_t>(first)), different_(first_ % sizeof(T) == 0 ? 0 : 15) {}

  DEVCOMM_DEVICE void include(const T* other) { different_ |= first_ ^ reinterpret_cast<uintptr_t>(other); }
  /// Whether all have units of 16 bytes at the same elements.
  DEVCOMM_DEVICE bool is_common() const { return different_ % 16 == 0; }

  /// Calls `body.template run<Bytes>()` with the widest unit that is aligned at all addresses of one element.
  template <class Body>
  DEVCOMM_DEVICE void with_widest(const Body& body) const {
    if constexpr (fills_units<T>) {
      if (is_common()) return body.template run<16>();
      if constexpr (sizeof(T) < 8) {
        if (different_ % 8 == 0) return body.template run<8>();
      }
      if constexpr (sizeof(T) < 4) {
        if (different_ % 4 == 0) return body.template run<4>();
      }
    }
    body.template run<0>();
  }

 private:
  uintptr_t first_;
  uintptr_t different_;
};

}  // namespace devcomm::detail

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
    DEVCOMM_UNROLL_BY(1)
    for (uint64_t i = rank; i < range.edge_count(); i += threads) move<0, 1>(range.edge_index(i, per_unit), 0);
    uint64_t u = rank;
    for (; u + (unroll - 1) * threads < range.units; u += unroll * threads)
      move<Bytes, unroll>(range.head + u * per_unit, threads * per_unit);
    for (; u < range.units; u += threads) move<Bytes, 1>(range.head + u * per_unit, 0);
  }

  /// Of a source that has another alignment than all destinations: whole units there are put together from two here.
  /// The first and the last have neighbors that are not all the caller's.
  DEVCOMM_DEVICE void run_shifted() const {
    constexpr uint64_t per_unit = unit<T, 16>::size;
    constexpr int unroll = 2;
    split_range range = split_range::of<16>(destinations(0), count);
    if (range.units > 2) {
      range.head += per_unit;
      range.units -= 2;
    } else {
      range.units = 0;
    }
    range.tail = count - range.head - range.units * per_unit;
    DEVCOMM_UNROLL_BY(1)
    for (uint64_t i = rank; i < range.edge_count(); i += threads) move<0, 1>(range.edge_index(i, per_unit), 0);
    uint64_t u = rank;
    DEVCOMM_UNROLL_BY(1)
    for (; u + (unroll - 1) * threads < range.units; u += unroll * threads)
      move_shifted<unroll>(range.head + u * per_unit, threads * per_unit);
    DEVCOMM_UNROLL_BY(1)
    for (; u < range.units; u += threads) move_shifted<1>(range.head + u * per_unit, 0);
  }

 private:
  template <int Unroll>
  DEVCOMM_DEVICE void move_shifted(uint64_t i, uint64_t stride) const {
    arch::vec16 values[Unroll];
    DEVCOMM_UNROLL
    for (int u = 0; u < Unroll; ++u) values[u] = load_shifted(source + i + static_cast<uint64_t>(u) * stride);
    DEVCOMM_UNROLL_BY(1)
    for (int d = 0; d < destination_count; ++d) {
      DEVCOMM_UNROLL
      for (int u = 0; u < Unroll; ++u)
        arch::store_bytes_streaming<16>(destinations(d) + i + static_cast<uint64_t>(u) * stride, values[u]);
    }
  }
};

}  // namespace detail

/// Copies `count` elements from `source` to each of `destination_count` destinations; `destinations(d)` returns a
/// pointer. The source is read once. Moves 16 bytes at a time where all destinations have the same alignment modulo 16
/// bytes, whatever that of the source, else an element. Elements may be of any size: one that 16 is no multiple of is
/// copied as parts of the size of its alignment.
///
/// A destination may be the source itself; ranges must not overlap otherwise.
///
/// *Collective* over `group`; does not synchronize it.
template <class T, class Group, class Destinations>
DEVCOMM_DEVICE void copy_to_all(const Group& group, int destination_count, const Destinations& destinations,
                                const T* source, uint64_t count) {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  static_assert(detail::is_trivially_copyable<T>, "copies are of bytes: elements must be trivially copyable");
  if constexpr (detail::fills_units<T>) {
    if (destination_count == 0) return;
    detail::alignment<T> common(destinations(0));
    for (int d = 1; d < destination_count; ++d) common.include(destinations(d));
    const detail::copied_range<T, Destinations> range{static_cast<uint32_t>(group.thread_rank()),
                                                      static_cast<uint32_t>(group.size()),
                                                      destination_count,
                                                      destinations,
                                                      source,
                                                      count};
    if (!common.is_common()) return range.template run<0>();
    common.include(source);
    if (common.is_common()) return range.template run<16>();
    range.run_shifted();
  } else {
    using word = detail::word_of<T>;
    const auto words = [&](int d) { return reinterpret_cast<word*>(destinations(d)); };
    copy_to_all<word>(group, destination_count, words, reinterpret_cast<const word*>(source),
                      count * (sizeof(T) / sizeof(word)));
  }
}

/// `copy_to_all` to one destination.
template <class Group, class T>
DEVCOMM_DEVICE void copy(const Group& group, T* destination, const T* source, uint64_t count) {
  const auto only = [&](int) { return destination; };
  copy_to_all<T>(group, 1, only, source, count);
}

}  // namespace devcomm
