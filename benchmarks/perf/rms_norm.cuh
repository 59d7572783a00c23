/// \file rms_norm.cuh
/// RMSNorm of rows that a block holds in shared memory.
#pragma once

#include "perf/options.hpp"

#include <devcomm/devcomm.cuh>

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

/// The sum of `value` over the block; synchronises it. *Requires* whole warps.
__device__ inline float sum_over_block(float value) {
  __shared__ float of_warps[most_threads / 32];
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : 0.0f;
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
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

/// The sum of the squares of so many packs.
template <class T>
__device__ float sum_of_squares(const devcomm::pack<T>* held, std::uint32_t packs) {
  float squares = 0;
  for (std::uint32_t p = threadIdx.x; p < packs; p += blockDim.x) {
    for (int e = 0; e < devcomm::pack<T>::size; ++e) {
      const auto value = static_cast<float>(held[p][e]);
      squares += value * value;
    }
  }
  return squares;
}

/// Writes the norm of a row, or of a block's part of it, `held` in shared memory as the weights are. `squares` is the
/// sum over all of the row's `row_packs` packs.
template <class T>
__device__ void normalise(const devcomm::pack<T>* held, const devcomm::pack<T>* weights, T* normed, std::uint32_t packs,
                          std::uint32_t row_packs, float squares) {
  const auto elements = static_cast<float>(row_packs * devcomm::pack<T>::size);
  const float scale = rsqrtf(squares / elements + norm_epsilon);
  for (std::uint32_t p = threadIdx.x; p < packs; p += blockDim.x) {
    devcomm::pack<T> result;
    for (int e = 0; e < devcomm::pack<T>::size; ++e)
      result[e] = static_cast<T>(static_cast<float>(held[p][e]) * scale * static_cast<float>(weights[p][e]));
    devcomm::store_pack(normed + p * devcomm::pack<T>::size, result);
  }
}

}  // namespace perf
