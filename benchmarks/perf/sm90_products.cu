/// devcomm's products by CUTLASS's main loops for Hopper; compiled for sm_90a alone.
#include "perf/matrix_products.hpp"
#include "perf/product_kernels.cuh"

#include <devcomm/gemm/cutlass/sm90_product.cuh>

namespace perf {
namespace {

using namespace devcomm;
using element = fused::element;

template <class Mainloop>
struct by_mainloop {
  using product = gemm::sm90_product<Mainloop>;
  static constexpr gemm::tile_shape shape = product::shape;
  static constexpr unsigned threads = product::threads, groups = product::groups, cluster = product::cluster;
  static constexpr unsigned shared_bytes = product::shared_bytes;

  static std::string why_not(const work& what) {
    int device = 0, major = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    if (major != 9) return "needs a device of compute capability 9.0";
    return product::can_implement(problem_of(what), operands(problem_of(what), nullptr, nullptr))
               ? ""
               : "rows of matrices are no multiples of 16 bytes";
  }
  static product make(const gemm::problem_shape& problem, const element* a, const element* b) {
    return {problem, operands(problem, a, b)};
  }

 private:
  static typename Mainloop::Arguments operands(const gemm::problem_shape& problem, const element* a, const element* b) {
    using of_cutlass = typename Mainloop::ElementA;
    return {reinterpret_cast<const of_cutlass*>(a),
            {problem.k, {}, 0},
            reinterpret_cast<const of_cutlass*>(b),
            {{}, problem.n, 0}};
  }
};

using cute::_1;
using cute::_128;
using cute::_256;
using cute::_64;

struct pingpong : by_mainloop<gemm::sm90_mainloop<::cutlass::bfloat16_t, cute::Shape<_64, _256, _64>>> {
  static constexpr const char* name = "sm90_pingpong";
};
struct cooperative : by_mainloop<gemm::sm90_mainloop<::cutlass::bfloat16_t, cute::Shape<_128, _256, _64>, 2,
                                                     ::cutlass::gemm::KernelTmaWarpSpecializedCooperative>> {
  static constexpr const char* name = "sm90";
};

}  // namespace

void add_sm90_products(product_kind kind, const rank_context& context, algorithms& to) {
  fused::add_products<cooperative>(kind, context, to);
  fused::add_products<pingpong>(kind, context, to);
}

}  // namespace perf
