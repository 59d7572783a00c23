/// \file norm_call.cuh
/// What a call of fused_rms_norm works on.
#pragma once

#include "perf/algorithm.hpp"
#include "perf/rms_norm.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace perf {

/// Parts of the inputs: partial sums, residual, weights; of the outputs: norm, residual, and the sums of those that
/// reduce first. A call in place has its norm where the partial sums were, and the residual where it was.
inline constexpr std::uint64_t parts_of_region = 4;
inline std::uint64_t part_bytes(const work& what) { return (what.bytes + 255) / 256 * 256; }
template <class T>
T* part(void* region, const work& what, std::uint64_t i) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(region) + i * part_bytes(what));
}

inline std::uint64_t row_elements(const work& what) {
  return std::max<std::uint64_t>(1, std::min(what.hidden, what.count()));
}
inline std::uint64_t row_bytes(const work& what) { return row_elements(what) * bytes_of(what.type); }

inline std::uint64_t rows_of(const work& what) { return what.count() / row_elements(what); }

template <class T>
norm_tensors<T> tensors_of(const work& what) {
  return {part<const T>(what.input, what, 0),
          part<const T>(what.input, what, 1),
          part<const T>(what.input, what, 2),
          part<T>(what.output, what, 1),
          part<T>(what.output, what, 0),
          static_cast<std::uint32_t>(rows_of(what)),
          static_cast<std::uint32_t>(row_bytes(what) / 16)};
}

/// Calls `run` with a value of one of the types that layers have.
template <class Run>
void with_layer_type(data_type type, Run&& run) {
  if (type == data_type::bf16) run(__nv_bfloat16{});
  if (type == data_type::half) run(__half{});
}

inline std::string why_no_norm(const work& what) {
  if (what.type != data_type::bf16 && what.type != data_type::half)
    return std::string("no norm of ") + to_string(what.type) + "; take bf16 or half";
  return "";
}

}  // namespace perf
