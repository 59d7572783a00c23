/// \file mma.h
/// CUDA's `nvcuda::wmma` for the simulator, as plain loops. Which elements of a matrix a lane has is not CUDA's
/// business to say: here lane l has a run of them, by rows.
#pragma once

#include <devcomm/simulator/device/ptx_mma.hpp>

#include <cstdint>

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

template <class Use, int M, int N, int K>
inline constexpr int rows_of = std::is_same_v<Use, matrix_b> ? K : M;
template <class Use, int M, int N, int K>
inline constexpr int columns_of = std::is_same_v<Use, matrix_a> ? K : N;

template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment {
 public:
  using element_type = std::conditional_t<std::is_same_v<T, precision::tf32>, float, T>;
  static constexpr int rows = rows_of<Use, M, N, K>;
  static constexpr int columns = columns_of<Use, M, N, K>;
  static constexpr int num_elements = rows * columns / 32;
  element_type x[num_elements];
};

inline float __float_to_tf32(float value) {
  return devcomm::simulator::detail::ptx::element<devcomm::simulator::detail::ptx::tf32>(
      devcomm::simulator::detail::ptx::as<unsigned>(value), 0);
}

template <class Fragment, class T>
void fill_fragment(Fragment& f, const T& value) {
  for (auto& each : f.x) each = static_cast<typename Fragment::element_type>(value);
}

/// The place in memory of the lane's element `i`.
template <class Fragment>
std::size_t place_of(int i, unsigned stride, bool by_rows) {
  const int index = devcomm::simulator::detail::own_lane() * Fragment::num_elements + i;
  const auto row = static_cast<std::size_t>(index / Fragment::columns);
  const auto column = static_cast<std::size_t>(index % Fragment::columns);
  return by_rows ? row * stride + column : column * stride + row;
}

template <class Use, int M, int N, int K, class T, class Layout, class Memory>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const Memory* from, unsigned stride) {
  using all = fragment<Use, M, N, K, T, Layout>;
  __syncwarp();
  for (int i = 0; i < all::num_elements; ++i)
    f.x[i] = from[place_of<all>(i, stride, std::is_same_v<Layout, row_major>)];
}
template <int M, int N, int K, class T, class Memory>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const Memory* from, unsigned stride, layout_t layout) {
  using all = fragment<accumulator, M, N, K, T>;
  __syncwarp();
  for (int i = 0; i < all::num_elements; ++i) f.x[i] = from[place_of<all>(i, stride, layout == mem_row_major)];
}
template <int M, int N, int K, class T, class Memory>
void store_matrix_sync(Memory* to, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
  using all = fragment<accumulator, M, N, K, T>;
  __syncwarp();
  for (int i = 0; i < all::num_elements; ++i) to[place_of<all>(i, stride, layout == mem_row_major)] = f.x[i];
  __syncwarp();
}

/// d = a b + c.
template <int M, int N, int K, class D, class A, class OfA, class B, class OfB, class C>
void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, A, OfA>& a,
              const fragment<matrix_b, M, N, K, B, OfB>& b, const fragment<accumulator, M, N, K, C>& c) {
  struct operands {
    fragment<accumulator, M, N, K, D>& d;
    const fragment<matrix_a, M, N, K, A, OfA>& a;
    const fragment<matrix_b, M, N, K, B, OfB>& b;
    fragment<accumulator, M, N, K, C> c;
  };
  using sum_type =
      std::conditional_t<std::is_integral_v<A>, int, std::conditional_t<std::is_same_v<A, double>, double, float>>;
  operands own{d, a, b, c};
  devcomm::simulator::detail::ptx::as_warp(own, [](auto of) DEVCOMM_SIMULATOR_ON_REGISTERS {
    constexpr int of_a = fragment<matrix_a, M, N, K, A, OfA>::num_elements;
    constexpr int of_b = fragment<matrix_b, M, N, K, B, OfB>::num_elements;
    constexpr int of_c = fragment<accumulator, M, N, K, C>::num_elements;
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        const int place = m * N + n;
        auto sum = static_cast<sum_type>(of(place / of_c).c.x[place % of_c]);
        for (int k = 0; k < K; ++k) {
          const int in_a = m * K + k;
          const int in_b = k * N + n;
          sum += static_cast<sum_type>(of(in_a / of_a).a.x[in_a % of_a]) *
                 static_cast<sum_type>(of(in_b / of_b).b.x[in_b % of_b]);
        }
        of(place / of_c).d.x[place % of_c] = static_cast<D>(sum);
      }
    }
  });
}

}  // namespace nvcuda::wmma
