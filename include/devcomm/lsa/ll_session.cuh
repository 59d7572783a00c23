/// \file ll_session.cuh
/// LL channels: small messages whose arrival is seen in the data itself, without a barrier.
///
/// Protocol (that of NCCL's LL). A packet is 8 bytes of data as two halves of 4, each beside a flag of 4 in
/// one 8-byte word, which no reader sees torn. The flag is the epoch of the round: a receiver polls a packet
/// until both flags are its own epoch, and then has the data. Nothing is reset and epochs outlive the
/// kernel, so launches and replays of a CUDA graph follow one another as they are.
///
/// *Why no fence is needed*. Data and flag of a half are one word, so neither can be seen without the other.
/// A packet is overwritten two rounds later, as odd and even rounds have rows of their own. By then its
/// reader is done: this group sends in round `r + 2` after its `sync` at the end of round `r + 1`, in which it
/// received from that reader, who sent in `r + 1` after its own `sync` at the end of round `r`, with all of
/// its loads of that round complete, as their values decided how it went on.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/check_team.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/group.cuh>
#include <devcomm/trace_span.cuh>

namespace devcomm::detail {

/// Whether both halves of a packet carry the flag of a round.
DEVCOMM_DEVICE inline bool has_flag(const arch::halves& packet, uint32_t epoch) {
  return (packet.low >> 32 == epoch) & (packet.high >> 32 == epoch);
}

/// The first member in `[first, end)` of which one of the `packets` packets has not arrived, or `first`.
/// `row` is sender 0's place for the first of them, `row_bytes` the distance from one sender's to the next's.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline int first_missing(const char* row, uint64_t row_bytes, int first, int end,
                                                         int packets, uint32_t epoch) {
  for (int member = first; member < end; ++member) {
    for (int p = 0; p < packets; ++p) {
      const char* packet =
          row + static_cast<uint64_t>(member) * row_bytes + p * static_cast<int64_t>(ll_layout::packet_bytes);
      if (!has_flag(arch::load_halves(packet), epoch)) return member;
    }
  }
  return first;
}

}  // namespace devcomm::detail

namespace devcomm::lsa {

/// One group's hold on one LL channel; usually a block's, with the block's index.
///
/// *Collective*: constructor, destructor, `next_round` and `agree` are called by all threads of the group, on
/// every rank of the team, in the same order; `send` and `receive` by any thread. *Requires* that in every
/// round each member sends at least one packet to each member, itself included, and each receives at least
/// one from each; which packets is the caller's affair, the same on all ranks.
///
/// *Failure*: as for `barrier_session`; after it, `receive` returns zeros at once, and from the next round on
/// the whole group sends nothing.
template <class Group>
class ll_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  DEVCOMM_DEVICE ll_session(Group group, const device_comm& comm, ll_handle channels, uint32_t index)
      : ll_session(group, comm, comm.lsa(), channels, index) {}

  /// *Requires* that `members` is part of the LSA team.
  DEVCOMM_DEVICE ll_session(Group group, const device_comm& comm, team members, ll_handle channels, uint32_t index)
      : group_(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(members),
        packets_(channels.packets),
        index_(index),
        stride_(static_cast<int64_t>(comm.resources.stride) * members.stride) {
    DEVCOMM_ASSERT(index < channels.count, "channel index is past the channels that requirements asked for");
    DEVCOMM_ASSERT(static_cast<uint32_t>(members.size) == channels.members,
                   "the channels were made for a team of another size");
    detail::check_team(members, comm);
    const ll_layout layout{channels.count, channels.members, channels.packets};
    char* own = comm.resources.local + channels.offset;
    own_ = reinterpret_cast<uint32_t*>(own + layout.epoch(index));
    epoch_ = detail::arch::load<memory_order::relaxed, scope::device>(own_) + 1;
    mine_ = own + layout.row(index, 0, 0);
    const auto first = static_cast<uint64_t>(members.world_rank(0) - comm.lsa_first);
    theirs_ = comm.resources.base + first * comm.resources.stride + channels.offset +
              layout.row(index, 0, static_cast<uint32_t>(members.rank));
    if (detail::arch::load<memory_order::relaxed, scope::device>(&home_->failures) != 0) failure_ = status::aborted;
  }

  ll_session(const ll_session&) = delete;
  ll_session& operator=(const ll_session&) = delete;

  /// Keeps the epoch for the next session.
  DEVCOMM_DEVICE ~ll_session() noexcept(false) {
    if (detail::arch::unwinding()) return;
    if (group_.thread_rank() == 0) detail::arch::store<memory_order::relaxed, scope::device>(own_, epoch_ - 1);
    group_.sync();
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  DEVCOMM_DEVICE const team& members() const { return members_; }
  /// Packets that each member can send to each in one round.
  DEVCOMM_DEVICE uint32_t capacity() const { return packets_; }

  /// Sends 8 bytes to `member` as packet `packet` of this round. *Ordering*: none for anything else.
  DEVCOMM_DEVICE void send(int member, uint32_t packet, uint64_t data) const {
    DEVCOMM_ASSERT(member >= 0 && member < members_.size, "LL peer is outside the channel's team");
    DEVCOMM_ASSERT(packet < packets_, "LL packet is past the channel's capacity");
    if (failure_ != status::success) return;
    detail::arch::store_halves(theirs_ + member * stride_ + half() + place(packet), halves_of(data));
  }

  /// Sends the same to every member, this rank included, as the `Packets` packets from `packet` on.
  template <int Packets>
  DEVCOMM_DEVICE void send_to_all(uint32_t packet, const uint64_t (&data)[Packets]) const {
    DEVCOMM_ASSERT(packet + Packets <= packets_, "LL packet is past the channel's capacity");
    if (failure_ != status::success) return;
    char* first = theirs_ + half() + place(packet);
    int member = members_.rank;
    DEVCOMM_UNROLL_BY(1)
    for (int sent = 0; sent < members_.size; ++sent) {  // itself last, and not all ranks to one at first
      member = member + 1 < members_.size ? member + 1 : 0;
      DEVCOMM_UNROLL
      for (int p = 0; p < Packets; ++p)
        detail::arch::store_halves(first + member * stride_ + place(p), halves_of(data[p]));
    }
  }

  /// What `Members` members, from `first` on, sent as the `Packets` packets from `packet` on of this round; waits
  /// until all of it has arrived. In the place of members past the team's size it is the last one's again.
  /// *Ordering*: none for anything else. *Requires* that `first` is a member.
  template <int Members, int Packets>
  DEVCOMM_DEVICE void receive(int first, uint32_t packet, uint64_t (&data)[Members][Packets]) {
    DEVCOMM_ASSERT(packet + Packets <= packets_, "LL packet is past the channel's capacity");
    if (failure_ != status::success) return clear(data);
    const trace_span traced(group_, home_, trace_name());
    detail::arch::halves raw[Members][Packets];
    const char* row = mine_ + half() + place(packet);
    const int last = members_.size - 1;
    const auto look = [&] {
      DEVCOMM_UNROLL
      for (int m = 0; m < Members; ++m) {  // all on their way before the first is looked at
        const auto member = static_cast<uint64_t>(first + m < last ? first + m : last);
        DEVCOMM_UNROLL
        for (int p = 0; p < Packets; ++p) raw[m][p] = detail::arch::load_halves(row + member * row_bytes() + place(p));
      }
      bool all = true;
      DEVCOMM_UNROLL
      for (int m = 0; m < Members; ++m) {
        DEVCOMM_UNROLL
        for (int p = 0; p < Packets; ++p) all = all & detail::has_flag(raw[m][p], epoch_);
      }
      return all;
    };
    const auto label = [&]() -> detail::wait_label {
      const int peer = members_.world_rank(missing(first, Members, packet, Packets));
      return {operation::ll_channel, index_, home_->comm.rank, peer, epoch_, home_->comm.timeout, false, epoch_ - 1};
    };
    detail::poll<1>(home_, {false, 0}, label, look, [&](status failure) {
      failure_ = failure;
      const int peer = members_.world_rank(missing(first, Members, packet, Packets));
      detail::report(home_, failure, {operation::ll_channel, index_, peer, epoch_, epoch_ - 1});
    });
    if (failure_ != status::success) return clear(data);
    DEVCOMM_UNROLL
    for (int m = 0; m < Members; ++m) {
      DEVCOMM_UNROLL
      for (int p = 0; p < Packets; ++p) data[m][p] = (raw[m][p].low & 0xffffffffu) | raw[m][p].high << 32;
    }
  }

  /// Ends the round: packets may be sent again.
  DEVCOMM_DEVICE void next_round() {
    const bool dead = detail::any(group_, failure_ != status::success, own_ + 1);
    if (dead && failure_ == status::success) failure_ = status::aborted;
    ++epoch_;
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*:
  /// synchronises the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    const status outcome = detail::agree(group_, failure_, status::timeout, own_ + 1);
    failure_ = outcome;
    return outcome;
  }

 private:
  /// Of a wait in this round.
  DEVCOMM_DEVICE span_name trace_name() const {
    return awaited_span{static_cast<uint32_t>(operation::ll_channel), index_,         0, epoch_,
                        static_cast<uint32_t>(members_.first),        span_kind::wait}
        .pack();
  }
  DEVCOMM_DEVICE detail::arch::halves halves_of(uint64_t data) const {
    const uint64_t flag = uint64_t{epoch_} << 32;
    return {flag | static_cast<uint32_t>(data), flag | data >> 32};
  }
  DEVCOMM_DEVICE uint64_t row_bytes() const { return uint64_t{packets_} * ll_layout::packet_bytes; }
  /// From the rows of even rounds to those of this one.
  DEVCOMM_DEVICE uint64_t half() const { return epoch_ % 2 * static_cast<uint64_t>(members_.size) * row_bytes(); }
  DEVCOMM_DEVICE static uint64_t place(int64_t packet) {
    return static_cast<uint64_t>(packet) * ll_layout::packet_bytes;
  }

  template <int Members, int Packets>
  DEVCOMM_DEVICE static void clear(uint64_t (&data)[Members][Packets]) {
    DEVCOMM_UNROLL
    for (int m = 0; m < Members; ++m) {
      DEVCOMM_UNROLL
      for (int p = 0; p < Packets; ++p) data[m][p] = 0;
    }
  }
  /// The first of `count` members from `first` on that lacks one of the packets.
  DEVCOMM_DEVICE int missing(int first, int count, uint32_t packet, int packets) const {
    const int end = first + count < members_.size ? first + count : members_.size;
    return detail::first_missing(mine_ + half() + place(packet), row_bytes(), first, end, packets, epoch_);
  }

  Group group_;
  resource_header* home_;
  team members_;
  uint32_t packets_;
  uint32_t index_;
  int64_t stride_;  // bytes from one member's memory to the next's
  uint32_t* own_;   // epoch, and the word for votes
  char* mine_;      // packets sent to this rank in even rounds, sender 0's first
  char* theirs_;    // this rank's row of even rounds on member 0
  uint32_t epoch_;
  status failure_ = status::success;  // of this thread
};

}  // namespace devcomm::lsa
