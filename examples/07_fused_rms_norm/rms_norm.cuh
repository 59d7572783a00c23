/// \file rms_norm.cuh
/// All-reduce, residual and RMSNorm of a transformer's layer in one kernel:
///
///     residual += sum over ranks of partial
///     normed = residual / sqrt(mean(residual^2) + epsilon) * weight      for each row of `hidden` elements
///
/// Both results are written on every rank. Only the partial sums travel, in packets; so all tensors are plain
/// device memory, and there is no barrier.
#pragma once

#include "common/sum_over_block.cuh"

#include <devcomm/devcomm.cuh>

namespace example {

/// Rows of which a block holds the results at once, in dynamic shared memory, `hidden` elements each.
struct rms_norm_shape {
  std::uint32_t rows;
  std::uint32_t hidden;  ///< elements of a row; fills whole packs
  std::uint32_t rows_at_once;

  [[nodiscard]] constexpr std::size_t shared_bytes(std::size_t element) const {
    return std::size_t{rows_at_once} * hidden * element;
  }
};

struct one_shot {
  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, devcomm::collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    devcomm::collective::all_reduce_one_shot<T>(session, packs, produce, consume, devcomm::sum{});
  }
};
struct two_shot {
  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, devcomm::collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    devcomm::collective::all_reduce_two_shot<T>(session, packs, produce, consume, devcomm::sum{});
  }
};

/// Normalizes the row of `packs` packs at `row`, in shared memory.
template <int Threads, class T>
__device__ void normalize(const devcomm::pack<T>* row, std::uint64_t packs, const T* weight, T* normed, float epsilon) {
  float squares = 0;
  for (std::uint64_t p = threadIdx.x; p < packs; p += Threads) {
    for (int e = 0; e < devcomm::pack<T>::size; ++e) {
      const auto value = static_cast<float>(row[p][e]);
      squares += value * value;
    }
  }
  const auto elements = static_cast<float>(packs * devcomm::pack<T>::size);
  const float scale = rsqrtf(sum_over_block<Threads>(squares) / elements + epsilon);
  for (std::uint64_t p = threadIdx.x; p < packs; p += Threads) {
    const devcomm::pack<T> weights = devcomm::load_pack(weight + p * devcomm::pack<T>::size);
    devcomm::pack<T> result;
    for (int e = 0; e < devcomm::pack<T>::size; ++e)
      result[e] = static_cast<T>(static_cast<float>(row[p][e]) * scale * static_cast<float>(weights[e]));
    devcomm::store_pack(normed + p * devcomm::pack<T>::size, result);
  }
}

/// Each block of `Threads` threads takes rows in turn, `rows_at_once` of them in one round of its mailbox.
template <class Algorithm, class T, int Threads>
__global__ void __launch_bounds__(Threads)
    all_reduce_rms_norm(devcomm::device_comm comm, devcomm::lsa::lamport_handle mailboxes, const T* partial,
                        const T* weight, T* residual, T* normed, rms_norm_shape shape, float epsilon) {
  extern __shared__ __align__(16) unsigned char rows_in_shared[];
  auto* const held = reinterpret_cast<devcomm::pack<T>*>(rows_in_shared);
  devcomm::allow_dependent_launch();
  devcomm::wait_for_prior_launch();

  const std::uint64_t count = std::uint64_t{shape.rows} * shape.hidden;
  const std::uint64_t row_packs = shape.hidden / devcomm::pack<T>::size;
  const devcomm::collective::from_memory<T> partials{partial, count};
  devcomm::lsa::lamport_session session{devcomm::block{}, comm, mailboxes, blockIdx.x};
  const std::uint32_t step = gridDim.x * shape.rows_at_once;
  for (std::uint32_t first = blockIdx.x * shape.rows_at_once; first < shape.rows; first += step) {
    const std::uint32_t rows = min(shape.rows_at_once, shape.rows - first);
    const devcomm::collective::slice packs{first * row_packs, (first + rows) * row_packs};
    Algorithm::template run<T>(session, packs, partials, [&](std::uint64_t i, devcomm::pack<T> sums) {
      T* const place = residual + i * devcomm::pack<T>::size;
      const devcomm::pack<T> added = devcomm::load_pack(place);
      for (int e = 0; e < devcomm::pack<T>::size; ++e)
        sums[e] = static_cast<T>(static_cast<float>(sums[e]) + static_cast<float>(added[e]));
      devcomm::store_pack(place, sums);
      held[i - packs.begin] = sums;
    });
    if (session.agree() != devcomm::status::success) return;  // synchronizes; of rows with a gap there is no norm
    for (std::uint32_t row = 0; row < rows; ++row)
      normalize<Threads>(held + row * row_packs, row_packs, weight,
                         normed + (first + row) * std::uint64_t{shape.hidden}, epsilon);
  }
}

}  // namespace example
