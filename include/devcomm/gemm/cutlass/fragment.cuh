/// \file fragment.cuh
/// From the accumulators of a tiled CuTe product to an output.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/group.cuh>

#include <cute/tensor.hpp>

namespace devcomm::detail {

/// Lane `q` of four neighbors gives row `q` of a matrix of 4 x 4 pairs and gets its column `q`.
DEVCOMM_DEVICE inline void transpose_in_quad(float (&pairs)[8]) {
  DEVCOMM_UNROLL
  for (uint32_t bit = 1; bit <= 2; bit *= 2) {
    const bool is_upper = (arch::lane() & bit) != 0;
    DEVCOMM_UNROLL
    for (uint32_t low = 0; low < 4; ++low) {
      if ((low & bit) != 0) continue;
      DEVCOMM_UNROLL
      for (uint32_t c = 0; c < 2; ++c) {
        const float of_low = pairs[2 * low + c], of_high = pairs[2 * (low + bit) + c];
        const float given = is_upper ? of_low : of_high;
        const float got = shuffle(arch::full_mask, given, arch::lane() ^ bit);
        pairs[2 * low + c] = is_upper ? got : of_low;
        pairs[2 * (low + bit) + c] = is_upper ? of_high : got;
      }
    }
  }
}

/// Whether these are the accumulators of Hopper's matrix instructions: four lanes hold 32 columns of a row, two at a
/// time, and the row eight below.
template <class Fragment, class Instruction = decltype(cute::shape<0>(Fragment{}))>
DEVCOMM_HOST_DEVICE constexpr bool is_in_quads() {
  if constexpr (cute::rank_v<Instruction> == 3)
    return cute::size<0>(Instruction{}) == 2 && cute::size<1>(Instruction{}) == 2 &&
           cute::size<2>(Instruction{}) % 4 == 0;
  return false;
}

/// Gives all elements of tile `t` that thread `thread` of `mma` holds in `fragment` to `output`; all threads of each
/// warp call. `Shape` is that of tiles. In a tile of all its columns, lanes exchange Hopper's accumulators so that each
/// gives eight columns at once.
template <class Shape, class Mma, class Fragment, class Output>
DEVCOMM_DEVICE void store_fragment(const Mma& mma, const Fragment& fragment, int thread, const gemm::tile& t,
                                   const Output& output) {
  using namespace cute;
  const auto coordinates = mma.get_slice(thread).partition_C(make_identity_tensor(take<0, 2>(Shape{})));
  if constexpr (is_in_quads<Fragment>()) {
    if (t.columns == size<1>(Shape{})) {
      constexpr int units = decltype(size<0, 2>(fragment)){} / 4;  // of 32 columns
      DEVCOMM_UNROLL
      for (int i = 0; i < 2 * units * size<1>(fragment) * size<2>(fragment); ++i) {
        const int half = i % 2, unit = i / 2 % units * 4;
        const int m = i / 2 / units % size<1>(fragment), n = i / 2 / units / size<1>(fragment);
        float values[8];
        DEVCOMM_UNROLL
        for (int e = 0; e < 8; ++e) values[e] = fragment(make_coord(e % 2, half, unit + e / 2), m, n);
        transpose_in_quad(values);
        const auto place = coordinates(make_coord(0, half, unit), m, n);  // of the first pair: 2 columns a lane, now 8
        const auto row = static_cast<uint32_t>(get<0>(place));
        const uint32_t column = static_cast<uint32_t>(get<1>(place)) + arch::lane() % 4 * 6;
        if (row < t.rows) output(t.row + row, t.column + column, 8, values);
      }
      return;
    }
  }
  float held[decltype(size(fragment)){}];
  DEVCOMM_UNROLL
  for (int i = 0; i < size(fragment); ++i) held[i] = fragment(i);
  DEVCOMM_UNROLL_BY(1)
  for (int i = 0; i < size(fragment); ++i) {
    const auto row = static_cast<uint32_t>(get<0>(coordinates(i))),
               column = static_cast<uint32_t>(get<1>(coordinates(i)));
    float value[] = {held[i]};
    if (row < t.rows && column < t.columns) output(t.row + row, t.column + column, 1, value);
  }
}

}  // namespace devcomm::detail
