#include <devcomm/gemm/tile_order.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace devcomm::gemm;

namespace {

constexpr int member_counts[] = {1, 2, 3, 4, 7, 8};
constexpr problem_shape problems[] = {{64, 48, 16}, {1, 1, 1},   {100, 33, 7}, {13, 200, 5},
                                      {7, 8, 16},   {0, 16, 16}, {16, 0, 16},  {97, 65, 0}};
constexpr tile_shape shapes[] = {{16, 8, 8}, {8, 32, 4}, {5, 3, 1}, {128, 128, 64}};

/// Calls `body(grid)` with grids of both kinds, of all these problems and shapes.
template <class Body>
void for_each_grid(int members, const Body& body) {
  for (const problem_shape& problem : problems) {
    for (const tile_shape& shape : shapes) {
      for (const std::uint32_t band : {1u, 2u, 8u}) {
        INFO(members << " members, " << problem.m << " x " << problem.n << ", tiles of " << shape.m << " x " << shape.n
                     << ", bands of " << band);
        body(tile_grid::by_rows(problem, shape, members, band));
        body(tile_grid::by_tiles(problem, shape, members, band));
      }
    }
  }
}

}  // namespace

TEST_CASE("the tiles of a grid cover each element once, and each owner's are numbered without gaps") {
  for (const int members : member_counts) {
    for_each_grid(members, [&](const tile_grid& grid) {
      std::vector<int> covered(std::size_t{grid.problem().m} * grid.problem().n);
      std::uint32_t total = 0;
      bool right = true;
      for (int owner = 0; owner < members; ++owner) {
        right = right && grid.tiles_of(owner) <= grid.max_tiles();
        total += grid.tiles_of(owner);
        for (std::uint32_t i = 0; i < grid.tiles_of(owner); ++i) {
          const tile t = grid.at(owner, i);
          right = right && (!grid.owns_rows() ||
                            grid.index_of(owner, t.row - grid.at(owner, 0).row, t.column / grid.shape().n) == i);
          const tile same = grid.holding(t.row + t.rows - 1, t.column + t.columns - 1);
          right = right && same.owner == owner && same.index == i;
          right = right && t.owner == owner && t.index == i && t.rows > 0 && t.columns > 0 &&
                  t.rows <= grid.shape().m && t.columns <= grid.shape().n && t.row + t.rows <= grid.problem().m &&
                  t.column + t.columns <= grid.problem().n;
          REQUIRE(right);
          for (std::uint32_t r = t.row; r < t.row + t.rows; ++r)
            for (std::uint32_t c = t.column; c < t.column + t.columns; ++c)
              ++covered[std::size_t{r} * grid.problem().n + c];
        }
      }
      CHECK(total == grid.size());
      for (const int times : covered) right = right && times == 1;
      CHECK(right);
    });
  }
}

TEST_CASE("shards of rows are consecutive, of the length that reduce_scatter gives them, and no tile has rows of two") {
  for (const int members : member_counts) {
    for (const problem_shape& problem : problems) {
      const tile_grid grid = tile_grid::by_rows(problem, shapes[0], members);
      const std::uint32_t length =
          (problem.m + static_cast<std::uint32_t>(members) - 1) / static_cast<std::uint32_t>(members);
      CHECK(grid.shard_rows() == length);
      CHECK(grid.first_row(0) == 0);
      CHECK(grid.first_row(members) == problem.m);
      for (int owner = 0; owner < members; ++owner) {
        CHECK(grid.first_row(owner + 1) - grid.first_row(owner) <= length);
        for (std::uint32_t i = 0; i < grid.tiles_of(owner); ++i) {
          const tile t = grid.at(owner, i);
          CHECK((t.row >= grid.first_row(owner) && t.row + t.rows <= grid.first_row(owner + 1)));
        }
      }
    }
  }
}

TEST_CASE("an order has each tile of its grid once, for every rank and number of parts") {
  for (const int members : member_counts) {
    for_each_grid(members, [&](const tile_grid& grid) {
      for (const first_owner first : {first_owner::self, first_owner::next}) {
        for (const std::uint32_t parts : {1u, 2u, 5u}) {
          const int rank = members / 2;
          const tile_order order{grid, rank, first, parts};
          std::vector<std::vector<int>> seen(static_cast<std::size_t>(members));
          for (int owner = 0; owner < members; ++owner)
            seen[static_cast<std::size_t>(owner)].resize(grid.tiles_of(owner));
          REQUIRE(order.size() == grid.size());
          bool right = true;
          for (std::uint32_t i = 0; i < order.size(); ++i) {
            const tile t = order[i];
            REQUIRE(t.index < grid.tiles_of(t.owner));
            right = right && t.rows == grid.at(t.owner, t.index).rows &&
                    ++seen[static_cast<std::size_t>(t.owner)][t.index] == 1;
          }
          CHECK(right);
        }
      }
    });
  }
}

TEST_CASE("at each step ranks are at the tiles of different owners, their own first or last") {
  for (const int members : member_counts) {
    const auto ranks = static_cast<std::uint32_t>(members);
    const tile_grid grid = tile_grid::by_rows({ranks * 32, 24, 8}, {8, 8, 8}, members);
    for (const std::uint32_t parts : {1u, 3u}) {
      for (const first_owner first : {first_owner::self, first_owner::next}) {
        for (std::uint32_t i = 0; i < grid.size(); ++i) {
          std::vector<int> at(ranks);
          for (int rank = 0; rank < members; ++rank)
            ++at[static_cast<std::size_t>(tile_order{grid, rank, first, parts}[i].owner)];
          CHECK(at == std::vector<int>(ranks, 1));
        }
        const tile_order order{grid, members - 1, first, parts};
        CHECK(order[0].owner == (first == first_owner::self ? members - 1 : 0));
        CHECK(order[order.size() - 1].owner ==
              (first == first_owner::self ? (members - 2 + members) % members : members - 1));
      }
    }
  }
}

TEST_CASE("with more parts each owner's first tiles come before any other's last") {
  const tile_grid grid = tile_grid::by_tiles({64, 64, 8}, {8, 8, 8}, 4);  // 16 tiles each
  const tile_order order{grid, 1, first_owner::next, 4};
  for (std::uint32_t i = 0; i < order.size(); ++i) CHECK(order[i].index / 4 == i / 16);
}

TEST_CASE("blocks of a cluster compute tiles below each other, each tile of the grid once") {
  for (const int members : {1, 2, 3}) {
    for_each_grid(members, [&](const tile_grid& grid) {
      for (const std::uint32_t cluster : {1u, 2u, 3u}) {
        const tile_order order{grid, members - 1, first_owner::next, 2, cluster};
        std::vector<int> seen(std::size_t{grid.max_tiles()} * static_cast<std::size_t>(members));
        bool right = true;
        for (std::uint32_t i = 0; i < order.size(); ++i) {
          const tile top = order.of_block(i, 0);
          for (std::uint32_t block = 0; block < cluster; ++block) {
            const tile t = order.of_block(i, block);
            right = right && t.column == top.column && t.row == top.row + block * grid.shape().m;
            if (t.rows != 0) ++seen[std::size_t{grid.max_tiles()} * static_cast<std::size_t>(t.owner) + t.index];
          }
        }
        std::uint32_t total = 0;
        for (const int times : seen) {
          right = right && times <= 1;
          total += static_cast<std::uint32_t>(times);
        }
        CHECK(right);
        CHECK(total == grid.size());
      }
    });
  }
}
