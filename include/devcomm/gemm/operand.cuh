/// \file operand.cuh
/// An operand that is gathered while it is used: chunks of it go to the peers, and a gate before each tile's loads.
#pragma once

#include <devcomm/data/copy.cuh>
#include <devcomm/gemm/session.cuh>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/team.hpp>

namespace devcomm::gemm {

/// How A, whose rows are sharded as `tile_grid::by_rows` says, is cut into the chunks by which it arrives: each is
/// `rows` rows of one shard by `k` columns, less at the ends. There is a flag for each.
class operand_chunks {
 public:
  /// *Requires* that `k` is a multiple of the `k` of tiles, or at least all of K.
  DEVCOMM_HOST_DEVICE constexpr operand_chunks(const tile_grid& grid, uint32_t rows, uint32_t k)
      : grid_(grid), rows_(rows), k_(k) {
    DEVCOMM_ASSERT(rows > 0 && k > 0, "a chunk of an operand has at least one row and one column");
    DEVCOMM_ASSERT(k % grid.shape().k == 0 || k >= grid.problem().k,
                   "a chunk of an operand has whole steps of K: a multiple of tile_shape::k");
    in_shard_ = divide_up(grid.shard_rows(), rows);
    in_row_ = divide_up(grid.problem().k, k);
  }

  DEVCOMM_HOST_DEVICE constexpr const tile_grid& grid() const { return grid_; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t rows() const { return rows_; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t k() const { return k_; }
  /// Chunks of a shard, and of all.
  DEVCOMM_HOST_DEVICE constexpr uint32_t of_shard() const { return in_shard_ * in_row_; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t count() const { return of_shard() * static_cast<uint32_t>(grid_.members()); }
  /// The number of a chunk: the `row_chunk`-th of `owner`'s shard, the `k_chunk`-th along K.
  DEVCOMM_HOST_DEVICE constexpr uint32_t number(int owner, uint32_t row_chunk, uint32_t k_chunk) const {
    return static_cast<uint32_t>(owner) * of_shard() + row_chunk * in_row_ + k_chunk;
  }
  /// Chunk `i` of `owner`'s shard: its rows and columns of A.
  DEVCOMM_HOST_DEVICE constexpr tile at(int owner, uint32_t i) const {
    const uint32_t end = grid_.first_row(owner + 1);
    const uint32_t row = min_of(grid_.first_row(owner) + i / in_row_ * rows_, end);
    const uint32_t column = i % in_row_ * k_;
    return {row, column, min_of(rows_, end - row), min_of(k_, grid_.problem().k - column), owner, i};
  }

  /// In checked mode, refuses a grid of other members than `team`.
  DEVCOMM_HOST_DEVICE constexpr void check([[maybe_unused]] const devcomm::team& team) const {
    DEVCOMM_ASSERT(grid_.members() == team.size,
                   "the members of the grid of a gathered operand are those of the LSA team: comm.lsa().size");
  }

 private:
  tile_grid grid_;
  uint32_t rows_;
  uint32_t k_;
  uint32_t in_shard_ = 0;  // chunks side by side in a shard's rows
  uint32_t in_row_ = 0;    // and along K
};

/// Keeps the loads of operands back until what they load has arrived.
///
///     gemm::gate gate{thread{}, session, chunks};  // in the thread that issues TMA loads
///     for (uint32_t k = 0; k < chunks.grid().problem().k; k += shape.k) {
///       gate.wait(tile, k);
///       load(tile, k);
///     }
///
/// *Collective* over its group: the threads that load. This rank's own shard lies in place before the launch, and is
/// not waited for.
///
/// *Ordering*: what the sender wrote of a chunk, before what the group loads after the wait, by loads and by bulk and
/// tensor copies alike. The flag's acquire pairs with the sender's release; a fence of proxies in each thread of the
/// group makes it hold for copies that this thread issues.
///
/// *Failure*: as for `lsa::barrier_session`: after the communicator's timeout leaves a record that names the chunk and
/// its rank, and ends this rank's other waits; later waits return immediately. What is loaded then is undefined, and
/// nothing that is computed from it is published.
template <class Group>
class gate {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  DEVCOMM_DEVICE gate(Group group, const flag_access& flags, const operand_chunks& chunks)
      : group_(group), flags_(flags), chunks_(chunks) {
    chunks.check(flags.members());
  }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  /// Waits for what a step of `tile_shape::k` columns from column `k` on needs of A's rows in `t`.
  DEVCOMM_DEVICE void wait(const tile& t, uint32_t k) {
    for_each_chunk(t, k, [&](uint32_t chunk, int owner) {
      if (group_.thread_rank() == 0 && mine_ == status::success)
        mine_ = poll(chunk, owner, detail::communicator_timeout());
      group_.sync();
      arch::fence_async();
      return true;
    });
  }

  /// `wait`, for `limit` and a little more for each chunk, see `lsa::barrier_session::wait_for`. The outcome is the
  /// same for all threads of the group. After `status::timeout` nothing is recorded, and the wait may be repeated.
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(const tile& t, uint32_t k, nanoseconds limit) {
    static_assert(detail::can_vote<Group>,
                  "a gate with a deadline needs a group with any(bool), such as thread or warp");
    status outcome =
        detail::agree(group_, mine_ == status::success ? mine_ : status::aborted, status::aborted, nullptr);
    for_each_chunk(t, k, [&](uint32_t chunk, int owner) {
      if (group_.thread_rank() == 0 && outcome == status::success) outcome = poll(chunk, owner, detail::within(limit));
      outcome = detail::agree(group_, outcome, status::aborted, nullptr);
      if (outcome == status::aborted) mine_ = outcome;
      arch::fence_async();
      return outcome == status::success;
    });
    return outcome;
  }

 private:
  [[nodiscard]] DEVCOMM_DEVICE status poll(uint32_t chunk, int owner, detail::deadline limit) const {
    return flags_.wait(operation::gemm_operand, chunk, chunk, flags_.members().number(owner), limit);
  }

  /// Calls `open` with the chunks that are not known to have arrived, while it returns true.
  template <class Open>
  DEVCOMM_DEVICE void for_each_chunk(const tile& t, uint32_t k, Open open) {
    if (t.owner == flags_.members().rank || t.rows == 0) return;
    const uint32_t before = t.row - chunks_.grid().first_row(t.owner);
    const uint32_t last = (before + t.rows - 1) / chunks_.rows();
    for (uint32_t row = before / chunks_.rows(); row <= last; ++row) {
      const uint32_t chunk = chunks_.number(t.owner, row, k / chunks_.k());
      if (is_open(chunk)) continue;
      if (!open(chunk, t.owner)) return;
      latest_ = chunk;
      if (chunk < remembered) open_ |= uint64_t{1} << chunk;
    }
  }
  /// Of the chunks past those that are remembered, the latest is, which most steps need again.
  [[nodiscard]] DEVCOMM_DEVICE bool is_open(uint32_t chunk) const {
    return chunk == latest_ || (chunk < remembered && (open_ >> chunk & 1) != 0);
  }

  static constexpr uint32_t remembered = 64;

  Group group_;
  flag_access flags_;
  operand_chunks chunks_;
  uint64_t open_ = 0;  // of the first chunks, those that have arrived
  uint32_t latest_ = ~0u;
  status mine_ = status::success;  // of thread 0, why this rank's waits have ended; of others, what was agreed
};

/// Stores this rank's shard of A to all peers, chunk by chunk: first to the rank before, which computes this shard next
/// to its own, then to the one before that.
///
/// *Collective* over its group, which is usually a block that computes no tiles. `index` of the LSA barrier: one for
/// each group of senders, the same on all ranks.
///
/// *Ordering*: stores to a peer when its launch has begun, see `lsa::at_launch`, so what used its operand before is
/// over; then sets the chunk's flag (release).
template <class Group>
class operand_sender {
 public:
  DEVCOMM_DEVICE operand_sender(Group group, const device_comm& comm, const flag_access& flags,
                                const operand_chunks& chunks, uint32_t index)
      : barrier_(group, comm.with_launch_key(launch_key_of(comm.launch_key, chunks.grid())), index),
        flags_(flags),
        chunks_(chunks) {
    chunks.check(flags.members());
    barrier_.arrive(lsa::at_launch);
  }

  /// Sends part `part` of `parts` of this rank's shard of `operand`, which is A, `m` rows of `k` elements, on every
  /// rank. Once.
  template <class T>
  DEVCOMM_DEVICE void send(const sym_ptr<T>& operand, uint32_t part, uint32_t parts) {
    barrier_.wait(lsa::at_launch);
    if (barrier_.agree() != status::success) return;
    const team& ranks = flags_.members();
    const uint64_t row_elements = chunks_.grid().problem().k;
    for (int distance = 1; distance < ranks.size; ++distance) {
      const int peer = (ranks.rank + ranks.size - distance) % ranks.size;
      for (uint32_t i = part; i < chunks_.of_shard(); i += parts) {
        const tile chunk = chunks_.at(ranks.rank, i);
        const uint64_t first = chunk.row * row_elements + chunk.column;
        if (chunk.columns == row_elements) {
          copy(barrier_.group(), operand.lsa(peer) + first, operand.local() + first, chunk.rows * row_elements);
        } else {
          for (uint32_t row = 0; row < chunk.rows; ++row)
            copy(barrier_.group(), operand.lsa(peer) + first + row * row_elements,
                 operand.local() + first + row * row_elements, chunk.columns);
        }
        barrier_.group().sync();
        if (barrier_.group().thread_rank() == 0) flags_.set(peer, chunks_.number(ranks.rank, 0, 0) + i);
      }
    }
  }

 private:
  lsa::barrier_session<Group> barrier_;
  flag_access flags_;
  operand_chunks chunks_;
};

}  // namespace devcomm::gemm
