/// \file ll128_session.cuh
/// LL128 mailboxes: messages of any type at 15/16 of the link's bytes, where links keep lines whole.
///
/// Protocol (that of NCCL's LL128). A line of 128 bytes is 120 bytes of data and a flag of 8, the epoch of the round.
/// Eight lanes of a warp store a line, 16 bytes each, by one instruction; a warp stores four. The receiver, a warp too,
/// loads four lines by one instruction until each carries the round's epoch in its flag, and then has the data.
///
/// *Why no fence is needed*. It rests on hardware, not on PTX, which promises nothing beyond single words: GPUs from
/// Volta on make one request of the 128 bytes that a warp stores to a line, NVLink and the memory behind it keep it
/// whole, and a warp's load of the line is one access. So whoever sees a line's flag also sees its data. PCIe cuts
/// lines into parts that arrive in any order, and so may a switch between GPUs of two kinds: there the host library
/// makes no LL128 mailboxes and says why (`properties::ll128`). Lines are only ever overwritten by their sender;
/// lsa/detail/packet_session.cuh says why that is not too early.
///
/// *Limit*. Epochs come again after 2^32 rounds, as those of `ll_session`.
#pragma once

#include <devcomm/data/pack.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/group.cuh>
#include <devcomm/lsa/detail/packet_session.cuh>
#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/lsa/pack_cursor.cuh>

namespace devcomm::detail {

struct ll128_protocol {
  static constexpr packet_protocol id = packet_protocol::ll128;
  using lane_group = whole_warp;
  static constexpr int packets_a_flag = 8;
  static constexpr bool once_a_launch = false;

  /// Lanes 7, 15, 23 and 31 store and load the flags.
  DEVCOMM_DEVICE static bool has_flag() { return arch::lane() % packets_a_flag == packets_a_flag - 1; }
  DEVCOMM_DEVICE static bool is_second() { return arch::lane() % 16 == 15; }
  /// Whether what this lane has loaded says that its line has not arrived.
  DEVCOMM_DEVICE static bool is_missing(const arch::vec16& words, uint32_t epoch) {
    return has_flag() & (words.z != epoch);
  }
  /// `packet`: the first of a line.
  DEVCOMM_DEVICE static bool has_arrived(const char* packet, uint32_t epoch) {
    const auto* flag =
        reinterpret_cast<const uint64_t*>(packet + packets_a_flag * lsa::mailbox_layout::packet_bytes) - 1;
    return arch::load<memory_order::relaxed, scope::system>(flag) == epoch;
  }
  DEVCOMM_DEVICE static void end_round() {}

  /// What this lane stores for the packs that the lanes of its warp hold. Lanes with flags share a pack with lane ^ 8.
  DEVCOMM_DEVICE static arch::vec16 encode(const arch::vec16& data, uint32_t epoch) {
    const uint64_t other = swap(data.z, data.w);
    if (!has_flag()) return data;
    return {is_second() ? static_cast<uint32_t>(other) : data.x,
            is_second() ? static_cast<uint32_t>(other >> 32) : data.y, epoch, 0};
  }
  /// This lane's pack of the lines that its warp has loaded; zeros in lanes that have none.
  DEVCOMM_DEVICE static arch::vec16 decode(const arch::vec16& words) {
    const uint64_t other = swap(words.x, words.y);
    if (!has_flag()) return words;
    if (is_second()) return {0, 0, 0, 0};
    return {words.x, words.y, static_cast<uint32_t>(other), static_cast<uint32_t>(other >> 32)};
  }

 private:
  /// Two words of lane ^ 8.
  DEVCOMM_DEVICE static uint64_t swap(uint32_t low, uint32_t high) {
    return arch::shuffle_wide(arch::full_mask, low | uint64_t{high} << 32, arch::lane() ^ 8);
  }
};

/// Whether 32 threads of `Group` may be the lanes of a warp.
template <class Group>
inline constexpr bool may_hold_warps = !is_same<Group, thread>;
template <int Size>
inline constexpr bool may_hold_warps<tile<Size>> = Size == 32;

}  // namespace devcomm::detail

namespace devcomm::lsa {

/// A group's use of one LL128 mailbox; usually a block's, with the block's index.
///
/// *Collective*, *Failure*: as for `ll_session`; what sends and receives is called by all lanes of a warp together,
/// with cursors at the same unit. *Requires* that each 32 threads of the group are the lanes of a warp, in order.
///
///     for (auto at = mailbox.cursor(); at.first() < count; at.next())
///       mailbox.send_pack_to_all(at, at.is_below(count) ? produce(at.index()) : pack<T>{});
template <class Group>
class ll128_session : public detail::packet_session<detail::ll128_protocol, Group> {
  using base = detail::packet_session<detail::ll128_protocol, Group>;
  using protocol = detail::ll128_protocol;
  static_assert(detail::may_hold_warps<Group>,
                "an LL128 mailbox needs a group of whole warps, such as block, warp_span or warp; use an LL mailbox");

 public:
  DEVCOMM_DEVICE ll128_session(Group group, const device_comm& comm, ll128_handle mailboxes, uint32_t index)
      : ll128_session(group, comm, comm.lsa(), mailboxes, index) {}

  /// *Requires* that `members` is part of the LSA team.
  DEVCOMM_DEVICE ll128_session(Group group, const device_comm& comm, team members, ll128_handle mailboxes,
                               uint32_t index)
      : base(group, comm, members, mailboxes, index) {
    DEVCOMM_ASSERT(mailboxes.packets % ll128_unit::packets == 0, "LL128 mailboxes hold whole units of 32 packets");
  }

  template <class T>
  static constexpr bool can_carry = true;
  /// Packets that make room for `packs` packs from each member to each in a round: an even number of units, so that
  /// half of the mailbox is whole units as well.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t packets_for(uint32_t packs) { return ll128_unit::packets_for(packs); }

  DEVCOMM_DEVICE uint32_t pack_capacity() const { return this->capacity() / ll128_unit::packets * ll128_unit::packs; }
  /// Iterates over this thread's packs of a round.
  DEVCOMM_DEVICE warp_cursor cursor() const { return warp_cursor(this->group()); }

  /// Sends the packs of the unit at `at` to `member`. *Ordering*: none for anything else.
  template <class T>
  DEVCOMM_DEVICE void send_pack(int member, const warp_cursor& at, const pack<T>& value) const {
    this->check(member, at.packet(), ll128_unit::packets);
    if (!this->is_alive()) return;
    const arch::vec16 words = protocol::encode(detail::to_vec16(value), this->epoch());
    arch::join_warp();
    arch::store_lines(this->outgoing(member, packet_of(at)), words);
  }

  /// Sends to every member, this rank included. `Ranks` is the team's size, or 0 where it is not known.
  template <int Ranks = 0, class T>
  DEVCOMM_DEVICE void send_pack_to_all(const warp_cursor& at, const pack<T>& value) const {
    this->check(0, at.packet(), ll128_unit::packets);
    if (!this->is_alive()) return;
    const arch::vec16 words = protocol::encode(detail::to_vec16(value), this->epoch());
    arch::join_warp();
    this->template for_each_outgoing<Ranks>(packet_of(at), [&](char* packet) { arch::store_lines(packet, words); });
  }

  /// What the members in `[first, first + Members)` sent as the unit at `at` of this round; waits until all of it has
  /// arrived. For members from `end` on it repeats that of member `end - 1`; lanes without a pack get
  /// zeros. *Ordering*: none for anything else. *Requires* `first < end`.
  template <int Members, class T>
  DEVCOMM_DEVICE void receive_packs(int first, int end, const warp_cursor& at, pack<T> (&values)[Members]) {
    this->check(first, at.packet(), ll128_unit::packets);
    this->check(end - 1, at.packet(), ll128_unit::packets);
    arch::vec16 raw[Members] = {};
    const auto ready = [&] {
      DEVCOMM_UNROLL
      for (int m = 0; m < Members; ++m)  // issue all loads before the first is used
        raw[m] = arch::load_lines(this->incoming(first + m < end ? first + m : end - 1, packet_of(at)));
      bool missing = false;
      DEVCOMM_UNROLL
      for (int m = 0; m < Members; ++m) missing = missing | protocol::is_missing(raw[m], this->epoch());
      return !detail::whole_warp::any(missing);
    };
    arch::join_warp();
    const bool arrived = this->is_alive() && this->wait(first, first + Members < end ? first + Members : end,
                                                        at.packet(), static_cast<int>(ll128_unit::packets), ready);
    if (!arrived) {
      for (pack<T>& value : values) value = {};
      return;
    }
    DEVCOMM_UNROLL
    for (int m = 0; m < Members; ++m) values[m] = detail::to_pack<T>(protocol::decode(raw[m]));
  }

 private:
  /// This lane's.
  DEVCOMM_DEVICE static uint32_t packet_of(const warp_cursor& at) { return at.packet() + arch::lane(); }
};

}  // namespace devcomm::lsa
