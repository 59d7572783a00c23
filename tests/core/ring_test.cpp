#include <devcomm/ring.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace devcomm;

namespace {

constexpr int max_ranks = 64;

constexpr bool same(ring_step a, ring_step b) {
  return a.sends == b.sends && a.receives == b.receives && a.reduces == b.reduces;
}

// In constant expressions: rank 1 of three reduces chunks 2 and 1, of which 1 is its own, and then receives 0 and 2.
static_assert(ring_next(world_team(2, 3)) == 0 && ring_previous(world_team(0, 3)) == 2);
static_assert(ring_next(world_team(0, 1)) == 0 && ring_previous(world_team(0, 1)) == 0);
static_assert(ring_all_reduce_steps(world_team(0, 1)) == 0 && ring_all_reduce_steps(world_team(0, 3)) == 4);
static_assert(same(ring_all_reduce_step(world_team(1, 3), 0), {0, 2, true}));
static_assert(same(ring_all_reduce_step(world_team(1, 3), 1), {2, 1, true}));
static_assert(same(ring_all_reduce_step(world_team(1, 3), 2), {1, 0, false}));
static_assert(same(ring_all_reduce_step(world_team(1, 3), 3), {0, 2, false}));

/// For each chunk and rank, how often each rank's input is in the value that the rank has.
using inputs = std::vector<int>;
using chunks_of_rank = std::vector<inputs>;

std::vector<chunks_of_rank> own_inputs(int size) {
  const auto count = static_cast<std::size_t>(size);
  std::vector<chunks_of_rank> ranks(count, chunks_of_rank(count, inputs(count)));
  for (std::size_t rank = 0; rank < count; ++rank) {
    for (std::size_t chunk = 0; chunk < count; ++chunk) ranks[rank][chunk][rank] = 1;
  }
  return ranks;
}

/// Step `step` of all ranks at once; false when a rank receives another chunk than was sent to it.
bool take_step(std::vector<chunks_of_rank>& ranks, int step) {
  const int size = static_cast<int>(ranks.size());
  const std::vector<chunks_of_rank> before = ranks;
  for (int rank = 0; rank < size; ++rank) {
    const team mine = world_team(rank, size);
    const team previous = world_team(ring_previous(mine), size);
    const ring_step here = ring_all_reduce_step(mine, step);
    if (ring_next(previous) != rank || ring_all_reduce_step(previous, step).sends != here.receives) return false;
    const auto chunk = static_cast<std::size_t>(here.receives);
    const inputs& came = before[static_cast<std::size_t>(previous.rank)][chunk];
    inputs& kept = ranks[static_cast<std::size_t>(rank)][chunk];
    for (std::size_t i = 0; i < came.size(); ++i) kept[i] = came[i] + (here.reduces ? kept[i] : 0);
  }
  return true;
}

}  // namespace

TEST_CASE("a ring all-reduce adds every input once and delivers every chunk to every rank") {
  for (int size = 1; size <= max_ranks; ++size) {
    std::vector<chunks_of_rank> ranks = own_inputs(size);
    const int steps = ring_all_reduce_steps(world_team(0, size));
    for (int step = 0; step < steps; ++step) {
      if (!take_step(ranks, step)) FAIL("step " << step << " of " << size << " ranks: a chunk is sent to nobody");
    }
    const inputs each_once(static_cast<std::size_t>(size), 1);
    for (const chunks_of_rank& chunks : ranks) {
      for (const inputs& chunk : chunks) {
        if (chunk != each_once) FAIL(size << " ranks: a sum is wrong");
      }
    }
  }
}

TEST_CASE("half of the steps of a ring all-reduce leave each rank the sum of its own chunk") {
  for (int size = 2; size <= max_ranks; ++size) {
    std::vector<chunks_of_rank> ranks = own_inputs(size);
    for (int step = 0; step < size - 1; ++step) {
      if (!take_step(ranks, step)) FAIL("step " << step << " of " << size << " ranks");
    }
    const inputs each_once(static_cast<std::size_t>(size), 1);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank][rank] != each_once) FAIL("rank " << rank << " of " << size);
    }
  }
}

TEST_CASE("a ring all-reduce sends in each step what it received in the step before") {
  for (int size = 2; size <= max_ranks; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      const team t = world_team(rank, size);
      for (int step = 1; step < ring_all_reduce_steps(t); ++step) {
        if (ring_all_reduce_step(t, step).sends != ring_all_reduce_step(t, step - 1).receives) {
          FAIL("step " << step << " of rank " << rank << " of " << size);
        }
      }
    }
  }
}
