/// \file tile_order.hpp
/// Tiles of a matrix product: which rank owns each, and in which order a rank computes them.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/config.hpp>

namespace devcomm::detail {

DEVCOMM_HOST_DEVICE constexpr uint32_t divide_up(uint32_t a, uint32_t b) { return a / b + (a % b != 0 ? 1 : 0); }
DEVCOMM_HOST_DEVICE constexpr uint32_t min_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

}  // namespace devcomm::detail

namespace devcomm::gemm {

using detail::divide_up;
using detail::min_of;

/// C, of `m` rows and `n` columns, is A (`m` x `k`) times B (`k` x `n`). In elements.
struct problem_shape {
  uint32_t m;
  uint32_t n;
  uint32_t k;
};

/// A block computes `m` x `n` elements of C at a time, from `k` columns of A and rows of B at a time.
struct tile_shape {
  uint32_t m;
  uint32_t n;
  uint32_t k;

  DEVCOMM_HOST_DEVICE constexpr uint64_t elements() const { return uint64_t{m} * n; }
};

/// A tile of C. At the end of a shard, and of a row of C, it has fewer rows and columns than the `tile_shape`.
struct tile {
  uint32_t row;     ///< the first one
  uint32_t column;  ///< the first one
  uint32_t rows;
  uint32_t columns;
  int owner;       ///< the member that its rows, or its sum, belong to
  uint32_t index;  ///< among the tiles of its owner
};

/// How C is cut into tiles, and to whom they belong: the same on all ranks.
///
/// Tiles of one owner are numbered in bands of `band` rows of tiles, down each column of a band: blocks that run at the
/// same time share operands in the L2 cache.
class tile_grid {
 public:
  /// Each member owns a shard of `ceil(m / members)` rows; the last shards may be shorter, or empty. No tile has rows
  /// of two shards.
  DEVCOMM_HOST_DEVICE static constexpr tile_grid by_rows(problem_shape problem, tile_shape shape, int members,
                                                         uint32_t band = default_band) {
    return {problem, shape, members, band, true};
  }

  /// Each member owns `ceil(tiles / members)` consecutive tiles of C; the last ones may own fewer, or none.
  DEVCOMM_HOST_DEVICE static constexpr tile_grid by_tiles(problem_shape problem, tile_shape shape, int members,
                                                          uint32_t band = default_band) {
    return {problem, shape, members, band, false};
  }

  DEVCOMM_HOST_DEVICE constexpr const problem_shape& problem() const { return problem_; }
  DEVCOMM_HOST_DEVICE constexpr const tile_shape& shape() const { return shape_; }
  DEVCOMM_HOST_DEVICE constexpr int members() const { return members_; }

  /// Rows of a shard, unless it is one of the last. *Requires* `by_rows`.
  DEVCOMM_HOST_DEVICE constexpr uint32_t shard_rows() const { return share_; }
  /// The first row of `owner`'s shard, and the one past its last. *Requires* `by_rows`.
  DEVCOMM_HOST_DEVICE constexpr uint32_t first_row(int owner) const {
    const uint64_t row = uint64_t{share_} * static_cast<uint32_t>(owner);
    return row < problem_.m ? static_cast<uint32_t>(row) : problem_.m;
  }

  DEVCOMM_HOST_DEVICE constexpr uint32_t tiles_of(int owner) const {
    if (is_by_rows_) return divide_up(first_row(owner + 1) - first_row(owner), shape_.m) * columns_;
    const uint64_t before = uint64_t{share_} * static_cast<uint32_t>(owner);
    return before < total_ ? min_of(share_, total_ - static_cast<uint32_t>(before)) : 0;
  }
  /// The most that any member owns.
  DEVCOMM_HOST_DEVICE constexpr uint32_t max_tiles() const { return tiles_of(0); }
  /// Tiles of all members.
  DEVCOMM_HOST_DEVICE constexpr uint32_t size() const { return total_; }

  /// Tile `index` of `owner`. *Requires* `index < tiles_of(owner)`.
  DEVCOMM_HOST_DEVICE constexpr tile at(int owner, uint32_t index) const {
    const uint32_t first = is_by_rows_ ? first_row(owner) : 0;
    const uint32_t end = is_by_rows_ ? first_row(owner + 1) : problem_.m;
    const uint32_t number = is_by_rows_ ? index : index + share_ * static_cast<uint32_t>(owner);
    const uint32_t in_band = number % (band_ * columns_);
    const uint32_t band = number / (band_ * columns_) * band_;  // its first row of tiles
    const uint32_t rows = min_of(band_, divide_up(end - first, shape_.m) - band);
    const uint32_t row = first + (band + in_band % rows) * shape_.m;
    const uint32_t column = in_band / rows * shape_.n;
    return {row, column, min_of(shape_.m, end - row), min_of(shape_.n, problem_.n - column), owner, index};
  }

  /// Whether each owner has whole rows of C: those of its shard, or, where there is one member, all.
  DEVCOMM_HOST_DEVICE constexpr bool owns_rows() const { return is_by_rows_ || members_ == 1; }
  /// Rows that `owner` owns. *Requires* `owns_rows()`.
  DEVCOMM_HOST_DEVICE constexpr uint32_t rows_of(int owner) const {
    return is_by_rows_ ? first_row(owner + 1) - first_row(owner) : problem_.m;
  }
  /// Tiles side by side in a row of C.
  DEVCOMM_HOST_DEVICE constexpr uint32_t tiles_in_row() const { return columns_; }
  /// The index of `owner`'s tile that holds its row `row`, counted from its first, and is the `column`-th of that row.
  /// *Requires* `owns_rows()`.
  DEVCOMM_HOST_DEVICE constexpr uint32_t index_of(int owner, uint32_t row, uint32_t column) const {
    return number_of(row / shape_.m, column, rows_of(owner));
  }
  /// The tile that holds an element of C.
  DEVCOMM_HOST_DEVICE constexpr tile holding(uint32_t row, uint32_t column) const {
    if (is_by_rows_) {
      const auto owner = static_cast<int>(row / share_);
      return at(owner, number_of((row - first_row(owner)) / shape_.m, column / shape_.n, rows_of(owner)));
    }
    const uint32_t number = number_of(row / shape_.m, column / shape_.n, problem_.m);
    return at(static_cast<int>(number / share_), number % share_);
  }
  /// The same product in larger tiles, each of `tiles` below each other, less at the ends.
  DEVCOMM_HOST_DEVICE constexpr tile_grid of_clusters(uint32_t tiles) const {
    return {problem_, {shape_.m * tiles, shape_.n, shape_.k}, members_, divide_up(band_, tiles), is_by_rows_};
  }

 private:
  static constexpr uint32_t default_band = 8;

  DEVCOMM_HOST_DEVICE constexpr tile_grid(problem_shape problem, tile_shape shape, int members, uint32_t band,
                                          bool is_by_rows)
      : problem_(problem), shape_(shape), members_(members), band_(band), is_by_rows_(is_by_rows) {
    DEVCOMM_ASSERT(shape.m > 0 && shape.n > 0 && shape.k > 0, "a tile has at least one row, column and element of K");
    DEVCOMM_ASSERT(members > 0 && band > 0, "a grid of tiles has at least one member, and bands of at least one row");
    const auto parts = static_cast<uint32_t>(members);
    columns_ = divide_up(problem.n, shape.n);
    if (is_by_rows) {
      share_ = divide_up(problem.m, parts);
      for (int owner = 0; owner < members; ++owner) total_ += tiles_of(owner);
    } else {
      total_ = divide_up(problem.m, shape.m) * columns_;
      share_ = divide_up(total_, parts);
    }
  }

  /// The number, of those in `rows` rows of C, of the tile in the `row`-th row of tiles, the `column`-th of it.
  DEVCOMM_HOST_DEVICE constexpr uint32_t number_of(uint32_t row, uint32_t column, uint32_t rows) const {
    const uint32_t band = row / band_ * band_;
    return band * columns_ + column * min_of(band_, divide_up(rows, shape_.m) - band) + (row - band);
  }

  problem_shape problem_;
  tile_shape shape_;
  int members_;
  uint32_t band_;
  bool is_by_rows_;
  uint32_t columns_ = 0;  // of tiles
  uint32_t share_ = 0;    // of each member: rows of C, or tiles
  uint32_t total_ = 0;
};

/// The launch key of a kernel whose ranks must agree on `key` and on the grid, see `device_comm::with_launch_key`.
DEVCOMM_HOST_DEVICE constexpr uint64_t launch_key_of(uint64_t key, const tile_grid& grid) {
  const uint32_t words[] = {grid.problem().m,
                            grid.problem().n,
                            grid.problem().k,
                            grid.shape().m,
                            grid.shape().n,
                            grid.shape().k,
                            static_cast<uint32_t>(grid.members()),
                            grid.size()};
  for (const uint32_t word : words) key = (key ^ word) * 0x100000001b3u;  // FNV-1a, a word at a time
  return key;
}

/// Which owner's tiles a rank computes first. In either order, member `r` is at the tiles of member `r + d` while
/// member `r + 1` is at those of `r + 1 + d`: no two ranks write to one rank, or read from it, at the same time.
enum class first_owner {
  self,  ///< its own, then those of the next member, and so on: operands come from the next member first
  next   ///< those of the next member, and so on, its own last: results have to travel
};

/// The order in which member `rank` computes all tiles of a grid. Blocks take the tiles `block`, `block + blocks` and
/// so on, or draw numbers.
///
///     const gemm::tile_order order{grid, comm.lsa().rank, gemm::first_owner::next};
///     for (uint32_t i = blockIdx.x; i < order.size(); i += gridDim.x) compute(order[i]);
class tile_order {
 public:
  /// The tiles of each owner come in `parts` parts: first a part of each owner's tiles, then the next of each. With
  /// more parts an owner has whole sums earlier, which it can hand on while others are still being computed.
  ///
  /// With `cluster` > 1 there are numbers for clusters of so many blocks, whose tiles lie below each other.
  DEVCOMM_HOST_DEVICE constexpr tile_order(const tile_grid& grid, int rank, first_owner first, uint32_t parts = 1,
                                           uint32_t cluster = 1)
      : grid_(grid),
        wide_(grid.of_clusters(cluster)),
        first_(first == first_owner::self ? rank : rank + 1),
        cluster_(cluster) {
    DEVCOMM_ASSERT(rank >= 0 && rank < grid.members(), "the rank of an order of tiles is a member of their grid");
    DEVCOMM_ASSERT(parts > 0, "an order of tiles has at least one part");
    part_ = divide_up(wide_.max_tiles(), parts);
  }

  DEVCOMM_HOST_DEVICE constexpr const tile_grid& grid() const { return grid_; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t cluster() const { return cluster_; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t size() const { return wide_.size(); }

  /// The `i`-th tile. *Requires* `i < size()` and a `cluster` of 1.
  DEVCOMM_HOST_DEVICE constexpr tile operator[](uint32_t i) const {
    DEVCOMM_ASSERT(cluster_ == 1, "an order for clusters of blocks was given to a product that has none");
    return wide_tile(i);
  }
  /// The `i`-th tile of block `block` of a cluster; at the end of a shard it may have no rows.
  DEVCOMM_HOST_DEVICE constexpr tile of_block(uint32_t i, uint32_t block) const {
    tile wide = wide_tile(i);
    const uint32_t before = block * grid_.shape().m;
    if (before < wide.rows) return grid_.holding(wide.row + before, wide.column);
    wide.row += before;
    wide.rows = 0;
    return wide;
  }

 private:
  DEVCOMM_HOST_DEVICE constexpr tile wide_tile(uint32_t i) const {
    const int members = wide_.members();
    uint32_t part = i / (part_ * static_cast<uint32_t>(members));  // or later, as some owners have fewer tiles
    while (before(part + 1) <= i) ++part;
    i -= before(part);
    for (int step = 0; step < members; ++step) {
      const int owner = (first_ + step) % members;
      const uint32_t begin = min_of(part * part_, wide_.tiles_of(owner));
      const uint32_t count = min_of((part + 1) * part_, wide_.tiles_of(owner)) - begin;
      if (i < count) return wide_.at(owner, begin + i);
      i -= count;
    }
    return {};
  }
  /// Tiles of the parts before `part`.
  DEVCOMM_HOST_DEVICE constexpr uint32_t before(uint32_t part) const {
    uint32_t sum = 0;
    for (int owner = 0; owner < wide_.members(); ++owner) sum += min_of(part * part_, wide_.tiles_of(owner));
    return sum;
  }

  tile_grid grid_;
  tile_grid wide_;  // of the tiles of clusters
  int first_;       // owner, may be `members`
  uint32_t cluster_;
  uint32_t part_ = 0;  // tiles of a part, of each owner
};

}  // namespace devcomm::gemm
