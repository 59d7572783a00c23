/// \file session.cuh
/// A block's part in a product that communicates: the launch's epoch, and its flags.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/wait_for_word.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/gemm/flags.hpp>
#include <devcomm/group.cuh>

namespace devcomm::gemm {

/// The flags, as a thread of this launch uses them; see flags.hpp for the protocol. Trivially copyable: parts of a
/// block that work apart have a copy each, or make their own.
class flag_access {
 public:
  DEVCOMM_DEVICE flag_access(const device_comm& comm, flag_handle flags)
      : home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(comm.lsa()),
        base_(comm.resources.base + flags.offset),
        stride_(comm.resources.stride),
        layout_{flags.count, flags.max_blocks} {
    comm.check_owner(flags);
    DEVCOMM_ASSERT(static_cast<uint32_t>(members_.size) == flags.members,
                   "the flags were made for a team of another size: give gemm::flags the LSA team");
    DEVCOMM_ASSERT_OF(arch::grid_blocks() <= flags.max_blocks, "blocks", arch::grid_blocks(), flags.max_blocks,
                      "the launch has more blocks than the flags were made for; ask for more: "
                      "gemm::flags{team, count, max_blocks}");
    epoch_ = arch::load<memory_order::relaxed, scope::device>(own_epoch(arch::block_rank())) + 1;
  }

  /// Says that what this thread's group wrote to `member` is there. By one thread, after the group has synchronized.
  /// After a failure on this rank does nothing: what was computed from operands that did not arrive is worth nothing.
  /// *Ordering*: release, at system scope.
  DEVCOMM_DEVICE void set(int member, uint32_t flag) const {
    if (!is_dead()) arch::store<memory_order::release, scope::system>(word(member, flag), epoch_);
  }

  /// Waits, as one thread, until `flag` of this rank has been set in this launch. `what`, `index` and the `source` that
  /// sets it, a number as `team::number` gives it, name it in reports. *Ordering*: acquire, at system scope.
  [[nodiscard]] DEVCOMM_DEVICE status wait(operation what, uint32_t index, uint32_t flag, int source,
                                           detail::deadline limit = detail::communicator_timeout()) const {
    const detail::wait_site site{what, index, source, epoch_};
    const uint64_t epoch = epoch_;
    return detail::wait_for_word(
        home_, site, word(members_.rank, flag), [epoch](uint64_t seen) { return seen >= epoch; }, memory_order::acquire,
        limit);
  }

  /// Whether a wait of this rank has failed.
  [[nodiscard]] DEVCOMM_DEVICE bool is_dead() const { return detail::is_aborted(home_); }
  /// Of this launch; the first one has 1.
  [[nodiscard]] DEVCOMM_DEVICE uint64_t epoch() const { return epoch_; }
  /// The LSA team.
  [[nodiscard]] DEVCOMM_DEVICE const team& members() const { return members_; }

 protected:
  [[nodiscard]] DEVCOMM_DEVICE uint64_t* own_epoch(uint32_t block) const {
    return reinterpret_cast<uint64_t*>(on(members_.rank) + layout_.epoch(block));
  }

  resource_header* home_;
  team members_;
  char* base_;  // of the flags, on member 0
  uint64_t stride_;
  flag_layout layout_;
  uint64_t epoch_;

 private:
  [[nodiscard]] DEVCOMM_DEVICE char* on(int member) const { return base_ + static_cast<uint64_t>(member) * stride_; }
  [[nodiscard]] DEVCOMM_DEVICE uint64_t* word(int member, uint32_t flag) const {
    DEVCOMM_ASSERT_OF(flag < layout_.count, "flag", flag, layout_.count, "the flags were made for a smaller problem");
    return reinterpret_cast<uint64_t*>(on(member) + layout_.flag(flag));
  }
};

/// A block's use of the flags, for the whole launch: keeps the epoch for the next one.
///
///     gemm::session session{block{}, comm, flags};
///
/// *Collective*: all threads of all blocks of the grid make it, on every rank of the LSA team, once in a launch that
/// uses the flags, and end it when they have done all that needs them.
///
/// *Blocks*: at most `flag_handle::max_blocks`, and all of them resident at once: blocks wait for others of the grid.
/// Grids may differ from launch to launch.
///
/// *Requires*, where the launch is a dependent one, that it has waited for the one before, see `wait_for_prior_launch`.
template <class Group>
class session : public flag_access {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  DEVCOMM_DEVICE session(Group group, const device_comm& comm, flag_handle flags)
      : flag_access(comm, flags), group_(group), offset_(flags.offset) {
    arch::begin_session(id());
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  DEVCOMM_DEVICE ~session() noexcept(false) {
    if (arch::unwinding()) return;
    arch::call_session(id(), detail::session_call::end);
    detail::sync_at_end(group_);  // all have read the epoch
    arch::leave_session(id());
    for (uint64_t block = arch::block_rank() + uint64_t{group_.thread_rank()} * arch::grid_blocks();
         block < layout_.max_blocks; block += uint64_t{group_.size()} * arch::grid_blocks())
      arch::store<memory_order::relaxed, scope::device>(own_epoch(static_cast<uint32_t>(block)), epoch_);
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }

 private:
  DEVCOMM_DEVICE auto id() const {
    return [this] {
      return detail::session_id{operation::gemm_session,
                                arch::block_rank(),
                                home_->comm.rank,
                                static_cast<uint32_t>(group_.thread_rank()),
                                static_cast<uint32_t>(group_.size()),
                                home_->comm.resources.base,
                                offset_ + layout_.epoch(arch::block_rank()),
                                true};
    };
  }

  Group group_;
  uint64_t offset_;
};

}  // namespace devcomm::gemm
