/// \file partials.hpp
/// Where ranks store their tiles of a product to be summed: how to ask for the memory, and how it is laid out.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/config.hpp>
#include <devcomm/gemm/flags.hpp>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::gemm {

/// Plain data; pass it to the kernel.
template <class T>
struct partial_handle {
  flag_handle flags;
  buffer_handle<T> tiles;
  uint32_t owned;   ///< tiles of one owner, at most
  uint32_t owners;  ///< members of the grid
  uint32_t stride;  ///< elements from a row of a tile to the next
  uint32_t rows;    ///< of a tile

  /// In checked mode, refuses a grid that it has no room for.
  DEVCOMM_HOST_DEVICE constexpr void check([[maybe_unused]] const tile_grid& grid) const {
    DEVCOMM_ASSERT(owners == 1 || owners == flags.members,
                   "the members of a grid are those of the LSA team: comm.lsa().size, or one");
    DEVCOMM_ASSERT(
        static_cast<uint32_t>(grid.members()) == owners && grid.shape().m == rows && grid.shape().n <= stride,
        "the memory for tiles was made for a grid of other members or another tile shape");
    DEVCOMM_ASSERT_OF(grid.max_tiles() <= owned, "tiles", grid.max_tiles(), owned,
                      "the memory for tiles was made for a smaller problem: give gemm::partial_tiles the largest grid");
  }

  DEVCOMM_HOST_DEVICE constexpr uint64_t tile_elements() const { return uint64_t{stride} * rows; }
  /// The first element of `source`'s tile `index`, from the start of the buffer.
  DEVCOMM_HOST_DEVICE constexpr uint64_t first(int source, uint32_t index) const {
    return (uint64_t{static_cast<uint32_t>(source)} * owned + index) * tile_elements();
  }
  /// Says that `source`'s tile `index` is at its owner.
  DEVCOMM_HOST_DEVICE constexpr uint32_t tile_flag(int source, uint32_t index) const {
    return index * flags.members + static_cast<uint32_t>(source);
  }
  /// The number of `owner`'s tile `index` among the tiles of all owners.
  DEVCOMM_HOST_DEVICE constexpr uint32_t number(int owner, uint32_t index) const {
    return static_cast<uint32_t>(owner) * owned + index;
  }
  /// Says that the sum of `owner`'s tile `index` is in the output of this rank.
  DEVCOMM_HOST_DEVICE constexpr uint32_t result_flag(int owner, uint32_t index) const {
    return owned * flags.members + number(owner, index);
  }
};

/// Asks for what a reduce-scatter or all-reduce of a product needs on each rank: memory for the tiles of all ranks that
/// this rank sums, as elements of `T`, and their flags:
///
///     const auto grid = gemm::tile_grid::by_rows(problem, shape, comm.lsa().size);
///     const auto partials = needs.add(gemm::partial_tiles<__nv_bfloat16>{comm.lsa(), grid, blocks});
///
/// Launches may have smaller problems with the same shape of tiles and members. With a grid of one member each rank
/// sums all tiles: `members * m * n` elements. Otherwise it is `m * n`, and as much as fills up the last tiles.
template <class T>
struct partial_tiles {
  team members;  ///< the LSA team
  tile_grid grid;
  uint32_t max_blocks;

  DEVCOMM_HOST_DEVICE constexpr partial_handle<T> add_to(requirements& needs) const {
    constexpr uint32_t in_pack = 16 / sizeof(T);
    const auto ranks = static_cast<uint32_t>(members.size);
    const auto owners = static_cast<uint32_t>(grid.members());
    partial_handle<T> made{};
    made.owned = grid.max_tiles();
    made.owners = owners;
    made.stride = divide_up(grid.shape().n, in_pack) * in_pack;
    made.rows = grid.shape().m;
    made.flags = needs.add(flags{members, made.owned * (ranks + owners), max_blocks});
    made.tiles = needs.add_buffer<T>(made.first(members.size, 0));
    return made;
  }
};

}  // namespace devcomm::gemm
