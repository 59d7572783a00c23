/// \file matrix_products.hpp
/// Matrix products that communicate: what a call works on, and who computes it.
#pragma once

#include "perf/algorithm.hpp"

#include <devcomm/gemm/tile_order.hpp>

#include <memory>
#include <string>

namespace perf {

enum class product_kind {
  gemm,     ///< C = A B on each rank
  ag_gemm,  ///< the same, of an A whose rows are sharded
  gemm_rs,  ///< each rank gets its rows of the sum of all ranks' A B
  gemm_ar   ///< all ranks get the sum
};

/// A call's bytes are those of C, of `work::hidden` columns; A has `work::depth`.
inline devcomm::gemm::problem_shape problem_of(const work& what) {
  return {static_cast<std::uint32_t>(what.count() / what.hidden), static_cast<std::uint32_t>(what.hidden),
          static_cast<std::uint32_t>(what.depth)};
}

/// Where matrices lie, in bytes from the begin of the inputs: A, B, and a product that a collective takes over.
struct product_places {
  std::uint64_t b;
  std::uint64_t product;
  std::uint64_t end;

  explicit product_places(const work& what) {
    const auto [m, n, k] = problem_of(what);
    const auto bytes = [&](std::uint64_t rows, std::uint64_t columns) {
      return (rows * columns * bytes_of(what.type) + 255) / 256 * 256;
    };
    b = bytes(m, k);
    product = b + bytes(k, n);
    end = product + bytes(m, n);
  }
};
template <class T>
T* matrix_b(const work& what) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(what.input) + product_places(what).b);
}

/// A product of one rank alone, launched on `what.stream`: rows `first` up to `end` of C, to `c`.
class local_product {
 public:
  virtual ~local_product() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Why it cannot, or nothing.
  [[nodiscard]] virtual std::string why_not(const work& what) const = 0;
  virtual void start(const work& what, void* c) = 0;
};

/// cuBLASLt's, loaded at run time; one that says why not where it cannot be.
std::unique_ptr<local_product> make_blas_product();

/// Adds what there is of devcomm's products by CUTLASS's main loops for Hopper. They say why not on other GPUs.
void add_sm90_products(product_kind kind, const rank_context& context, algorithms& to);

}  // namespace perf
