/// \file publish.cuh
/// A finished tile goes to the rank that sums it, or to all ranks.
#pragma once

#include <devcomm/data/pack.cuh>
#include <devcomm/gemm/partials.hpp>
#include <devcomm/gemm/session.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/sym_ptr.hpp>

namespace devcomm::gemm {

/// Stores tiles of this rank to their owners, and sets their flags.
///
///     gemm::publisher publisher{group, comm, session, partials, grid};  // the threads that hold a finished tile
///     if (publisher.begin()) {
///       T* const rows = publisher.on(tile.owner, tile);            // rows of publisher.stride() elements
///       ... each thread stores what it holds, as T ...
///     }
///     publisher.end(tile);
///
/// A tile that lies in shared memory as rows of `stride()` elements goes by one bulk copy: `store_shared` in place of
/// `begin`, the stores and `end`.
///
/// *Collective* over its group. `index` of the LSA barrier: one for each group of publishers of the grid, the same on
/// all ranks; by default the block's.
///
/// *Ordering*: `begin` waits, the first time, until all ranks have begun their launches, see `lsa::at_launch`: their
/// memory is free. The flag's release follows the stores of all threads of the group. Each tile is published once.
///
/// *Failure*: as for `lsa::barrier_session`. After a failure on this rank nothing is published: its peers time out,
/// rather than sum what was computed from operands that did not arrive.
template <class T, class Group>
class publisher {
 public:
  using element = T;

  DEVCOMM_DEVICE publisher(Group group, const device_comm& comm, const flag_access& flags,
                           const partial_handle<T>& partials, const tile_grid& grid,
                           uint32_t index = arch::block_rank())
      : barrier_(group, comm.with_launch_key(launch_key_of(comm.launch_key, grid)), index),
        flags_(flags),
        partials_(partials),
        tiles_(comm.buffer(partials.tiles)) {
    partials.check(grid);
    barrier_.arrive(lsa::at_launch);
  }
  publisher(const publisher&) = delete;
  publisher& operator=(const publisher&) = delete;
  DEVCOMM_DEVICE ~publisher() noexcept(false) {
    if (!arch::unwinding() && !met_) barrier_.wait(lsa::at_launch);  // a barrier is left when all have come
  }

  DEVCOMM_DEVICE const Group& group() const { return barrier_.group(); }
  DEVCOMM_DEVICE const team& members() const { return flags_.members(); }
  DEVCOMM_DEVICE uint32_t stride() const { return partials_.stride; }
  /// Where this rank's tile lies on `member`.
  DEVCOMM_DEVICE T* on(int member, const tile& t) const {
    return tiles_.lsa(member) + partials_.first(flags_.members().rank, t.index);
  }

  /// Before the stores of a tile: whether they may begin. The same for all threads of the group.
  [[nodiscard]] DEVCOMM_DEVICE bool begin() {
    if (!met_) {
      barrier_.wait(lsa::at_launch);
      met_ = true;
      alive_ = barrier_.agree() == status::success;
    }
    return alive_;
  }
  /// After the stores to the tile's owner.
  DEVCOMM_DEVICE void end(const tile& t) {
    check_begun();
    group().sync();
    if (alive_ && group().thread_rank() == 0) set(t.owner, t);
  }
  /// After the stores to all members, where the grid has one.
  DEVCOMM_DEVICE void end_on_all(const tile& t) {
    check_begun();
    group().sync();
    if (!alive_) return;
    for (auto m = static_cast<int>(group().thread_rank()); m < flags_.members().size;
         m += static_cast<int>(group().size()))
      set(m, t);
  }

  /// Publishes a tile that lies in shared memory, at a multiple of 16 bytes, to its owner, or to all members where
  /// the grid has one. Returns when the tile has been written: the shared memory may be used again.
  ///
  /// *Requires* a device of compute capability 9.0 or higher.
  DEVCOMM_DEVICE void store_shared(const tile& t, const T* rows) {
    arch::fence_async();  // what this thread wrote there, before the copies
    const bool may_store = begin();
    group().sync();
    if (!may_store || group().thread_rank() != 0) return group().sync();
    const bool to_all = partials_.owners == 1;
    const int first = to_all ? 0 : t.owner;
    const int end = to_all ? flags_.members().size : t.owner + 1;
    const uint32_t bytes = t.rows * stride() * static_cast<uint32_t>(sizeof(T));
    for (int m = first; m < end; ++m) arch::store_bulk(on(m, t), rows, bytes);
    arch::finish_bulk_stores();
    for (int m = first; m < end; ++m) set(m, t);
    group().sync();
  }

 private:
  DEVCOMM_DEVICE void check_begun() const {
    DEVCOMM_ASSERT(met_,
                   "a tile ends that has not begun: call begin() before the stores of each tile, and store only "
                   "where it returns true");
  }
  DEVCOMM_DEVICE void set(int member, const tile& t) const {
    flags_.set(member, partials_.tile_flag(flags_.members().rank, t.index));
  }

  lsa::barrier_session<Group> barrier_;
  flag_access flags_;
  partial_handle<T> partials_;
  sym_ptr<T> tiles_;
  bool met_ = false;  // all ranks have begun
  bool alive_ = false;
};

}  // namespace devcomm::gemm
