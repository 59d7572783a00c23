/// \file random_data.hpp
/// Random elements that any rank can make again.
#pragma once

#include "perf/algorithm.hpp"

#include <functional>

namespace perf {

/// Writes rank `rank`'s elements. Floating-point ones lie in [-1, 1), integers in [-100, 100].
void fill_random(void* data, std::uint64_t count, data_type type, int rank, std::uint64_t seed, cudaStream_t stream);

/// Calls `count` with a zero in device memory, and returns what the kernels that it launches on `stream` add to it.
[[nodiscard]] std::uint64_t count_on_device(cudaStream_t stream, const std::function<void(unsigned long long*)>& count);

/// How many of `count` elements are not the sum of all ranks' elements. The bound is `ranks` roundings, of the sum of
/// the magnitudes, in the element's type; integers are exact. Waits for the stream.
[[nodiscard]] std::uint64_t count_wrong_sums(const void* data, std::uint64_t count, data_type type, int ranks,
                                             std::uint64_t seed, cudaStream_t stream);

}  // namespace perf
