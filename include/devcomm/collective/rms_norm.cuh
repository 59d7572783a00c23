/// \file rms_norm.cuh
/// RMSNorm of rows that a collective or a product has just summed, in the same kernel: the residual is added, the row
/// is kept in shared memory, normalized, and stored as it is or quantized to 8 bits:
///
///     residual += sum
///     normed = residual / sqrt(mean(residual^2) + epsilon) * weight      for each row of `hidden` elements
///
///     extern __shared__ __align__(16) unsigned char shared[];  // norm_rows<T>::bytes(1, hidden)
///     const collective::norm_rows<T> norm{shared, 1, hidden};
///     for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x) {
///       const collective::slice packs{row * norm.row_packs(), (row + 1) * norm.row_packs()};
///       collective::all_reduce_one_shot<T>(session, packs, partials, norm.add_to(residual, row), sum{});
///       if (session.agree() != status::success) return;  // of a row with a gap there is no norm
///       norm.normalize(block{}, 0, weight, epsilon, collective::to_rows<T>{normed, hidden}, row);
///     }
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/small_float.cuh>
#include <devcomm/group.cuh>

namespace devcomm::detail {

/// Whether an output treats so many elements of a row together.
template <class Output, class = void>
inline constexpr bool has_groups = false;
template <class Output>
inline constexpr bool has_groups<Output, void_t<decltype(Output::elements)>> = true;

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Rows of `hidden` elements of a group, in shared memory.
///
/// *Batch-invariant*: the bits of a row depend on its elements alone, not on the other rows, nor on how many threads,
/// blocks or rows at once there are. (Sums over ranks are in rank order, whichever collective forms them.)
template <class T>
class norm_rows {
  static_assert(is_small_float<T> || detail::is_same<T, float>, "rows are float, or of a smaller floating-point type");

 public:
  /// Bytes of shared memory, aligned to 16, for `rows` rows.
  DEVCOMM_HOST_DEVICE static constexpr size_t bytes(uint32_t rows, uint32_t hidden) {
    return size_t{rows} * (size_t{hidden} * sizeof(T) + hidden / in_pack * sizeof(float));
  }

  /// *Requires* that a row fills whole packs.
  DEVCOMM_DEVICE norm_rows(void* shared, uint32_t rows, uint32_t hidden)
      : packs_(static_cast<pack<T>*>(shared)),
        squares_(reinterpret_cast<float*>(packs_ + size_t{rows} * (hidden / in_pack))),
        rows_(rows),
        row_packs_(hidden / in_pack) {
    DEVCOMM_ASSERT(hidden > 0 && hidden % in_pack == 0, "a row that is normalized fills whole packs of 16 bytes");
  }

  DEVCOMM_DEVICE uint64_t row_packs() const { return row_packs_; }

  /// A consumer for the rows from `first_row` on, as many as there are at once: adds pack `i` of the sums to pack `i`
  /// of `residual`, of any alignment, and keeps the row. Without a residual (null) it keeps the sums.
  struct add_residual {
    const norm_rows& rows;
    T* residual;
    uint64_t first;  ///< pack
    uint64_t count;  ///< elements of `residual` up to the last of these rows

    DEVCOMM_DEVICE void operator()(uint64_t i, pack<T> sums) const {
      if (residual != nullptr) {
        const pack<T> added = from_memory<T>{residual, count}(i);
        DEVCOMM_UNROLL
        for (int e = 0; e < pack<T>::size; ++e)
          sums[e] = static_cast<T>(static_cast<float>(sums[e]) + static_cast<float>(added[e]));
        to_memory<T>{residual, count}(i, sums);
      }
      rows.keep(i - first, sums);
    }
  };
  DEVCOMM_DEVICE add_residual add_to(T* residual, uint64_t first_row) const {
    const uint64_t first = first_row * row_packs_;
    return {*this, residual, first, (first + uint64_t{rows_} * row_packs_) * in_pack};
  }

  /// Normalizes row `row` of those that are kept, and calls `output(to_row, p, values)` with each pack `p` of it, as
  /// `float`, which `output` may change. `weight` has `hidden` elements, of any alignment.
  ///
  /// *Collective* over `group`, of whole warps, after it has synchronized, as `agree` of a session does. The next row
  /// is kept after it has synchronized again, as the next round of a session does.
  template <class Group, class Output>
  DEVCOMM_DEVICE void normalize(const Group& group, uint32_t row, const T* weight, float epsilon, const Output& output,
                                uint64_t to_row) const {
    DEVCOMM_ASSERT(group.size() % arch::warp_threads == 0 && group.thread_rank() % arch::warp_threads == arch::lane(),
                   "rows are normalized by whole warps: give the group a multiple of 32 threads");
    if constexpr (detail::has_groups<Output>)
      DEVCOMM_ASSERT(row_packs_ * in_pack % Output::elements == 0,
                     "rows that get a scale for each 128 elements have a multiple of 128 elements");
    const float factor = scale(row, epsilon);
    const from_memory<T> weights{weight, uint64_t{row_packs_} * in_pack};
    DEVCOMM_UNROLL_BY(1)
    for (auto p = static_cast<uint32_t>(group.thread_rank()); p < row_packs_;
         p += static_cast<uint32_t>(group.size())) {
      const pack<T> of_row = kept(row, p);
      const pack<T> factors = weights(p);
      float values[pack<T>::size];
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e)
        values[e] = static_cast<float>(of_row[e]) * factor * static_cast<float>(factors[e]);
      output(to_row, p, values);
    }
  }

  // The same in steps, where a row is not simply stored.

  /// `1 / sqrt(mean(row^2) + epsilon)`, for all threads of whole warps, when the row is kept.
  DEVCOMM_DEVICE float scale(uint32_t row, float epsilon) const {
    DEVCOMM_ASSERT_OF(row < rows_, "row", row, rows_, "a row that was not kept");
    const float mean = sum_of_squares(uint64_t{row} * row_packs_) / static_cast<float>(row_packs_ * in_pack);
    return arch::rsqrt(mean + epsilon);
  }
  DEVCOMM_DEVICE const pack<T>& kept(uint32_t row, uint64_t p) const { return packs_[uint64_t{row} * row_packs_ + p]; }

 private:
  static constexpr uint32_t in_pack = 16 / sizeof(T);

  DEVCOMM_DEVICE void keep(uint64_t p, const pack<T>& value) const {
    DEVCOMM_ASSERT(p < uint64_t{rows_} * row_packs_, "more packs than the rows that are kept at once");
    float squares = 0;
    DEVCOMM_UNROLL
    for (int e = 0; e < pack<T>::size; ++e) squares += static_cast<float>(value[e]) * static_cast<float>(value[e]);
    packs_[p] = value;
    squares_[p] = squares;
  }

  /// The same in all threads: each warp adds up the packs' squares in the same order.
  DEVCOMM_DEVICE float sum_of_squares(uint64_t first) const {
    float sum = 0;
    DEVCOMM_UNROLL_BY(4)
    for (uint32_t p = arch::lane(); p < row_packs_; p += arch::warp_threads) sum += squares_[first + p];
    DEVCOMM_UNROLL
    for (uint32_t bit = arch::warp_threads / 2; bit > 0; bit /= 2)
      sum += detail::shuffle(arch::full_mask, sum, arch::lane() ^ bit);
    return sum;
  }

  pack<T>* packs_;
  float* squares_;  // the sum of squares of each pack
  uint32_t rows_;
  uint32_t row_packs_;
};

// Outputs of `normalize`: rows of `stride` elements from `data` on, of any alignment.

/// As `U`, rounded.
template <class U>
struct to_rows {
  U* data;
  uint64_t stride;

  template <int N>
  DEVCOMM_DEVICE void operator()(uint64_t row, uint32_t p, float (&values)[N]) const {
    detail::store_run(data + row * stride + uint64_t{p} * N, values);
  }
};

/// As `value / scale`, in `__nv_fp8_e4m3` or `__nv_fp8_e5m2`: values past the largest number become that. `scale` is
/// one number in device memory, for the whole tensor.
template <class Fp8>
struct to_quantized_rows {
  Fp8* data;
  uint64_t stride;
  const float* scale;

  template <int N>
  DEVCOMM_DEVICE void operator()(uint64_t row, uint32_t p, float (&values)[N]) const {
    const float inverse = 1 / *scale;
    DEVCOMM_UNROLL
    for (int e = 0; e < N; ++e) values[e] *= inverse;
    detail::store_run(data + row * stride + uint64_t{p} * N, values);
  }
};

/// The same with a scale for each row and group of 128 elements: the largest magnitude of the group divided by the
/// largest number of the type, 1 for a group of zeros. It is stored to `scales[row * row_stride + group *
/// group_stride]`. *Requires* that `hidden` is a multiple of 128.
template <class Fp8>
struct to_quantized_groups {
  Fp8* data;
  uint64_t stride;
  float* scales;
  uint64_t row_stride;
  uint64_t group_stride = 1;

  static constexpr uint32_t elements = 128;

  template <int N>
  DEVCOMM_DEVICE void operator()(uint64_t row, uint32_t p, float (&values)[N]) const {
    constexpr uint32_t lanes = elements / N;  // that hold a group; all of them call together
    const uint32_t first = arch::lane() / lanes * lanes;
    const uint32_t mask = (arch::full_mask >> (arch::warp_threads - lanes)) << first;
    float largest = 0;
    DEVCOMM_UNROLL
    for (int e = 0; e < N; ++e) largest = arch::larger(largest, values[e] < 0 ? -values[e] : values[e]);
    DEVCOMM_UNROLL
    for (uint32_t bit = lanes / 2; bit > 0; bit /= 2)
      largest = arch::larger(largest, detail::shuffle(mask, largest, arch::lane() ^ bit));
    const float scale = largest == 0 ? 1 : largest / static_cast<float>(static_cast<Fp8>(1e30f));
    if (arch::lane() == first) scales[row * row_stride + p / lanes * group_stride] = scale;
    const float inverse = 1 / scale;
    DEVCOMM_UNROLL
    for (int e = 0; e < N; ++e) values[e] *= inverse;
    detail::store_run(data + row * stride + uint64_t{p} * N, values);
  }
};

}  // namespace devcomm::collective
