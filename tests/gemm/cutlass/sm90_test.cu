/// Products by CUTLASS's main loops for Hopper with a collective inside, against one in double precision.
#include <devcomm/devcomm.cuh>
#include <devcomm/gemm/cutlass/sm90_product.cuh>

#include "gemm/product_cases.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace devcomm;
using namespace product_test;

namespace {

template <class Operand, bool Transposed, class Mainloop>
struct with_sm90 {
  using product = gemm::sm90_product<Mainloop>;
  using operand = Operand;
  static constexpr bool transposed = Transposed;
  static constexpr gemm::tile_shape shape = product::shape;
  static constexpr unsigned threads = product::threads, groups = product::groups, cluster = product::cluster;
  static constexpr unsigned shared_bytes = product::shared_bytes;

  static product make(const gemm::problem_shape& problem, const operand* a, const operand* b) {
    using element = typename Mainloop::ElementA;
    typename Mainloop::StrideB of_b{};
    if constexpr (transposed) {
      cute::get<0>(of_b) = problem.k;
    } else {
      cute::get<1>(of_b) = problem.n;
    }
    return {problem,
            {reinterpret_cast<const element*>(a), {problem.k, {}, 0}, reinterpret_cast<const element*>(b), of_b}};
  }
};

using T = __nv_bfloat16;
using pingpong =
    with_sm90<T, false, gemm::sm90_mainloop<::cutlass::bfloat16_t, cute::Shape<cute::_64, cute::_128, cute::_64>>>;
using cooperative = with_sm90<T, false,
                              gemm::sm90_mainloop<::cutlass::bfloat16_t, cute::Shape<cute::_128, cute::_256, cute::_64>,
                                                  2, ::cutlass::gemm::KernelTmaWarpSpecializedCooperative>>;
using of_8_bits = with_sm90<
    __nv_fp8_e4m3, true,
    gemm::sm90_mainloop<::cutlass::float_e4m3_t, cute::Shape<cute::_128, cute::_128, cute::_128>, 2,
                        ::cutlass::gemm::KernelTmaWarpSpecializedCooperative, ::cutlass::layout::ColumnMajor>>;

constexpr gemm::problem_shape problems[] = {{512, 512, 256}, {300, 264, 208}, {1, 8, 16}};

template <class Way>
void all_cases(host::communicator& comm) {
  for (const gemm::problem_shape& problem : problems) {
    reduce_scatter_case<Way, T>(comm, problem);
    all_reduce_case<Way, T>(comm, problem, true);
    all_reduce_case<Way, T>(comm, problem, false);
    all_gather_case<Way, T>(comm, problem, 48, 128);
  }
}

bool is_hopper() {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties.major == 9;
}

}  // namespace

TEST_CASE("a main loop in which groups of warps take turns") {
  if (!is_hopper()) SKIP("needs a device of compute capability 9.0");
  for (const int ranks : {1, 2, 3, 4, 8}) test::on_ranks(test::ranks_that_meet(ranks), all_cases<pingpong>);
}

TEST_CASE("a main loop in which groups of warps share a tile, in clusters of two blocks") {
  if (!is_hopper()) SKIP("needs a device of compute capability 9.0");
  for (const int ranks : {1, 2, 3, 4, 8}) test::on_ranks(test::ranks_that_meet(ranks), all_cases<cooperative>);
}

TEST_CASE("a main loop of 8-bit operands") {
  if (!is_hopper()) SKIP("needs a device of compute capability 9.0");
  for (const int ranks : {1, 2, 3}) {
    test::on_ranks(test::ranks_that_meet(ranks), [](host::communicator& comm) {
      for (const auto& problem : problems) {
        reduce_scatter_case<of_8_bits, T>(comm, problem);
        all_gather_case<of_8_bits, T>(comm, problem, 48, 128);
      }
    });
  }
}
