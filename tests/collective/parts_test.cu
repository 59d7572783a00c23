/// How blocks share a vector out between windows: every element belongs to one part of one block.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace devcomm;

namespace {

constexpr std::uint32_t most_parts = 64;  // of a block

struct block_parts {
  std::uint32_t count;
  slice parts[most_parts];
};

template <class T>
__global__ void list_parts(slice shard, block_parts* lists) {
  block_parts& mine = lists[blockIdx.x];
  mine.count = 0;
  collective::for_each_part_of_block<T>(shard, [&](slice part) {
    if (mine.count < most_parts) mine.parts[mine.count] = part;
    ++mine.count;
  });
}

template <class T>
void check(slice shard, unsigned blocks) {
  INFO(sizeof(T) << " bytes, elements " << shard.begin << " to " << shard.end << ", " << blocks << " blocks");
  const test::device_array<block_parts> lists(blocks);
  launch(list_parts<T>, {.grid = blocks, .block = 1, .stream = cudaStreamPerThread}, shard, lists.get());
  test::finish("list_parts");
  std::vector<slice> all;
  std::uint32_t most = 0;
  std::uint32_t least = ~0u;
  for (const block_parts& mine : lists.read()) {
    REQUIRE(mine.count <= most_parts);
    all.insert(all.end(), mine.parts, mine.parts + mine.count);
    most = std::max(most, mine.count);
    least = std::min(least, mine.count);
  }
  CHECK(most - least <= 1);  // no block has much more than another
  std::sort(all.begin(), all.end(), [](const slice& a, const slice& b) { return a.begin < b.begin; });
  std::uint64_t at = shard.begin;
  for (const slice& part : all) {
    CHECK(part.begin == at);
    CHECK(part.end > part.begin);
    CHECK((part.begin - shard.begin) % pack<T>::size == 0);
    CHECK(part.size() * sizeof(T) <= 4096 * 16);
    at = part.end;
  }
  CHECK(at == shard.end);
}

}  // namespace

TEST_CASE("parts of blocks are disjoint, whole packs and cover a shard") {
  for (const unsigned blocks : {1u, 2u, 3u, 7u}) {
    for (const std::uint64_t count : {0u, 1u, 15u, 16u, 1000u, 65536u, 65537u, 131072u, 200000u, 400001u}) {
      check<std::uint8_t>({0, count}, blocks);
      check<std::uint32_t>({5, 5 + count / 4}, blocks);
      check<double>({1, 1 + count / 8}, blocks);
    }
  }
}
