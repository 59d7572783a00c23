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

/// How many of the `count` elements of a call's output are not the sum of all ranks' elements from `first` on. The
/// bound is `ranks` roundings, of the sum of the magnitudes, in the element's type; integers are exact. Waits for the
/// stream.
[[nodiscard]] std::uint64_t count_wrong_sums(const work& what, std::uint64_t first, std::uint64_t count,
                                             std::uint64_t seed);

/// Elements of ranks that follow one another in an output.
struct pieces {
  std::uint64_t length;     ///< elements of each
  int rank = 0;             ///< whose the first are
  std::uint64_t first = 0;  ///< which of the rank's elements come first
};

/// How many elements of a call's output are not those of the pieces. Waits for the stream.
[[nodiscard]] std::uint64_t count_wrong_pieces(const work& what, const pieces& right, std::uint64_t seed);
/// The same for the first `length` elements of rank 0, rank 1 and so on.
[[nodiscard]] inline std::uint64_t count_wrong_shards(const work& what, std::uint64_t length, std::uint64_t seed) {
  return count_wrong_pieces(what, {length}, seed);
}

}  // namespace perf
