/// \file pack_cursor.cuh
/// How the threads of a group share the packs that they send through a mailbox.
///
///     for (auto at = session.cursor(); at.first() < count; at.next())
///       session.send_pack_to_all(at, at.is_below(count) ? produce(at.index()) : pack<T>{});
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/lsa/mailboxes.hpp>

namespace devcomm::lsa {

/// Iterates over packs that threads move one by one: a thread takes every `group.size()`-th pack. Converts to the index
/// of its pack.
class thread_cursor {
 public:
  /// Whether packs move one by one.
  static constexpr bool moves_one = true;

  template <class Group>
  DEVCOMM_DEVICE explicit thread_cursor(const Group& group)
      : index_(static_cast<uint32_t>(group.thread_rank())), step_(static_cast<uint32_t>(group.size())) {}

  /// The first of the packs that move together with this one. A loop over `n` packs ends when it is `n` or more.
  DEVCOMM_DEVICE uint32_t first() const { return index_; }
  /// Index of the pack.
  DEVCOMM_DEVICE uint32_t index() const { return index_; }
  /// Whether the thread has a pack here, and it is one of the first `count`. *Requires* `first() < count`.
  DEVCOMM_DEVICE static constexpr bool is_below(uint32_t) { return true; }
  DEVCOMM_DEVICE void next() { index_ += step_; }
  /// The cursor moved on by `packs` packs, see `whole`.
  DEVCOMM_DEVICE uint32_t operator+(uint32_t packs) const { return index_ + packs; }
  // NOLINTNEXTLINE(google-explicit-constructor): it is the number
  DEVCOMM_DEVICE operator uint32_t() const { return index_; }

  /// The largest count up to `packs` by which a cursor can be moved on.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t whole(uint32_t packs) { return packs; }

 private:
  uint32_t index_;
  uint32_t step_;
};

/// Iterates over packs that a warp moves together, in units of 30 packs in four lines of 128 bytes.
///
/// All lanes of a warp visit the same units. 28 of them have 16 bytes of a line for their pack; lanes 7 and 23 have 8
/// of them beside a flag; lanes 15 and 31 carry the other 8 of those two and have no pack of their own.
///
/// *Requires* that each 32 threads of the group are the lanes of a warp, in order.
class warp_cursor {
 public:
  static constexpr bool moves_one = false;

  template <class Group>
  DEVCOMM_DEVICE explicit warp_cursor(const Group& group) {
    detail::whole_warp::check(group);
    unit_ = static_cast<uint32_t>(group.thread_rank()) / arch::warp_threads;
    step_ = static_cast<uint32_t>(group.size()) / arch::warp_threads;
  }

  /// The first pack of the unit. A loop over `n` packs ends when it is `n` or more.
  DEVCOMM_DEVICE uint32_t first() const { return unit_ * ll128_unit::packs; }
  /// Index of the lane's pack; undefined where it has none.
  DEVCOMM_DEVICE uint32_t index() const { return first() + slot(); }
  /// Whether the lane has a pack here, and it is one of the first `count`.
  DEVCOMM_DEVICE bool is_below(uint32_t count) const {
    return arch::lane() % 16 != 15 && first() < count && slot() < count - first();
  }
  DEVCOMM_DEVICE void next() { unit_ += step_; }
  /// The cursor moved on by `packs` packs. *Requires* whole units, see `whole`.
  DEVCOMM_DEVICE warp_cursor operator+(uint32_t packs) const {
    warp_cursor later = *this;
    later.unit_ += packs / ll128_unit::packs;
    return later;
  }
  /// The unit's first packet.
  DEVCOMM_DEVICE uint32_t packet() const { return unit_ * ll128_unit::packets; }

  /// The largest count up to `packs` by which a cursor can be moved on.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t whole(uint32_t packs) { return packs - packs % ll128_unit::packs; }

 private:
  DEVCOMM_DEVICE static uint32_t slot() { return arch::lane() - arch::lane() / 16; }

  uint32_t unit_;
  uint32_t step_;
};

}  // namespace devcomm::lsa
