/// \file vectors.cuh
/// Vectors in memory as a collective's producer and consumer.
#pragma once

#include <devcomm/pack.cuh>

namespace devcomm::detail {

/// Whether pack `i` of `count` elements is full and aligned.
template <class T>
DEVCOMM_DEVICE bool is_whole_pack(const T* data, uint64_t i, uint64_t count) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && (i + 1) * pack<T>::size <= count;
}

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Packs that `count` elements fill, the last perhaps in part.
template <class T>
DEVCOMM_HOST_DEVICE constexpr uint64_t packs_of(uint64_t count) {
  return (count + 16 / sizeof(T) - 1) / (16 / sizeof(T));
}

/// The packs from `begin` up to, not including, `end`.
struct slice {
  uint64_t begin;
  uint64_t end;

  DEVCOMM_HOST_DEVICE constexpr uint64_t size() const { return end - begin; }
};

/// Packs of a block's share when `blocks` blocks share `packs` packs out.
DEVCOMM_HOST_DEVICE constexpr uint64_t packs_per_block(uint64_t packs, uint64_t blocks) {
  return (packs + blocks - 1) / blocks;
}

/// The calling block's share of `packs` packs, `share` for each block as long as there are any. A kernel that gets
/// `packs_per_block` from the host is spared the division, which takes 0.1 us.
DEVCOMM_DEVICE inline slice slice_of_block(uint64_t packs, uint64_t share) {
  const uint64_t before = devcomm::detail::arch::block_rank() * share;
  const uint64_t begin = before < packs ? before : packs;
  return {begin, share < packs - begin ? begin + share : packs};
}
DEVCOMM_DEVICE inline slice slice_of_block(uint64_t packs) {
  return slice_of_block(packs, packs_per_block(packs, devcomm::detail::arch::grid_blocks()));
}

/// Produces the `count` elements from `data` on, of any alignment. What fills the last pack up is zero.
template <class T>
struct from_memory {
  const T* data;
  uint64_t count;

  DEVCOMM_DEVICE pack<T> operator()(uint64_t i) const {
    if (detail::is_whole_pack(data, i, count)) return load_pack_streaming(data + i * pack<T>::size);
    pack<T> value{};
    for (int e = 0; e < pack<T>::size; ++e) {
      const uint64_t place = i * pack<T>::size + static_cast<uint64_t>(e);
      if (place < count) value[e] = data[place];
    }
    return value;
  }
};
template <class T>
from_memory(const T*, uint64_t) -> from_memory<T>;

/// Stores what it consumes to `count` elements from `data` on, of any alignment, and nothing past them.
template <class T>
struct to_memory {
  T* data;
  uint64_t count;

  DEVCOMM_DEVICE void operator()(uint64_t i, const pack<T>& value) const {
    if (detail::is_whole_pack(data, i, count)) {
      store_pack(data + i * pack<T>::size, value);
      return;
    }
    for (int e = 0; e < pack<T>::size; ++e) {
      const uint64_t place = i * pack<T>::size + static_cast<uint64_t>(e);
      if (place < count) data[place] = value[e];
    }
  }
};
template <class T>
to_memory(T*, uint64_t) -> to_memory<T>;

}  // namespace devcomm::collective
