// Kernels compute trees and rings as the host does.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace devcomm;

namespace {

constexpr int numbers = 10;  // that a rank writes

DEVCOMM_HOST_DEVICE void write_numbers(int rank, int size, int step, std::int32_t* out) {
  const team t = world_team(rank, size);
  for (int tree = 0; tree < 2; ++tree) {
    const tree_node node = double_tree(t, tree);
    out[3 * tree] = node.parent;
    out[3 * tree + 1] = node.left;
    out[3 * tree + 2] = node.right;
  }
  out[6] = ring_next(t);
  out[7] = ring_previous(t);
  const ring_step now = ring_all_reduce_step(t, step);
  out[8] = now.sends;
  out[9] = now.receives + (now.reduces ? size : 0);
}

__global__ void write_all(int size, int step, std::int32_t* out) {
  const int rank = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (rank < size) write_numbers(rank, size, step, out + numbers * rank);
}

}  // namespace

TEST_CASE("kernels compute trees and rings as the host does") {
  for (const int size : {1, 2, 3, 4, 7, 8, 31, 64, 65, 1000, 1024}) {
    for (const int step : {0, size - 1}) {
      const auto count = static_cast<std::size_t>(size);
      const test::device_array<std::int32_t> results(numbers * count);
      launch(write_all, {.grid = 8, .block = 128, .stream = cudaStreamPerThread}, size, step, results.get());
      test::finish("write_all");
      std::vector<std::int32_t> expected(numbers * count);
      for (int rank = 0; rank < size; ++rank) write_numbers(rank, size, step, expected.data() + numbers * rank);
      INFO(size << " ranks, step " << step);
      CHECK(results.read() == expected);
    }
  }
}
