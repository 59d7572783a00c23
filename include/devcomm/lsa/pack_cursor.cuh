/// \file pack_cursor.cuh
/// How the threads of a group share the packs that they send through a mailbox.
#pragma once

#include <devcomm/detail/arch/arch.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/lsa/mailboxes.hpp>

namespace devcomm::lsa {

/// A thread's way over packs that each move by themselves: one after the other, a group's size apart. Where a call
/// takes the number of a pack, a cursor stands for the one that it is at.
class thread_cursor {
 public:
  template <class Group>
  DEVCOMM_DEVICE explicit thread_cursor(const Group& group)
      : index_(static_cast<uint32_t>(group.thread_rank())), step_(static_cast<uint32_t>(group.size())) {}

  /// The first of the packs that move together with this one. A cursor over `n` packs ends when it is `n` or more.
  DEVCOMM_DEVICE uint32_t first() const { return index_; }
  /// The pack.
  DEVCOMM_DEVICE uint32_t index() const { return index_; }
  /// Whether the thread has a pack here, and it is one of the first `count`. *Requires* `first() < count`.
  DEVCOMM_DEVICE static constexpr bool is_below(uint32_t) { return true; }
  DEVCOMM_DEVICE void next() { index_ += step_; }
  /// The same place so many packs further on, see `whole`.
  DEVCOMM_DEVICE uint32_t operator+(uint32_t packs) const { return index_ + packs; }
  // NOLINTNEXTLINE(google-explicit-constructor): it is the number
  DEVCOMM_DEVICE operator uint32_t() const { return index_; }

  /// The largest number of packs, up to `packs`, after which others may begin.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t whole(uint32_t packs) { return packs; }

 private:
  uint32_t index_;
  uint32_t step_;
};

/// A lane's way over packs that a warp moves together, in units of 30 packs in four lines of 128 bytes.
///
/// All lanes of a warp go all of the way. 28 of them have 16 bytes of a line for their pack; lanes 7 and 23 have 8,
/// beside a flag, and lanes 15 and 31, which have no pack of their own, the other 8.
///
/// *Requires* that each 32 threads of the group are the lanes of a warp, in order.
class warp_cursor {
 public:
  template <class Group>
  DEVCOMM_DEVICE explicit warp_cursor(const Group& group) {
    detail::whole_warp::check(group);
    unit_ = static_cast<uint32_t>(group.thread_rank()) / detail::arch::warp_threads;
    step_ = static_cast<uint32_t>(group.size()) / detail::arch::warp_threads;
  }

  /// The first pack of the unit. A cursor over `n` packs ends when it is `n` or more.
  DEVCOMM_DEVICE uint32_t first() const { return unit_ * ll128_unit::packs; }
  /// The lane's pack; anything where it has none.
  DEVCOMM_DEVICE uint32_t index() const { return first() + slot(); }
  /// Whether the lane has a pack here, and it is one of the first `count`.
  DEVCOMM_DEVICE bool is_below(uint32_t count) const {
    return detail::arch::lane() % 16 != 15 && first() < count && slot() < count - first();
  }
  DEVCOMM_DEVICE void next() { unit_ += step_; }
  /// The same place so many packs further on. *Requires* whole units, see `whole`.
  DEVCOMM_DEVICE warp_cursor operator+(uint32_t packs) const {
    warp_cursor later = *this;
    later.unit_ += packs / ll128_unit::packs;
    return later;
  }
  /// The unit's first packet.
  DEVCOMM_DEVICE uint32_t packet() const { return unit_ * ll128_unit::packets; }

  /// The largest number of packs, up to `packs`, after which others may begin.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t whole(uint32_t packs) { return packs - packs % ll128_unit::packs; }

 private:
  DEVCOMM_DEVICE static uint32_t slot() { return detail::arch::lane() - detail::arch::lane() / 16; }

  uint32_t unit_;
  uint32_t step_;
};

}  // namespace devcomm::lsa
