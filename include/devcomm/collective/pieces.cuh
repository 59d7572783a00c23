/// \file pieces.cuh
/// A vector that the ranks share out, as the producer or consumer of a collective that takes pieces of it.
#pragma once

#include <devcomm/collective/vectors.cuh>

namespace devcomm::collective {

/// Elements of a rank's piece when `ranks` ranks share `count` elements out. Where they do not come out even, the last
/// pieces are shorter, or empty.
DEVCOMM_HOST_DEVICE constexpr uint64_t piece_length(uint64_t count, int ranks) {
  return (count + static_cast<uint64_t>(ranks) - 1) / static_cast<uint64_t>(ranks);
}

/// The elements of `rank`'s piece, `length` of them as long as there are any among `count`.
DEVCOMM_HOST_DEVICE constexpr slice piece_of_length(uint64_t count, uint64_t length, int rank) {
  const uint64_t before = static_cast<uint64_t>(rank) * length;
  const uint64_t begin = before < count ? before : count;
  return {begin, length < count - begin ? begin + length : count};
}
DEVCOMM_HOST_DEVICE constexpr slice piece_of(uint64_t count, int ranks, int rank) {
  return piece_of_length(count, piece_length(count, ranks), rank);
}

/// The calling block's share of the elements of `piece`, whole packs of it but for the last.
template <class T>
DEVCOMM_DEVICE slice part_of_block(slice piece) {
  const slice packs = slice_of_block(packs_of<T>(piece.size()));
  const auto element = [&](uint64_t p) {
    return piece.begin + (p * pack<T>::size < piece.size() ? p * pack<T>::size : piece.size());
  };
  return {element(packs.begin), element(packs.end)};
}

/// Produces pack `i` of each rank's piece of the `count` elements from `data` on; `length` is `piece_length`. Of any
/// alignment; what fills the last pack of a piece up, and what lies past it, is zero.
template <class T>
struct from_pieces {
  const T* data;
  uint64_t count;
  uint64_t length;

  DEVCOMM_DEVICE pack<T> operator()(int rank, uint64_t i) const {
    const slice piece = piece_of_length(count, length, rank);
    return from_memory<T>{data + piece.begin, piece.size()}(i);
  }
};
template <class T>
from_pieces(const T*, uint64_t, uint64_t) -> from_pieces<T>;

/// Stores pack `i` of each rank's piece to the `count` elements from `data` on, and nothing past a piece.
template <class T>
struct to_pieces {
  T* data;
  uint64_t count;
  uint64_t length;

  DEVCOMM_DEVICE void operator()(int rank, uint64_t i, const pack<T>& value) const {
    const slice piece = piece_of_length(count, length, rank);
    to_memory<T>{data + piece.begin, piece.size()}(i, value);
  }
};
template <class T>
to_pieces(T*, uint64_t, uint64_t) -> to_pieces<T>;

}  // namespace devcomm::collective
