/// \file reference_product.cuh
/// A tile of a matrix product in plain loops: to test what goes around a product, and as the contract of faster ones.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/sym_ptr.hpp>

namespace devcomm::gemm {

/// Rows of a matrix of this rank, `stride` elements apart.
template <class T>
struct rows_of {
  const T* data;
  uint64_t stride;

  DEVCOMM_DEVICE const T* operator()(uint32_t row) const { return data + row * stride; }
};

/// Rows of a matrix of which each member has a shard of `shard_rows`, `stride` elements apart, at the same place of a
/// window.
template <class T>
struct rows_of_peers {
  sym_ptr<T> data;
  uint64_t stride;
  uint32_t shard_rows;

  DEVCOMM_DEVICE const T* operator()(uint32_t row) const {
    return data.lsa(static_cast<int>(row / shard_rows)) + row % shard_rows * stride;
  }
};

/// For operands that are there before the launch.
struct no_gate {
  DEVCOMM_DEVICE void wait(const tile&, uint32_t) const {}
};

/// Of a block, the threads that hold tiles.
template <class Group>
struct tile_workers {
  Group all;
  Group group;      ///< the calling one of
  uint32_t index;   ///< this number
  uint32_t groups;  ///< of so many
};

/// Any class that is called like this one is a product, here with `A` rows of `k` elements and `B` rows of `n`:
/// all threads of a group call it with a tile. It calls `gate.wait(t, k)` in the threads that load, before each step's
/// loads of A; then, when all sums are there, `output.begin()` in all threads, and if that returns true, the output for
/// each few elements.
///
/// `MaxElements`: of a tile, for each thread, in units of `Width` columns.
template <class RowsOfA, class RowsOfB, int MaxElements = 64, int Width = 8>
struct reference_product {
  RowsOfA a;
  RowsOfB b;
  uint32_t k;       ///< columns of A
  uint32_t k_step;  ///< `tile_shape::k`

  template <class Group, class Gate, class Output>
  DEVCOMM_DEVICE void operator()(const Group& group, const tile& t, Gate& gate, const Output& output) const {
    constexpr int max_units = MaxElements / Width;
    const uint32_t in_row = divide_up(t.columns, Width);
    const uint32_t units = t.rows * in_row;
    const auto first = static_cast<uint32_t>(group.thread_rank());
    const auto step = static_cast<uint32_t>(group.size());
    DEVCOMM_ASSERT(units <= max_units * step,
                   "a tile has more elements than the threads of its group hold: give reference_product a larger "
                   "MaxElements");
    float sums[max_units][Width] = {};
    for (uint32_t k_first = 0; k_first < k; k_first += k_step) {
      gate.wait(t, k_first);
      const uint32_t k_end = min_of(k, k_first + k_step);
      for (uint32_t u = first, i = 0; u < units; u += step, ++i) {
        const auto* const row = a(t.row + u / in_row);
        const uint32_t column = t.column + u % in_row * Width;
        const uint32_t count = min_of(Width, t.column + t.columns - column);
        for (uint32_t j = k_first; j < k_end; ++j) {
          const auto factor = static_cast<float>(row[j]);
          const auto* const others = b(j) + column;
          for (uint32_t c = 0; c < count; ++c) sums[i][c] += factor * static_cast<float>(others[c]);
        }
      }
    }
    if (!output.begin()) return;
    for (uint32_t u = first, i = 0; u < units; u += step, ++i) {
      const uint32_t column = u % in_row * Width;
      output(t.row + u / in_row, t.column + column, static_cast<int>(min_of(Width, t.columns - column)), sums[i]);
    }
  }
};
template <class RowsOfA, class RowsOfB>
reference_product(RowsOfA, RowsOfB, uint32_t, uint32_t) -> reference_product<RowsOfA, RowsOfB>;

}  // namespace devcomm::gemm
