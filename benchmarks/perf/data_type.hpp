/// \file data_type.hpp
/// The element types that benchmarks know.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace perf {

enum class data_type { bf16, half, float32, float64, int32 };

struct data_type_row {
  data_type type;
  const char* name;
  std::size_t bytes;
};
inline constexpr data_type_row data_types[] = {{data_type::bf16, "bf16", 2},
                                               {data_type::half, "half", 2},
                                               {data_type::float32, "float", 4},
                                               {data_type::float64, "double", 8},
                                               {data_type::int32, "int32", 4}};

inline const data_type_row& row_of(data_type type) { return data_types[static_cast<std::size_t>(type)]; }
inline const char* to_string(data_type type) { return row_of(type).name; }
inline std::size_t bytes_of(data_type type) { return row_of(type).bytes; }

inline std::optional<data_type> data_type_named(std::string_view name) {
  for (const data_type_row& row : data_types)
    if (name == row.name) return row.type;
  return std::nullopt;
}

/// Calls `run` with a value of the element type.
template <class Run>
decltype(auto) with_type(data_type type, Run&& run) {
  switch (type) {
    case data_type::bf16: return run(__nv_bfloat16{});
    case data_type::half: return run(__half{});
    case data_type::float32: return run(float{});
    case data_type::float64: return run(double{});
    case data_type::int32: break;
  }
  return run(std::int32_t{});
}

}  // namespace perf
