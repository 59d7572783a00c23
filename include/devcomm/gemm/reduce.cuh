/// \file reduce.cuh
/// The owner's sum of the tiles that all ranks published.
#pragma once

#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/detail/agree.cuh>
#include <devcomm/gemm/partials.hpp>
#include <devcomm/gemm/session.cuh>
#include <devcomm/gemm/tile_order.hpp>

namespace devcomm::detail {

/// Loads a pack of each of `sources` tiles, a tile `stride` elements behind the other, and sums them in their order.
template <int Sources, class T>
DEVCOMM_DEVICE void sum_packs(const T* first, uint64_t stride, int sources, accumulator_t<T> (&total)[pack<T>::size]) {
  constexpr int at_once = members_at_once<Sources>;
  const int end = Sources != 0 ? Sources : sources;
  DEVCOMM_UNROLL_BY(1)
  for (int source = 0; source < end; source += at_once) {
    arch::vec16 values[at_once];
    DEVCOMM_UNROLL
    for (int s = 0; s < at_once; ++s)
      if (source + s < end) values[s] = arch::load16_streaming(first + static_cast<uint64_t>(source + s) * stride);
    DEVCOMM_UNROLL
    for (int s = 0; s < at_once; ++s) {
      if (source + s >= end) break;
      const pack<T> value = to_pack<T>(values[s]);
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) {
        const auto element = static_cast<accumulator_t<T>>(value[e]);
        total[e] = source + s == 0 ? element : total[e] + element;
      }
    }
  }
}

template <class T, class Group, class Store>
struct tile_sum {
  const Group& group;
  const T* first;
  uint64_t source_stride;
  uint32_t row_stride;
  int sources;
  const gemm::tile& t;
  const Store& store;

  template <int Sources>
  DEVCOMM_DEVICE void run() const {
    constexpr uint32_t size = pack<T>::size;
    const uint32_t in_row = divide_up(t.columns, size);
    DEVCOMM_UNROLL_BY(1)
    for (auto i = static_cast<uint32_t>(group.thread_rank()); i < t.rows * in_row;
         i += static_cast<uint32_t>(group.size())) {
      const uint32_t row = i / in_row;
      const uint32_t column = i % in_row * size;
      accumulator_t<T> total[pack<T>::size];
      sum_packs<Sources, T>(first + uint64_t{row} * row_stride + column, source_stride, sources, total);
      store(t.row + row, t.column + column, static_cast<int>(min_of(size, t.columns - column)), total);
    }
  }
};

template <class T, class Group, class Consume>
struct row_sums {
  const Group& group;
  const T* tiles;
  const gemm::partial_handle<T>& partials;
  const gemm::tile_grid& grid;
  int owner;
  int sources;
  uint32_t first;
  uint32_t rows;
  const Consume& consume;

  template <int Sources>
  DEVCOMM_DEVICE void run() const {
    constexpr uint32_t size = pack<T>::size;
    const uint32_t in_row = grid.problem().n / size;
    const uint32_t in_tile = grid.shape().n / size;
    DEVCOMM_UNROLL_BY(1)
    for (auto i = static_cast<uint32_t>(group.thread_rank()); i < rows * in_row;
         i += static_cast<uint32_t>(group.size())) {
      const uint32_t row = first + i / in_row;
      const uint32_t p = i % in_row;
      const uint64_t in_source = partials.first(0, grid.index_of(owner, row, p / in_tile)) +
                                 uint64_t{row % grid.shape().m} * partials.stride + uint64_t{p % in_tile} * size;
      accumulator_t<T> total[pack<T>::size];
      sum_packs<Sources, T>(tiles + in_source, partials.first(1, 0), sources, total);
      pack<T> sums;
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) sums[e] = static_cast<T>(total[e]);
      consume(uint64_t{row} * in_row + p, sums);
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::gemm {

/// Sums tiles that this rank owns, or all tiles where the grid has one member.
///
///     gemm::reducer reducer{block{}, comm, session, partials};
///     for (uint32_t i = blockIdx.x; i < grid.tiles_of(rank); i += gridDim.x)
///       reducer.reduce(grid.at(rank, i), gemm::to_matrix{output, ld});
///
/// By all blocks after their last tile; or by blocks or warps of their own, while others compute: then the last sum
/// comes shortly after the last tile.
///
/// *Collective* over its group, which has a member `any`. Each tile is reduced by one group.
///
/// Elements are summed in the order of the ranks, in `accumulator_t<T>`, and rounded once: the same bits in every run,
/// and those of `collective::reduce_scatter` of the same tiles.
///
/// *Failure*: as for `lsa::barrier_session`; the record names the tile and the rank that did not publish it. `reduce`
/// then stores nothing.
template <class T, class Group>
class reducer {
  static_assert(detail::is_same<accumulator_t<T>, float>, "tiles are float, or of a type that accumulates in float");
  static_assert(detail::can_vote<Group>, "a reducer needs a group with any(bool), such as devcomm::block");

 public:
  DEVCOMM_DEVICE reducer(Group group, const device_comm& comm, const flag_access& flags,
                         const partial_handle<T>& partials)
      : group_(group), flags_(flags), partials_(partials), tiles_(comm.buffer(partials.tiles).local()) {}
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;

  /// Waits for all ranks' tile `t`, sums, and calls `store(row, column, count, sums)` for up to 16 bytes of a row at a
  /// time: `count` elements of C from there on, in an array that `store` may change. Returns whether all came.
  template <class Store>
  DEVCOMM_DEVICE bool reduce(const tile& t, const Store& store) {
    if (wait(t, detail::communicator_timeout()) != status::success) return false;
    sum(t, store);
    return true;
  }
  /// `reduce`, where the tiles come within `limit` and a little more, see `lsa::barrier_session::wait_for`. After
  /// `status::timeout` nothing is stored or recorded, and the call may be repeated.
  template <class Store>
  [[nodiscard]] DEVCOMM_DEVICE status reduce_for(const tile& t, const Store& store, nanoseconds limit) {
    const status outcome = wait(t, detail::within(limit));
    if (outcome == status::success) sum(t, store);
    return outcome;
  }

  /// The same for whole rows, `rows` of those that this rank owns from `first` on, counted from the first that it owns:
  /// waits for all tiles that have some of them, and calls `consume(i, pack)` with each pack of the sums, rounded, as
  /// collectives do. `i` counts packs from the first row that it owns. For what needs whole rows, as
  /// `collective::norm_rows`.
  ///
  /// *Requires* a grid with `owns_rows()`, and `n`, of the problem and of tiles, that fill whole packs.
  template <class Consume>
  DEVCOMM_DEVICE bool reduce_rows(const tile_grid& grid, uint32_t first, uint32_t rows, const Consume& consume) {
    DEVCOMM_ASSERT(grid.owns_rows(), "the owners of this grid have no whole rows: take by_rows, or one member");
    DEVCOMM_ASSERT(grid.problem().n % pack<T>::size == 0 && grid.shape().n % pack<T>::size == 0,
                   "rows that are summed as a whole, and those of tiles, fill whole packs of 16 bytes");
    const int owner = grid.members() == 1 ? 0 : flags_.members().rank;
    const uint32_t height = grid.shape().m;
    const uint32_t in_row = grid.tiles_in_row();
    const uint32_t top = first / height;  // row of tiles
    const uint32_t deep = rows == 0 ? 0 : (first + rows - 1) / height - top + 1;
    const auto index_of = [&](uint32_t i) { return grid.index_of(owner, (top + i / in_row) * height, i % in_row); };
    if (wait(deep * in_row, index_of, detail::communicator_timeout()) != status::success) return false;
    const detail::row_sums<T, Group, Consume> body{group_, tiles_, partials_, grid, owner, flags_.members().size,
                                                   first,  rows,   consume};
    detail::with_ranks(flags_.members().size, body);
    return true;
  }

  /// Says to all ranks that this rank has stored the sum of its tile `t` to their outputs, see `to_matrices`. After
  /// `reduce`.
  DEVCOMM_DEVICE void set_result(const tile& t) const {
    group_.sync();
    const team& ranks = flags_.members();
    for (auto m = static_cast<int>(group_.thread_rank()); m < ranks.size; m += static_cast<int>(group_.size()))
      if (m != ranks.rank) flags_.set(m, partials_.result_flag(ranks.rank, t.index));
  }

  /// Waits for part `part` of `parts` of the results that the other owners store to this rank, each thread for some of
  /// them. All parts together, by any groups, and the end of the launch make the output complete.
  DEVCOMM_DEVICE void wait_for_results(const tile_grid& grid, uint32_t part, uint32_t parts) {
    const uint64_t first = uint64_t{part} * group_.size() + group_.thread_rank();
    const uint64_t step = uint64_t{parts} * group_.size();
    status mine = mine_;
    for (int owner = 0; owner < grid.members(); ++owner) {
      if (owner == flags_.members().rank) continue;
      for (uint64_t i = first; i < grid.tiles_of(owner) && mine == status::success; i += step) {
        const auto index = static_cast<uint32_t>(i);
        mine = flags_.wait(operation::gemm_result, partials_.number(owner, index), partials_.result_flag(owner, index),
                           flags_.members().number(owner));
      }
    }
    group_.sync();
  }

 private:
  /// Waits for all ranks' tile `index_of(i)`, for each `i < tiles`.
  template <class IndexOf>
  DEVCOMM_DEVICE status wait(uint32_t tiles, const IndexOf& index_of, detail::deadline limit) {
    status mine = mine_;
    const auto members = static_cast<uint32_t>(flags_.members().size);
    DEVCOMM_UNROLL_BY(1)
    for (auto i = static_cast<uint32_t>(group_.thread_rank()); i < tiles * members;
         i += static_cast<uint32_t>(group_.size())) {
      const uint32_t index = index_of(i / members);
      const auto source = static_cast<int>(i % members);
      if (mine == status::success)
        mine = flags_.wait(operation::gemm_tile, index, partials_.tile_flag(source, index),
                           flags_.members().number(source), limit);
    }
    const status outcome = detail::agree(group_, mine, limit.own ? status::aborted : status::timeout, nullptr);
    if (outcome != status::success && !(outcome == status::timeout && limit.own)) mine_ = status::aborted;
    return outcome;
  }
  DEVCOMM_DEVICE status wait(const tile& t, detail::deadline limit) {
    return wait(
        1, [&](uint32_t) { return t.index; }, limit);
  }

  template <class Store>
  DEVCOMM_DEVICE void sum(const tile& t, const Store& store) const {
    const int sources = flags_.members().size;
    const detail::tile_sum<T, Group, Store> body{
        group_, tiles_ + partials_.first(0, t.index), partials_.first(1, 0), partials_.stride, sources, t, store};
    detail::with_ranks(sources, body);
  }

  Group group_;
  flag_access flags_;
  partial_handle<T> partials_;
  const T* tiles_;
  status mine_ = status::success;  // the same for all threads of the group
};

}  // namespace devcomm::gemm
