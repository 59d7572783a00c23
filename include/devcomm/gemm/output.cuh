/// \file output.cuh
/// Where the elements of C go: into a matrix of this rank or of all ranks, after bias, activation and residual.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/data/pack.cuh>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/team.hpp>

namespace devcomm::gemm {

struct no_activation {
  DEVCOMM_DEVICE float operator()(float x) const { return x; }
};
struct relu {
  DEVCOMM_DEVICE float operator()(float x) const { return x < 0 ? 0.0f : x; }
};
/// `x` times the logistic function of it.
struct silu {
  DEVCOMM_DEVICE float operator()(float x) const { return x / (1 + arch::exp(-x)); }
};
/// By its usual approximation with `tanh`.
struct gelu {
  DEVCOMM_DEVICE float operator()(float x) const {
    return 0.5f * x * (1 + arch::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
  }
};

/// `activation(sum + bias) + residual`, in `float`. Where the sum is over ranks, this comes once, after it.
template <class T, class Activation = no_activation>
struct epilogue {
  const T* bias = nullptr;      ///< `n` elements, or null
  const T* residual = nullptr;  ///< rows of `residual_stride` elements, the first for row `first_row`, or null
  uint64_t residual_stride = 0;
  uint32_t first_row = 0;  ///< of the shard, where the residual is one of a shard
  Activation activation = {};

  template <int N>
  DEVCOMM_DEVICE void operator()(uint32_t row, uint32_t column, int count, float (&values)[N]) const {
    const T* const more = residual == nullptr ? nullptr : residual + (row - first_row) * residual_stride + column;
    DEVCOMM_UNROLL
    for (int i = 0; i < N; ++i) {
      if (i >= count) break;
      if (bias != nullptr) values[i] += static_cast<float>(bias[column + static_cast<uint32_t>(i)]);
      values[i] = activation(values[i]);
      if (more != nullptr) values[i] += static_cast<float>(more[i]);
    }
  }
};

struct no_epilogue {
  template <int N>
  DEVCOMM_DEVICE void operator()(uint32_t, uint32_t, int, float (&)[N]) const {}
};

}  // namespace devcomm::gemm

namespace devcomm::detail {

/// Stores the first `count` values of a row.
template <class T, int N>
DEVCOMM_DEVICE void store_values(T* row, int count, const run_of<T, N>& values) {
  if (count == N) return store_run(row, values);
  for (int i = 0; i < count; ++i) row[i] = values.data[i];
}
template <class T, int N>
DEVCOMM_DEVICE void store_values(T* row, int count, const float (&values)[N]) {
  store_values(row, count, round_run<T>(values));
}

}  // namespace devcomm::detail

namespace devcomm::gemm {

// Outputs. A product calls `begin()` once all its sums are there, with all threads of its group, and, if that returns
// true, the output itself for each few elements: `count` of a row, from `row` and `column` of C on.

/// Stores to a matrix of this rank, of rows of `stride` elements; the first is row `first_row` of C.
template <class T, class Epilogue = no_epilogue>
struct to_matrix {
  T* data;
  uint64_t stride;
  uint32_t first_row = 0;
  Epilogue finish = {};

  DEVCOMM_DEVICE bool begin() const { return true; }
  template <int N>
  DEVCOMM_DEVICE void operator()(uint32_t row, uint32_t column, int count, float (&values)[N]) const {
    finish(row, column, count, values);
    detail::store_values(data + (row - first_row) * stride + column, count, values);
  }
};

/// Stores to a matrix of each rank, of rows of `stride` elements.
template <class T, class Epilogue = no_epilogue>
struct to_matrices {
  sym_ptr<T> data;
  uint64_t stride;
  Epilogue finish = {};

  template <int N>
  DEVCOMM_DEVICE void operator()(uint32_t row, uint32_t column, int count, float (&values)[N]) const {
    finish(row, column, count, values);
    const sym_ptr<T> to = data + static_cast<int64_t>(row * stride + column);
    const auto rounded = detail::round_run<T>(values);
    DEVCOMM_UNROLL_BY(1)
    for (int step = 0; step < data.memory.lsa_size; ++step)
      detail::store_values(to.lsa((data.memory.lsa_rank + step) % data.memory.lsa_size), count, rounded);
  }
};

/// Stores to a tile that is to be published to `member`.
template <class Publisher>
struct to_publisher {
  Publisher& publisher;
  const tile& t;
  int member;

  DEVCOMM_DEVICE bool begin() const { return publisher.begin(); }
  template <int N>
  DEVCOMM_DEVICE void operator()(uint32_t row, uint32_t column, int count, float (&values)[N]) const {
    const uint64_t offset = uint64_t{row - t.row} * publisher.stride() + (column - t.column);
    detail::store_values(publisher.on(member, t) + offset, count, values);
  }
};

/// The same to all members.
template <class Publisher>
struct to_publisher_of_all {
  Publisher& publisher;
  const tile& t;

  DEVCOMM_DEVICE bool begin() const { return publisher.begin(); }
  template <int N>
  DEVCOMM_DEVICE void operator()(uint32_t row, uint32_t column, int count, float (&values)[N]) const {
    const uint64_t offset = uint64_t{row - t.row} * publisher.stride() + (column - t.column);
    const auto rounded = detail::round_run<typename Publisher::element>(values);
    const team& ranks = publisher.members();
    DEVCOMM_UNROLL_BY(1)
    for (int step = 0; step < ranks.size; ++step)
      detail::store_values(publisher.on((ranks.rank + step) % ranks.size, t) + offset, count, rounded);
  }
};

// Clang below 17 does not deduce the arguments of aggregates.
template <class T, class Epilogue = no_epilogue>
to_matrix(T*, uint64_t, uint32_t = 0, Epilogue = {}) -> to_matrix<T, Epilogue>;
template <class T, class Epilogue = no_epilogue>
to_matrices(sym_ptr<T>, uint64_t, Epilogue = {}) -> to_matrices<T, Epilogue>;
template <class Publisher>
to_publisher(Publisher&, const tile&, int) -> to_publisher<Publisher>;
template <class Publisher>
to_publisher_of_all(Publisher&, const tile&) -> to_publisher_of_all<Publisher>;

}  // namespace devcomm::gemm
