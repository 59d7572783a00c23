/// \file fma_product.cuh
/// A tile of a matrix product by CuTe with plain multiplications: CuTe's layouts and devcomm's outputs on every
/// device, and in the simulator.
#pragma once

#include <devcomm/gemm/cutlass/fragment.cuh>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/group.cuh>

#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

namespace devcomm::gemm {

/// Called as `reference_product` is, with A of `m` rows of `k` elements and B of `k` rows of `n`. `Shape` is a tile's,
/// as `cute::Shape<cute::Int<M>, cute::Int<N>, cute::Int<K>>`; `Mma` a tiled product of
/// `cute::UniversalFMA<float>`, for as many threads as the group has.
template <class T, class Shape, class Mma>
struct fma_product {
  const T* a;
  const T* b;
  problem_shape problem;

  template <class Group, class Gate, class Output>
  DEVCOMM_DEVICE void operator()(const Group& group, const tile& t, Gate& gate, const Output& output) const {
    using namespace cute;
    DEVCOMM_ASSERT(group.size() == static_cast<uint32_t>(size(Mma{})),
                   "a tiled product is computed by as many threads as it was made for");
    const auto rank = static_cast<int>(group.thread_rank());
    const Mma mma;
    const auto part = mma.get_slice(rank);
    const uint32_t n = problem.n, k = problem.k;
    const auto rows = make_tensor(a + uint64_t{t.row} * k, make_shape(get<0>(Shape{}), k), make_stride(k, _1{}));
    const auto columns = make_tensor(b + t.column, make_shape(get<1>(Shape{}), k), make_stride(_1{}, n));
    auto sums = partition_fragment_C(mma, take<0, 2>(Shape{}));
    clear(sums);
    const auto a_coordinates = part.partition_A(make_identity_tensor(make_shape(get<0>(Shape{}), get<2>(Shape{}))));
    const auto b_coordinates = part.partition_B(make_identity_tensor(make_shape(get<1>(Shape{}), get<2>(Shape{}))));
    auto a_part = make_tensor<float>(shape(a_coordinates));
    auto b_part = make_tensor<float>(shape(b_coordinates));
    for (uint32_t first = 0; first < k; first += get<2>(Shape{})) {
      gate.wait(t, first);
      const auto fill = [&](auto& to, const auto& coordinates, const auto& from, uint32_t in_tile) {
        for (int i = 0; i < size(to); ++i) {
          const auto at = static_cast<uint32_t>(get<0>(coordinates(i))),
                     of_k = first + static_cast<uint32_t>(get<1>(coordinates(i)));
          to(i) = at < in_tile && of_k < k ? static_cast<float>(from(at, of_k)) : 0.0f;
        }
      };
      fill(a_part, a_coordinates, rows, t.rows);
      fill(b_part, b_coordinates, columns, t.columns);
      cute::gemm(mma, a_part, b_part, sums);
    }
    if (output.begin()) detail::store_fragment<Shape>(mma, sums, rank, t, output);
  }
};

}  // namespace devcomm::gemm
