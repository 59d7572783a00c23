/// How blocks share a vector out between windows: every element belongs to one part of one block. And how ranks and
/// threads share chunks: every pack goes through the hooks once.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr std::uint32_t max_parts = 64;  // of a block

struct block_parts {
  std::uint32_t count;
  slice parts[max_parts];
};

template <class T>
__global__ void list_parts(slice shard, block_parts* lists) {
  block_parts& mine = lists[blockIdx.x];
  mine.count = 0;
  collective::for_each_part_of_block<T>(shard, [&](slice part) {
    if (mine.count < max_parts) mine.parts[mine.count] = part;
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
    REQUIRE(mine.count <= max_parts);
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

namespace {

constexpr unsigned threads = 32;
constexpr std::uint64_t margin = 64;  // packs on both sides of a slice

/// How often each pack of a vector was produced and consumed.
struct hook_calls {
  unsigned* produced;
  unsigned* consumed;
};

__global__ void reduce_a_slice(device_comm comm, collective::chunk_buffers buffers, slice packs, hook_calls calls) {
  lsa::barrier_session barrier{block{}, comm, 0};
  collective::all_reduce_two_shot_chunked<float>(
      barrier, collective::chunk_scratch::of_group(comm, buffers, buffers.packs_for(1, comm.lsa_size), 0), packs,
      [=](std::uint64_t i) {
        atomicAdd(calls.produced + i, 1u);
        return pack<float>{{1, 1, 1, 1}};
      },
      [=](std::uint64_t i, const pack<float>&) { atomicAdd(calls.consumed + i, 1u); }, sum{});
}

}  // namespace

TEST_CASE("an all-reduce in chunks calls its hooks once for each pack of a slice, and for none beside it") {
  for (const int ranks : {2, 3, 4}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      constexpr std::uint64_t packs_of_chunk = 300;
      auto needs = comm.requirements().lsa_barriers(1);
      const auto members = static_cast<std::uint64_t>(comm.size());
      const auto buffers = needs.add(collective::chunk_buffer_bytes{2 * 16 * members * packs_of_chunk});
      const auto device_comm = comm.create_device_comm(needs);
      comm.barrier();
      // Of a rank's packs: fewer than threads, some in a last turn, all in whole turns of 2, 4 and 8 at a time; the
      // last rank has fewer, or none.
      for (const std::uint64_t own : {1u, 33u, 64u, 75u, 110u, 128u, 240u, 256u, 290u, 700u}) {
        for (const std::uint64_t missing : {0u, 1u, 20u}) {
          const std::uint64_t count = own * members > missing ? own * members - missing : 1;
          const test::device_array<unsigned> produced(count + 2 * margin);
          const test::device_array<unsigned> consumed(count + 2 * margin);
          comm.barrier();  // an allocation may wait for a kernel that waits for this rank
          launch(reduce_a_slice, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
                 buffers, slice{margin, margin + count}, hook_calls{produced.get(), consumed.get()});
          test::finish("reduce_a_slice");
          device_comm.check();
          std::vector<unsigned> once(count + 2 * margin);
          std::fill_n(once.begin() + margin, count, 1u);
          const std::string where = std::to_string(count) + " packs, rank " + std::to_string(comm.rank());
          test::require(produced.read() == once, "not every pack is produced once: " + where);
          test::require(consumed.read() == once, "not every pack is consumed once: " + where);
        }
      }
      comm.barrier();
    });
  }
}
