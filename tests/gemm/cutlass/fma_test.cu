/// What devcomm does with CuTe's layouts, on any device: products by plain multiplications, and the way of Hopper's
/// accumulators to their places.
#include <devcomm/devcomm.cuh>
#include <devcomm/gemm/cutlass/fma_product.cuh>

#include "gemm/product_cases.hpp"

#include <cute/arch/mma_sm90_gmma.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace devcomm;
using namespace product_test;

namespace {

template <class T>
struct with_fma {
  using mma = cute::TiledMMA<cute::MMA_Atom<cute::UniversalFMA<float>>,
                             cute::Layout<cute::Shape<cute::_8, cute::_8, cute::_1>>>;
  using product = gemm::fma_product<T, cute::Shape<cute::_16, cute::_24, cute::_8>, mma>;
  using operand = T;
  static constexpr bool transposed = false;
  static constexpr gemm::tile_shape shape{16, 24, 8};
  static constexpr unsigned threads = 64, groups = 1, cluster = 1, shared_bytes = 0;

  static product make(const gemm::problem_shape& problem, const T* a, const T* b) { return {a, b, problem}; }
};

constexpr gemm::problem_shape problems[] = {{48, 48, 16}, {37, 29, 21}};

/// Tiles of 64 rows of each group of warps, and of as many columns.
template <int Groups, int Columns>
struct hopper {
  using mma = decltype(cute::make_tiled_mma(
      cute::SM90::GMMA::MMA_64x128x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::MN>{},
      cute::Layout<cute::Shape<cute::Int<Groups>, cute::_1, cute::_1>>{}));
  using shape = cute::Shape<cute::Int<64 * Groups>, cute::Int<Columns>, cute::_64>;
};

/// Every accumulator has the number of its place.
template <class Tile>
__global__ void store_accumulators(gemm::tile t, gemm::to_matrix<float> output) {
  using namespace cute;
  const typename Tile::mma mma;
  const auto rank = static_cast<int>(threadIdx.x);
  auto sums = partition_fragment_C(mma, take<0, 2>(typename Tile::shape{}));
  const auto places = mma.get_slice(rank).partition_C(make_identity_tensor(take<0, 2>(typename Tile::shape{})));
  for (int i = 0; i < size(sums); ++i) sums(i) = static_cast<float>(get<0>(places(i)) * 1024 + get<1>(places(i)));
  devcomm::detail::store_fragment<typename Tile::shape>(mma, sums, rank, t, output);
}

template <class Tile>
void expect_places(std::uint32_t rows, std::uint32_t columns, std::uint64_t stride) {
  const gemm::tile t{3, 5, rows, columns, 0, 0};
  const test::device_array<float> c((t.row + rows) * stride, 0);
  launch(store_accumulators<Tile>, {.block = static_cast<unsigned>(cute::size(typename Tile::mma{}))}, t,
         gemm::to_matrix<float>{c.get(), stride});
  test::finish("store_accumulators");
  const auto got = c.read();
  for (std::uint64_t i = 0; i < got.size(); ++i) {
    const auto row = static_cast<std::uint32_t>(i / stride), column = static_cast<std::uint32_t>(i % stride);
    const bool is_inside = row >= t.row && column >= t.column && column < t.column + columns;
    const float expected = is_inside ? static_cast<float>((row - t.row) * 1024 + column - t.column) : 0;
    test::require(got[i] == expected, [&] { return "element " + std::to_string(i); });
  }
}

}  // namespace

TEST_CASE("Hopper's accumulators reach their places, in whole tiles and in parts of them") {
  for (const std::uint64_t stride : {264ull, 267ull}) {  // aligned rows or not
    expect_places<hopper<1, 128>>(64, 128, stride);
    expect_places<hopper<1, 128>>(64, 61, stride);
    expect_places<hopper<1, 128>>(9, 128, stride);
    expect_places<hopper<2, 256>>(128, 256, stride);
    expect_places<hopper<2, 256>>(101, 130, stride);
  }
}

TEST_CASE("a CuTe product takes part in all operations") {
  for (const int ranks : {1, 2, 3}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const auto& problem : problems) {
        reduce_scatter_case<with_fma<float>, float>(comm, problem);
        all_reduce_case<with_fma<float>, float>(comm, problem, true);
        all_reduce_case<with_fma<__nv_bfloat16>, __nv_bfloat16>(comm, problem, false);
        all_gather_case<with_fma<__nv_bfloat16>, __nv_bfloat16>(comm, problem, 7, 16);
      }
    });
  }
}
