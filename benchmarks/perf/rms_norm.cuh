/// \file rms_norm.cuh
/// RMSNorm of rows that a block holds in shared memory, or a group in memory.
#pragma once

#include "perf/options.hpp"

#include <devcomm/devcomm.cuh>

#include <cstdint>
#include <cstring>

namespace perf {

inline constexpr float norm_epsilon = 1e-5f;

/// What a call works on: `rows` rows of `row_packs` packs each.
///
///     residual_out = residual + sum over ranks of partial
///     normed = residual_out / sqrt(mean(residual_out^2) + norm_epsilon) * weight
template <class T>
struct norm_tensors {
  const T* partial;
  const T* residual;
  const T* weight;  ///< of one row
  T* residual_out;
  T* normed;
  std::uint32_t rows;
  std::uint32_t row_packs;
};

/// The launch's dynamic shared memory.
__device__ inline void* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char in_shared[];
  return in_shared;
}

/// By hand, as all threads of a hot loop need the sum: `cub::WarpReduce` and `cub::BlockReduce` give it to one of them,
/// and to hand it on takes another shuffle or another barrier.
__device__ inline float sum_over_warp(float value) {
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  return value;
}

/// The sum of `value` over the block; synchronizes it. *Requires* whole warps.
__device__ inline float sum_over_block(float value) {
  __shared__ float of_warps[max_threads / 32];
  value = sum_over_warp(value);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = sum_over_warp(threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : 0.0f);
  __syncthreads();  // before the next call writes
  return value;
}

template <class T>
__device__ devcomm::pack<T> add(const devcomm::pack<T>& a, const devcomm::pack<T>& b) {
  devcomm::pack<T> sums;
  for (int e = 0; e < devcomm::pack<T>::size; ++e)
    sums[e] = static_cast<T>(static_cast<float>(a[e]) + static_cast<float>(b[e]));
  return sums;
}

template <class T>
__device__ float sum_of_squares(const devcomm::pack<T>& values) {
  float squares = 0;
  for (int e = 0; e < devcomm::pack<T>::size; ++e)
    squares += static_cast<float>(values[e]) * static_cast<float>(values[e]);
  return squares;
}

/// The sum of the squares of so many packs, the calling thread's part.
template <class T>
__device__ float sum_of_squares(const devcomm::pack<T>* held, std::uint32_t packs) {
  float squares = 0;
  for (std::uint32_t p = threadIdx.x; p < packs; p += blockDim.x) squares += sum_of_squares(held[p]);
  return squares;
}

/// What a row is multiplied with, of the sum of its squares.
template <class T>
__device__ float scale_of_row(float squares, std::uint32_t row_packs) {
  return rsqrtf(squares / static_cast<float>(row_packs * devcomm::pack<T>::size) + norm_epsilon);
}

template <class T>
__device__ devcomm::pack<T> scaled(const devcomm::pack<T>& values, float scale, const devcomm::pack<T>& weights) {
  devcomm::pack<T> result;
  for (int e = 0; e < devcomm::pack<T>::size; ++e)
    result[e] = static_cast<T>(static_cast<float>(values[e]) * scale * static_cast<float>(weights[e]));
  return result;
}

/// Writes the norm of a row, or of a block's part of it, `held` in shared memory as the weights are. `squares` is the
/// sum over all of the row's `row_packs` packs.
template <class T>
__device__ void normalize(const devcomm::pack<T>* held, const devcomm::pack<T>* weights, T* normed, std::uint32_t packs,
                          std::uint32_t row_packs, float squares) {
  const float scale = scale_of_row<T>(squares, row_packs);
  for (std::uint32_t p = threadIdx.x; p < packs; p += blockDim.x)
    devcomm::store_pack(normed + p * devcomm::pack<T>::size, scaled(held[p], scale, weights[p]));
}

/// Pack `i` from `data` on.
template <class T>
__device__ uint4 words_at(const T* data, std::uint64_t i) {
  return reinterpret_cast<const uint4*>(data)[i];
}
template <class T>
__device__ devcomm::pack<T> as_pack(const uint4& words) {
  devcomm::pack<T> values;
  std::memcpy(static_cast<void*>(&values), &words, sizeof words);
  return values;
}

/// The norms of `rows` rows from pack `first` on, by the whole group, whose threads all see the residuals. Each warp
/// takes a row, or a part of one where there are more warps than rows.
template <class T>
__device__ void normalize_rows(const devcomm::warp_span& group, const norm_tensors<T>& tensors, std::uint64_t first,
                               std::uint32_t rows) {
  constexpr std::uint32_t at_once = 4;  // loads of a thread; more take registers that the all-reduce around this needs
  __shared__ float of_warps[max_threads / 32];
  const auto warps = static_cast<std::uint32_t>(group.size()) / 32;
  const std::uint32_t warp = static_cast<std::uint32_t>(group.thread_rank()) / 32;
  const std::uint32_t parts = rows < warps ? warps / rows : 1;
  const std::uint32_t stride = parts * 32;
  const std::uint32_t begin = warp % parts * 32 + threadIdx.x % 32;
  const std::uint32_t rows_at_once = warps / parts;

  for (std::uint32_t done = 0; done < rows; done += rows_at_once) {
    const std::uint32_t row = done + warp / parts;
    const bool has_row = row < rows && warp / parts < rows_at_once;
    const std::uint32_t end = has_row ? tensors.row_packs : 0;
    const std::uint64_t base = first + std::uint64_t{row} * tensors.row_packs;
    float squares = 0;

    for (std::uint32_t from = begin; from < end; from += at_once * stride) {
      uint4 values[at_once];  // as words, for packs would be taken apart
#pragma unroll
      for (std::uint32_t u = 0; u < at_once; ++u) {
        const std::uint32_t p = from + u * stride;
        values[u] = p < end ? words_at(tensors.residual_out, base + p) : uint4{};
      }
#pragma unroll
      for (std::uint32_t u = 0; u < at_once; ++u) squares += sum_of_squares(as_pack<T>(values[u]));
    }
    squares = sum_over_warp(squares);
    if (parts > 1) {  // all rows are done at once then
      float* const of_group = of_warps + (threadIdx.x / 32 - warp);
      if (threadIdx.x % 32 == 0) of_group[warp] = squares;
      group.sync();
      squares = 0;
#pragma unroll 1
      for (std::uint32_t part = 0; part < parts && has_row; ++part) squares += of_group[warp / parts * parts + part];
    }
    const float scale = scale_of_row<T>(squares, tensors.row_packs);

    for (std::uint32_t from = begin; from < end; from += at_once * stride) {
      uint4 values[at_once];
      uint4 of_row[at_once];
#pragma unroll
      for (std::uint32_t u = 0; u < at_once; ++u) {
        const std::uint32_t p = from + u * stride;
        values[u] = p < end ? words_at(tensors.residual_out, base + p) : uint4{};
        of_row[u] = p < end ? words_at(tensors.weight, p) : uint4{};
      }
#pragma unroll
      for (std::uint32_t u = 0; u < at_once; ++u) {
        const std::uint32_t p = from + u * stride;
        if (p < end)
          devcomm::store_pack(tensors.normed + (base + p) * devcomm::pack<T>::size,
                              scaled(as_pack<T>(values[u]), scale, as_pack<T>(of_row[u])));
      }
    }
  }
}

}  // namespace perf
