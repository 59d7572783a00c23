#include <devcomm/team.hpp>

#include <catch2/catch_test_macros.hpp>

#include <vector>

using namespace devcomm;

namespace {

constexpr int max_ranks = 64;

std::vector<int> members(team t) {
  std::vector<int> ranks;
  for (int i = 0; i < t.size; ++i) ranks.push_back(t.world_rank(i));
  return ranks;
}

/// The laws that hold for every team the caller belongs to.
bool is_consistent(team t, int self) {
  if (t.world_rank(t.rank) != self || !t.contains(self)) return false;
  for (int i = 0; i < t.size; ++i) {
    if (t.member_of(t.world_rank(i)) != i) return false;
  }
  return true;
}

template <class Body>
void for_each_rank_and_factor(Body body) {
  for (int size = 1; size <= max_ranks; ++size) {
    for (int factor = 1; factor <= size; ++factor) {
      if (size % factor != 0) continue;
      for (int rank = 0; rank < size; ++rank) body(world_team(rank, size), factor);
    }
  }
}

// The algebra is usable in constant expressions.
static_assert(inner_factor(world_team(5, 8), 4) == team{1, 4, 4, 1});
static_assert(outer_factor(world_team(5, 8), 4) == team{1, 2, 1, 4});
static_assert(convert(inner_factor(world_team(5, 8), 4), 3, world_team(5, 8)) == 7);
static_assert(difference_member(world_team(0, 4), team{0, 2, 1, 2}, 1) == 2);
// Teams are equal where all of them is.
static_assert(team{1, 4, 2, 3} == team{1, 4, 2, 3} && team{1, 4, 2, 3} != team{0, 4, 2, 3});
static_assert(team{1, 4, 2, 3} != team{1, 5, 2, 3} && team{1, 4, 2, 3} != team{1, 4, 1, 3});
static_assert(team{1, 4, 2, 3} != team{1, 4, 2, 2});

}  // namespace

TEST_CASE("every rank belongs to its factors and finds itself there") {
  for_each_rank_and_factor([](team world, int factor) {
    const int self = world.rank;
    const bool consistent = is_consistent(world, self) && is_consistent(inner_factor(world, factor), self) &&
                            is_consistent(outer_factor(world, factor), self);
    if (!consistent) FAIL("rank " << self << " of " << world.size << ", factor " << factor);
  });
}

TEST_CASE("an inner and an outer factor meet in one rank and span the team") {
  for_each_rank_and_factor([](team world, int factor) {
    const team inner = inner_factor(world, factor);
    const team outer = outer_factor(world, factor);
    int shared = 0;
    for (const int rank : members(inner)) shared += outer.contains(rank) ? 1 : 0;
    if (shared != 1 || inner.size * outer.size != world.size) {
      FAIL("rank " << world.rank << " of " << world.size << ", factor " << factor);
    }
  });
}

TEST_CASE("factors of factors are teams of the same world") {
  for_each_rank_and_factor([](team world, int factor) {
    const team outer = outer_factor(world, factor);
    for (int second = 1; second <= outer.size; ++second) {
      if (outer.size % second != 0) continue;
      if (!is_consistent(inner_factor(outer, second), world.rank) || !is_subset(inner_factor(outer, second), outer) ||
          !is_consistent(outer_factor(outer, second), world.rank) || !is_subset(outer_factor(outer, second), outer)) {
        FAIL("rank " << world.rank << " of " << world.size << ", factors " << factor << " and " << second);
      }
    }
  });
}

TEST_CASE("a conversion keeps the world rank or says that there is none") {
  for_each_rank_and_factor([](team world, int factor) {
    const team inner = inner_factor(world, factor);
    for (int member = 0; member < world.size; ++member) {
      const int there = convert(world, member, inner);
      const bool right = inner.contains(member) ? inner.world_rank(there) == member : there == -1;
      if (!right) FAIL("rank " << world.rank << " of " << world.size << ", member " << member);
    }
  });
}

TEST_CASE("a difference holds each remaining member once, in order") {
  for_each_rank_and_factor([](team world, int factor) {
    for (const team removed : {inner_factor(world, factor), outer_factor(world, factor)}) {
      std::vector<int> expected;
      for (const int rank : members(world)) {
        if (!removed.contains(rank)) expected.push_back(rank);
      }
      std::vector<int> found;
      for (int i = 0; difference_member(world, removed, i) >= 0; ++i) {
        found.push_back(world.world_rank(difference_member(world, removed, i)));
      }
      if (found != expected || difference_size(world, removed) != static_cast<int>(expected.size())) {
        FAIL("rank " << world.rank << " of " << world.size << ", factor " << factor);
      }
    }
  });
}

TEST_CASE("ranks outside a team are not its members") {
  const team rail{1, 4, 3, 8};  // 3, 11, 19, 27
  CHECK_FALSE(rail.contains(-5));
  CHECK_FALSE(rail.contains(4));
  CHECK_FALSE(rail.contains(35));
  CHECK(rail.member_of(27) == 3);
  CHECK_FALSE(is_subset(team{0, 5, 3, 8}, rail));
}
