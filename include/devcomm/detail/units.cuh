/// \file units.cuh
/// Ranges whose places differ in alignment, moved in the widest units that are aligned at all of them.
#pragma once

#include <devcomm/pack.cuh>

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
};

/// In which bits of their lower four the addresses of `T` differ from that of the first; all where packs never start
/// on 16 bytes, as a class may be aligned to less than its size.
template <class T>
class alignment {
 public:
  DEVCOMM_DEVICE explicit alignment(const T* first)
      : first_(reinterpret_cast<uintptr_t>(first)), different_(first_ % sizeof(T) == 0 ? 0 : 15) {}

  DEVCOMM_DEVICE void meet(const T* other) { different_ |= first_ ^ reinterpret_cast<uintptr_t>(other); }

  /// Calls `body.template run<Bytes>()` with the widest unit that is aligned at all places at the same element.
  template <class Body>
  DEVCOMM_DEVICE void with_widest(const Body& body) const {
    if (different_ % 16 == 0) return body.template run<16>();
    if constexpr (sizeof(T) < 8) {
      if (different_ % 8 == 0) return body.template run<8>();
    }
    if constexpr (sizeof(T) < 4) {
      if (different_ % 4 == 0) return body.template run<4>();
    }
    body.template run<0>();
  }

 private:
  uintptr_t first_;
  uintptr_t different_;
};

}  // namespace devcomm::detail
