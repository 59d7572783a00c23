/// \file ll_session.cuh
/// LL mailboxes: small messages of any type whose arrival is seen in the data itself, without a barrier.
///
/// Protocol (that of NCCL's LL). A packet is 8 bytes of data as two halves of 4, each beside a flag of 4 in
/// one 8-byte word, which no reader sees torn. The flag is the epoch of the round: a receiver polls a packet
/// until both flags are its own epoch, and then has the data.
///
/// *Why no fence is needed*. Data and flag of a half are one word, so neither can be seen without the other.
/// Packets are only ever overwritten by their sender; lsa/detail/packet_session.cuh says why that is not too early.
///
/// *Limit*. Epochs repeat after 2^32 rounds. A packet that was not written for that long, and is waited for in exactly
/// the round with its epoch, would be mistaken for a new one. Lamport mailboxes have no such limit.
#pragma once

#include <devcomm/data/pack.cuh>
#include <devcomm/lsa/detail/packet_session.cuh>
#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/lsa/pack_cursor.cuh>

namespace devcomm::detail {

struct ll_protocol {
  static constexpr packet_protocol id = packet_protocol::ll;
  using lane_group = one_thread;
  static constexpr int packets_a_flag = 1;
  static constexpr bool once_a_launch = false;

  /// Whether both halves of a packet carry the flag of a round.
  DEVCOMM_DEVICE static bool has_flag(const arch::halves& packet, uint32_t epoch) {
    return (packet.low >> 32 == epoch) & (packet.high >> 32 == epoch);
  }
  DEVCOMM_DEVICE static bool has_arrived(const char* packet, uint32_t epoch) {
    return has_flag(arch::load_halves(packet), epoch);
  }
  DEVCOMM_DEVICE static void end_round() {}

  DEVCOMM_DEVICE static arch::halves encode(uint64_t data, uint32_t epoch) {
    const uint64_t flag = uint64_t{epoch} << 32;
    return {flag | static_cast<uint32_t>(data), flag | data >> 32};
  }
  DEVCOMM_DEVICE static uint64_t decode(const arch::halves& packet) {
    return (packet.low & 0xffffffffu) | packet.high << 32;
  }
};

}  // namespace devcomm::detail

namespace devcomm::lsa {

/// A group's use of one LL mailbox; usually a block's, with the block's index.
///
/// *Collective*: constructor, destructor, `begin_round` and `agree` are called by all threads of the group, on
/// every rank of the team, in the same order; what sends and receives by any thread. *Requires* that in every
/// round each member receives from each, directly or through others that received from it. Which packets
/// are sent is up to the caller, and the same on all ranks.
///
///     lsa::ll_session session{block{}, comm, mailboxes, blockIdx.x};
///     session.begin_round();
///     for (int m = 0; m < session.members().size; ++m) session.send(m, threadIdx.x, value_for(m));
///     uint64_t received[2][1];
///     session.receive(0, session.members().size, threadIdx.x, received);  // from two members
///
/// *Failure*: as for `barrier_session`. A thread that has seen the failure (`is_alive` is false) receives zeros
/// immediately, and from the next round on the whole group sends nothing. In checked mode, a checked launch or call
/// of a collective that differs from a member's whose packets are waited for is a `status::mismatch`.
template <class Group>
class ll_session : public detail::packet_session<detail::ll_protocol, Group> {
  using base = detail::packet_session<detail::ll_protocol, Group>;
  using protocol = detail::ll_protocol;

 public:
  DEVCOMM_DEVICE ll_session(Group group, const device_comm& comm, ll_handle mailboxes, uint32_t index)
      : base(group, comm, comm.lsa(), mailboxes, index) {}

  /// *Requires* that `members` is part of the LSA team.
  DEVCOMM_DEVICE ll_session(Group group, const device_comm& comm, team members, ll_handle mailboxes, uint32_t index)
      : base(group, comm, members, mailboxes, index) {}

  /// Between groups of this rank, on mailboxes from `local_ll_mailboxes`. Members are these groups, and
  /// what is said of ranks holds for them.
  DEVCOMM_DEVICE ll_session(Group group, const device_comm& comm, local_team members, ll_handle mailboxes)
      : base(group, comm, detail::packet_memory::of_groups(comm, members, mailboxes.offset, mailboxes.count),
             mailboxes) {}

  /// Sends 8 bytes to `member` as packet `packet` of this round. *Ordering*: none for anything else.
  DEVCOMM_DEVICE void send(int member, uint32_t packet, uint64_t data) const {
    this->check(member, packet, 1);
    if (!this->is_alive()) return;
    arch::store_halves(this->outgoing(member, packet), protocol::encode(data, this->epoch()));
  }

  /// What the members in `[first, first + Members)` sent as the `Packets` packets from `packet` on of this round;
  /// waits until all of it has arrived. For members from `end` on it repeats that of member
  /// `end - 1`. *Ordering*: none for anything else. *Requires* `first < end`.
  template <int Members, int Packets>
  DEVCOMM_DEVICE void receive(int first, int end, uint32_t packet, uint64_t (&data)[Members][Packets]) {
    this->check(first, packet, Packets);
    this->check(end - 1, packet, Packets);
    arch::halves raw[Members][Packets] = {};
    const auto ready = [&] {
      DEVCOMM_UNROLL
      for (int m = 0; m < Members; ++m) {  // issue all loads before the first is used
        const char* from = this->incoming(first + m < end ? first + m : end - 1, packet);
        DEVCOMM_UNROLL
        for (uint32_t p = 0; p < Packets; ++p) raw[m][p] = arch::load_halves(from + this->packet_offset(p));
      }
      bool all = true;
      DEVCOMM_UNROLL
      for (int m = 0; m < Members; ++m) {
        DEVCOMM_UNROLL
        for (int p = 0; p < Packets; ++p) all = all & protocol::has_flag(raw[m][p], this->epoch());
      }
      return all;
    };
    const bool arrived =
        this->is_alive() && this->wait(first, first + Members < end ? first + Members : end, packet, Packets, ready);
    DEVCOMM_UNROLL
    for (int m = 0; m < Members; ++m) {
      DEVCOMM_UNROLL
      for (int p = 0; p < Packets; ++p) data[m][p] = protocol::decode(raw[m][p]);
    }
    if (arrived) return;
    for (auto& member : data)
      for (uint64_t& words : member) words = 0;
  }

  // As a mailbox of packs, for the collectives: a pack of 16 bytes is two packets.

  template <class T>
  static constexpr bool can_carry = true;
  /// Packets that make room for `packs` packs from each member to each in a round.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t packets_for(uint32_t packs) {
    return packs < 0x80000000u ? 2 * packs : 0xfffffffeu;
  }

  DEVCOMM_DEVICE uint32_t pack_capacity() const { return this->capacity() / 2; }
  /// Iterates over this thread's packs of a round.
  DEVCOMM_DEVICE thread_cursor cursor() const { return thread_cursor(this->group()); }
  template <class T>
  DEVCOMM_DEVICE void send_pack(int member, uint32_t i, const pack<T>& value) const {
    this->check(member, 2 * i, 2);
    if (this->is_alive()) store_pack(this->outgoing(member, 2 * i), value);
  }
  /// Sends to every member, this rank included. `Ranks` is the team's size, or 0 where it is not known.
  template <int Ranks = 0, class T>
  DEVCOMM_DEVICE void send_pack_to_all(uint32_t i, const pack<T>& value) const {
    this->check(0, 2 * i, 2);
    if (!this->is_alive()) return;
    this->template for_each_outgoing<Ranks>(2 * i, [&](char* packet) { store_pack(packet, value); });
  }
  template <int Members, class T>
  DEVCOMM_DEVICE void receive_packs(int first, int end, uint32_t i, pack<T> (&values)[Members]) {
    uint64_t words[Members][2];
    receive(first, end, 2 * i, words);
    DEVCOMM_UNROLL
    for (int m = 0; m < Members; ++m) detail::copy_bytes(&values[m], words[m], 16);
  }

 protected:
  // As `multimem::packet_session` sends packs: by words that nobody sees in part, from a pack's first packet on.
  using whole_word = uint64_t;
  static constexpr int words_of_pack = 4;
  static constexpr uint32_t packets_of_pack = 2;
  DEVCOMM_DEVICE static uint32_t first_packet(uint32_t i) { return 2 * i; }
  template <class T>
  DEVCOMM_DEVICE void encode_pack(const pack<T>& value, whole_word (&words)[words_of_pack]) const {
    uint64_t data[2];
    detail::copy_bytes(data, &value, 16);
    DEVCOMM_UNROLL
    for (int p = 0; p < 2; ++p) {
      const arch::halves packet = protocol::encode(data[p], this->epoch());
      words[2 * p] = packet.low;
      words[2 * p + 1] = packet.high;
    }
  }

 private:
  template <class T>
  DEVCOMM_DEVICE void store_pack(char* packet, const pack<T>& value) const {
    uint64_t words[2];
    detail::copy_bytes(words, &value, 16);
    DEVCOMM_UNROLL
    for (uint32_t p = 0; p < 2; ++p)
      arch::store_halves(packet + this->packet_offset(p), protocol::encode(words[p], this->epoch()));
  }
};

}  // namespace devcomm::lsa
