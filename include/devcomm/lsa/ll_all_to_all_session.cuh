/// \file ll_all_to_all_session.cuh
/// Small values from any rank to any rank: slots on the receiver that every member may send to, in the LL format.
///
/// Protocol (the contract of NCCL's LL all-to-all sessions). A slot has a line of 16 bytes for each 8 bytes of a value:
/// two words of 8 bytes, each half data and half the epoch. Who waits polls a line until both words carry its own
/// epoch; the load that finds them also brings the data, so data and epoch of a word need no order between them.
///
/// *Why a slot can be written again*. Even and odd epochs have slots of their own. A member sends in epoch `e + 2`
/// after its own `end_epoch` of `e + 1`, and in `e + 1` it received from each member, or from one who had received from
/// that member in it. That member had sent in `e + 1` after its `end_epoch` of `e`, with all of its loads of `e`
/// complete, as their values decided how it went on. So nobody reads what `e` sent any more. "Had received from that
/// member" holds for a value that goes through others only if the member that passes it on sends after it has received
/// it, and after a sync of its group where another thread of it does the one than the other. A receive that is given up
/// breaks the argument, hence `receive_for` is repeated until it succeeds.
///
/// *Wrap-around*. Epochs outlive the kernel, have 32 bits and are never 0, the value of fresh memory; they are compared
/// by equality. An epoch comes again after 2^32 epochs: a slot that nobody sent to in all that time, and that is
/// received from in just the epoch with its old number, would be taken for new.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/group.cuh>
#include <devcomm/lsa/detail/members.cuh>
#include <devcomm/lsa/ll_session.cuh>
#include <devcomm/lsa/ll_slots.hpp>
#include <devcomm/lsa/signals.hpp>

namespace devcomm::lsa {

/// A group's use of one set of slots; usually a block's, with the block's index.
///
/// Unlike an `ll_session`, in which each sender has a row of its own, slots belong to their receiver and any member may
/// send to any of them: who sends to which is the user's own agreement. In each epoch a slot takes one value.
///
///     lsa::ll_all_to_all_session session{block{}, comm, slots, blockIdx.x};
///     for (int i = threadIdx.x; i < n; i += blockDim.x) session.broadcast(me * n + i, input[i]);  // to all members
///     for (int i = threadIdx.x; i < n; i += blockDim.x)
///       output[i] = session.receive_reduce<float>(i, size, n, sum{});                              // of all members
///     session.end_epoch();
///
/// *Collective*: constructor, destructor, `end_epoch` and `agree` are called by all threads of the group, on every
/// member of the team, in the same order; what sends and receives by any thread. *Requires* that in every epoch each
/// member sends to each, and receives that, directly or through others that received it.
///
/// *Ordering*: none for anything but the values.
///
/// *Failure*: as for `barrier_session`. A thread that has seen the failure receives zeros immediately, and from the
/// next epoch on the whole group sends nothing; `agree` returns the outcome. A record names the member that `receive`
/// was given, if any.
template <class Group>
class ll_all_to_all_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  using protocol = detail::ll_protocol;

 public:
  using handle = ll_slots_handle;

  /// Among the members of the LSA team.
  DEVCOMM_DEVICE ll_all_to_all_session(Group group, const device_comm& comm, const handle& slots, uint32_t index)
      : ll_all_to_all_session(group, comm, comm.lsa(), slots, index) {}

  /// *Requires* that `members` is part of the LSA team.
  DEVCOMM_DEVICE ll_all_to_all_session(Group group, const device_comm& comm, const team& members, const handle& slots,
                                       uint32_t index)
      : group_(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(members),
        index_(index),
        layout_{slots.count, slots.slots, slots.lines} {
    detail::check_team(members, comm);
    comm.check_owner(slots);
    DEVCOMM_ASSERT_OF(index < slots.count, "set", index, slots.count,
                      "index is past the sets of slots that requirements asked for; ask for more");
    DEVCOMM_ASSERT(static_cast<uint32_t>(members.size) == slots.members,
                   "the slots were made for a team of another size");
    own_ = comm.resources.local + slots.offset;
    first_ = comm.resources.base + slots.offset +
             static_cast<uint64_t>(members.number(0) - comm.lsa_first) * comm.resources.stride;
    stride_ = static_cast<int64_t>(comm.resources.stride) * members.stride;
    last_ = arch::load<memory_order::relaxed, scope::device>(kept());
    epoch_ = after(last_);
    if (detail::is_aborted(home_)) failure_ = status::aborted;
    arch::begin_session(id());
  }

  ll_all_to_all_session(const ll_all_to_all_session&) = delete;
  ll_all_to_all_session& operator=(const ll_all_to_all_session&) = delete;

  /// Keeps the epoch for the next session. An epoch in which something was sent must have been ended.
  DEVCOMM_DEVICE ~ll_all_to_all_session() noexcept(false) {
    if (arch::unwinding()) return;
    DEVCOMM_ASSERT(!is_used_, "a session ends within an epoch: call end_epoch after the last receive");
    arch::call_session(id(), detail::session_call::end);
    detail::sync_at_end(group_);  // all have read it
    if (group_.thread_rank() == 0) arch::store<memory_order::relaxed, scope::device>(kept(), last_);
    detail::sync_at_end(group_);
    arch::leave_session(id());
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  DEVCOMM_DEVICE const team& members() const { return members_; }
  /// Slots on each member.
  DEVCOMM_DEVICE uint32_t slots() const { return layout_.slots; }
  /// Of what is sent and received; wraps around and is never 0.
  [[nodiscard]] DEVCOMM_DEVICE uint32_t epoch() const { return epoch_; }
  /// Whether this thread has seen no failure: if so, it has received what was sent; otherwise the latest may be zeros.
  [[nodiscard]] DEVCOMM_DEVICE bool is_alive() const { return failure_ == status::success; }

  /// Sends `value` to slot `slot` of `peer`, a member, which may be this rank.
  template <class T>
  DEVCOMM_DEVICE void send(int peer, uint32_t slot, const T& value) {
    check<T>(slot);
    DEVCOMM_ASSERT(peer >= 0 && peer < members_.size, "the peer is outside the session's team");
    if (is_alive()) store(first_ + peer * stride_, slot, value);
  }

  /// Sends `value` to slot `slot` of every member, this rank included: this rank last, and not all ranks to one member
  /// first.
  template <class T>
  DEVCOMM_DEVICE void broadcast(uint32_t slot, const T& value) {
    check<T>(slot);
    if (!is_alive()) return;
    int peer = members_.rank;
    DEVCOMM_UNROLL_BY(1)
    for (int sent = 0; sent < members_.size; ++sent) {
      peer = peer + 1 < members_.size ? peer + 1 : 0;
      store(first_ + peer * stride_, slot, value);
    }
  }

  /// What was sent to slot `slot` of this rank in this epoch; waits until it is there. `from`, the member that is
  /// expected to send, is for reports.
  template <class T>
  [[nodiscard]] DEVCOMM_DEVICE T receive(uint32_t slot, int from = any_peer) {
    T values[1];
    receive(slot, 1, values, from);
    return values[0];
  }

  /// Slots `first`, `first + stride` and so on, `Count` of them, at once.
  template <int Count, class T>
  DEVCOMM_DEVICE void receive(uint32_t first, uint32_t stride, T (&values)[Count], int from = any_peer) {
    static_cast<void>(wait_for_values(first, stride, Count, values, from, detail::communicator_timeout()));
  }

  /// `receive` for `limit` and a little more. The outcome is that of the calling thread alone; after `status::timeout`
  /// nothing is recorded, `value` is unchanged, and the same thread must repeat the call until it succeeds, before the
  /// epoch ends.
  template <class T>
  [[nodiscard]] DEVCOMM_DEVICE status receive_for(uint32_t slot, T& value, nanoseconds limit, int from = any_peer) {
    T values[1] = {value};
    const status outcome = wait_for_values(slot, 1, 1, values, from, detail::within(limit));
    if (outcome == status::success) {
      value = values[0];
      if (late_slot_ == slot + 1) late_slot_ = 0;
    } else if (outcome == status::timeout && late_slot_ == 0 && is_alive()) {
      late_slot_ = slot + 1;
    }
    return outcome;
  }

  /// What was sent to slots `first`, `first + stride` and so on, `count` of them, at least one, reduced in that order.
  template <class T, class Operator>
  [[nodiscard]] DEVCOMM_DEVICE T receive_reduce(uint32_t first, uint32_t count, uint32_t stride, const Operator& op) {
    using accumulator = accumulator_t<T>;
    constexpr int at_once = 4;
    DEVCOMM_ASSERT(count > 0, "a reduction needs at least one slot");
    accumulator total{};
    DEVCOMM_UNROLL_BY(1)
    for (uint32_t begin = 0; begin < count; begin += at_once) {
      T values[at_once];
      const uint32_t left = count - begin;
      static_cast<void>(
          wait_for_values(first + begin * stride, stride, left, values, any_peer, detail::communicator_timeout()));
      DEVCOMM_UNROLL
      for (uint32_t i = 0; i < at_once; ++i) {
        if (i >= left) break;
        const accumulator value = detail::to_accumulator<T>(values[i], op);
        total = begin + i == 0 ? value : op(total, value);
      }
    }
    return detail::from_accumulator<T>(total, static_cast<int>(count), op);
  }

  /// Ends the epoch: what was sent in it has been received, and the next may begin. Synchronizes the group.
  DEVCOMM_DEVICE void end_epoch() {
    DEVCOMM_ASSERT(late_slot_ == 0 || !is_alive(),
                   "an epoch ends before a value that timed out has come: repeat receive_for until it succeeds");
    late_slot_ = 0;
    arch::call_session(id(), detail::session_call::begin_round);
    const bool dead = detail::any(group_, !is_alive(), outcome());
    if (dead && failure_ == status::success) failure_ = status::aborted;
    last_ = epoch_;
    epoch_ = after(epoch_);
    is_used_ = false;
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*: synchronizes
  /// the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    arch::call_session(id(), detail::session_call::agree);
    failure_ = detail::agree(group_, failure_, status::timeout, outcome());
    return failure_;
  }

 private:
  template <class T>
  static constexpr uint32_t lines_of = (sizeof(T) + 7) / 8;

  /// Never 0, and odd after even.
  DEVCOMM_DEVICE static uint32_t after(uint32_t epoch) { return epoch + (epoch == ~0u ? 3 : 1); }
  DEVCOMM_DEVICE uint32_t* kept() const { return reinterpret_cast<uint32_t*>(own_ + layout_.epoch(index_)); }
  DEVCOMM_DEVICE uint32_t* outcome() const { return reinterpret_cast<uint32_t*>(own_ + layout_.outcome(index_)); }
  DEVCOMM_DEVICE auto id() const {
    return [this]() -> detail::session_id {
      const device_comm& comm = home_->comm;
      return {operation::ll_mailbox, index_,   comm.rank, group_.thread_rank(), group_.size(),
              comm.resources.base,   offset(), false};
    };
  }
  /// As `session_id::offset`.
  DEVCOMM_DEVICE uint64_t offset() const {
    return static_cast<uint64_t>(own_ - home_->comm.resources.local) + layout_.epoch(index_);
  }

  template <class T>
  DEVCOMM_DEVICE void check([[maybe_unused]] uint32_t slot) {
    static_assert(detail::is_trivially_copyable<T>, "slots take trivially copyable values");
    DEVCOMM_ASSERT_OF(slot < layout_.slots, "slot", slot, layout_.slots,
                      "the slot is past the slots that requirements asked for; ask for more");
    DEVCOMM_ASSERT(lines_of<T> <= layout_.lines, "the value is larger than the slots that requirements asked for");
    is_used_ = true;
  }

  template <class T>
  DEVCOMM_DEVICE void store(char* there, uint32_t slot, const T& value) const {
    uint64_t words[lines_of<T>] = {};
    detail::copy_bytes(words, &value, sizeof(T));
    char* half = there + layout_.half(index_, epoch_);
    DEVCOMM_UNROLL
    for (uint32_t l = 0; l < lines_of<T>; ++l)
      arch::store_halves(half + layout_.line(slot, l), protocol::encode(words[l], epoch_));
  }

  /// The first `count` of the slots; the other values are undefined. Zeros after a failure.
  template <int Count, class T>
  DEVCOMM_DEVICE status wait_for_values(uint32_t first, uint32_t stride, uint32_t count, T (&values)[Count], int from,
                                        detail::deadline limit) {
    constexpr uint32_t lines = lines_of<T>;
    DEVCOMM_UNROLL
    for (uint32_t i = 0; i < Count; ++i)
      if (i < count) check<T>(first + i * stride);
    DEVCOMM_ASSERT(from == any_peer || (from >= 0 && from < members_.size), "the peer is outside the session's team");
    const char* half = own_ + layout_.half(index_, epoch_);
    arch::halves raw[Count][lines] = {};
    status outcome = failure_ == status::timeout ? status::aborted : failure_;
    const auto wait = [&]() -> detail::wait_site {
      return {operation::ll_mailbox, index_, number(from), epoch_, wait_condition::epoch, 0, index_, offset()};
    };
    const auto label = [&] { return detail::label_of(home_, wait(), limit, last_seen()); };
    if (outcome == status::success) {
      detail::poll<1>(
          home_, limit, label,
          [&] {
            DEVCOMM_UNROLL
            for (uint32_t i = 0; i < Count; ++i) {
              const uint32_t slot = first + (i < count ? i : 0) * stride;
              DEVCOMM_UNROLL
              for (uint32_t l = 0; l < lines; ++l) raw[i][l] = arch::load_halves(half + layout_.line(slot, l));
            }
            bool all = true;
            DEVCOMM_UNROLL
            for (uint32_t i = 0; i < Count; ++i) {
              DEVCOMM_UNROLL
              for (uint32_t l = 0; l < lines; ++l) all = all & protocol::has_flag(raw[i][l], epoch_);
            }
            return all;
          },
          [&](status failure) {
            outcome = failure;
            if (failure == status::timeout && limit.own) return;
            failure_ = failure;
            detail::report(home_, failure, wait(), last_seen());
          });
    }
    DEVCOMM_UNROLL
    for (uint32_t i = 0; i < Count; ++i) {
      uint64_t words[lines];
      DEVCOMM_UNROLL
      for (uint32_t l = 0; l < lines; ++l) words[l] = outcome == status::success ? protocol::decode(raw[i][l]) : 0;
      detail::copy_bytes(&values[i], words, sizeof(T));
    }
    return outcome;
  }
  DEVCOMM_DEVICE int32_t number(int member) const { return member == any_peer ? -1 : members_.number(member); }
  DEVCOMM_DEVICE uint32_t last_seen() const { return epoch_ - 1; }

  Group group_;
  resource_header* home_;
  team members_;
  uint32_t index_;
  ll_slots_layout layout_;
  char* own_;       // this rank's slots
  char* first_;     // those of member 0
  int64_t stride_;  // bytes from one member's memory to the next's
  uint32_t epoch_;
  uint32_t last_;                     // epoch that was ended last
  status failure_ = status::success;  // of this thread
  bool is_used_ = false;              // in this epoch, by this thread
  uint32_t late_slot_ = 0;            // 1 more than the first that timed out and has not been received since
};

}  // namespace devcomm::lsa
