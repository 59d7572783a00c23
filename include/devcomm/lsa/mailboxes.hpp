/// \file mailboxes.hpp
/// Mailboxes of packets: how to ask for them, and how their memory is laid out. `ll_session`, `lamport_session` and
/// `ll128_session` send and receive through them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/operation.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::lsa {

/// Independent mailboxes of one team. Plain data; pass it to the kernel.
template <packet_protocol Protocol>
struct mailbox_handle : resource_handle {
  static constexpr packet_protocol protocol = Protocol;

  uint32_t packets;  ///< that each member can send to each in one round
  uint32_t reserved;
};

using ll_handle = mailbox_handle<packet_protocol::ll>;
using lamport_handle = mailbox_handle<packet_protocol::lamport>;
using ll128_handle = mailbox_handle<packet_protocol::ll128>;

/// What a warp moves at once through an LL128 mailbox: four lines.
struct ll128_unit {
  static constexpr uint32_t packets = 32;
  static constexpr uint32_t packs = 30;

  /// Packets for `packs` packs: an even number of units, so that half of them are whole units as well.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t packets_for(uint32_t packs_of_round) {
    const uint64_t pairs = (uint64_t{packs_of_round} + 2 * packs - 1) / (2 * packs);
    return pairs < max_pairs ? static_cast<uint32_t>(pairs) * 2 * packets : max_pairs * 2 * packets;
  }
  /// The same or more packets, in whole units.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t whole(uint32_t packets_of_round) {
    const uint64_t units = (uint64_t{packets_of_round} + packets - 1) / packets;
    return units < 2 * max_pairs ? static_cast<uint32_t>(units) * packets : max_pairs * 2 * packets;
  }

 private:
  static constexpr uint32_t max_pairs = 0xffffffffu / (2 * packets);
};

/// What a sender shows with a round's packets when launches are checked.
struct packet_contract {
  uint64_t epoch;  ///< of the round, stored last; 0: nothing has been shown
  launch_contract launch;
  call_contract call;
};

/// Where the parts of mailboxes are, in bytes from the handle's offset: this rank's epochs, then for each
/// mailbox two halves, for odd and even rounds, in which every sender has its row of packets, then the contracts of
/// checked launches.
struct mailbox_layout {
  uint32_t count;
  uint32_t members;
  uint32_t packets;

  static constexpr uint64_t packet_bytes = 16;

  /// This rank's epoch of mailbox `index`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t epoch(uint32_t index) const { return own(index); }
  /// The word by which a group without a vote of its own agrees on an outcome.
  DEVCOMM_HOST_DEVICE constexpr uint64_t outcome(uint32_t index) const { return own(index) + sizeof(uint32_t); }
  /// The first packet that member `sender` writes to mailbox `index` in a round of an even or odd `epoch`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t row(uint32_t index, uint32_t epoch, uint32_t sender) const {
    return detail::round_up_to_line(own(count)) +
           ((uint64_t{index} * 2 + epoch % 2) * members + sender) * packets * packet_bytes;
  }
  /// The contract that member `sender` shows on mailbox `index` in a round of an even or odd `epoch`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t contract(uint32_t index, uint32_t epoch, uint32_t sender) const {
    return row(count, 0, 0) + ((uint64_t{index} * 2 + epoch % 2) * members + sender) * sizeof(packet_contract);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return contract(count, 0, 0); }

 private:
  DEVCOMM_HOST_DEVICE static constexpr uint64_t own(uint32_t index) { return uint64_t{index} * 2 * sizeof(uint32_t); }
};

/// Asks for `count` mailboxes of any team within the LSA team, usually one for each block:
/// `needs.add(lsa::ll_mailboxes{members, count, packets})`. In one round each member can send `packets` packets to
/// each; a packet holds 8 bytes of data with LL and 16 with the others. Takes `32 * count * members * packets` bytes on
/// every rank, and 144 more for each mailbox and member.
///
/// LL128 rounds `packets` up to whole units of 32; `ll128_session::packets_for` computes how many packets packs need.
/// Creation of the device communicator fails where links between `members` do not keep lines whole: see
/// `properties::ll128`.
template <packet_protocol Protocol>
struct mailboxes {
  team members;
  uint32_t count;
  uint32_t packets;

  DEVCOMM_HOST_DEVICE constexpr mailbox_handle<Protocol> add_to(requirements& needs) const {
    if (Protocol == packet_protocol::ll128 && members.size > 1) needs.require(demand::ll128);
    const uint32_t rounded = Protocol == packet_protocol::ll128 ? ll128_unit::whole(packets) : packets;
    const auto size = static_cast<uint32_t>(members.size);
    const uint64_t bytes = mailbox_layout{count, size, rounded}.bytes();
    const uint64_t shape_and_protocol = uint64_t{rounded} << 8 | static_cast<uint64_t>(Protocol);
    return {needs.add_items(bytes, 128, {size, count, shape_and_protocol}, count, size), rounded, 0};
  }
};

using ll_mailboxes = mailboxes<packet_protocol::ll>;
using lamport_mailboxes = mailboxes<packet_protocol::lamport>;
using ll128_mailboxes = mailboxes<packet_protocol::ll128>;

/// Asks for the mailboxes of a session such as `lsa::ll_session<block>`, in code that is written for any; each member
/// can send `packs` packs to each in a round.
template <class Session>
DEVCOMM_HOST_DEVICE constexpr mailboxes<Session::handle::protocol> mailboxes_for(team members, uint32_t count,
                                                                                 uint32_t packs) {
  return {members, count, Session::packets_for(packs)};
}

/// Groups of one rank's kernel, such as the blocks that share a row, that send packets to each other through their
/// GPU's memory: member `i` holds mailbox `first + i`, and the caller's is that of `rank`. `first` is a multiple of
/// `size`: the members of a mailbox are always the same. They must run at the same time. A report of a wait names
/// the mailbox of the group that is waited for.
struct local_team {
  int32_t rank;
  int32_t size;
  uint32_t first;
};

/// Asks for `count` LL mailboxes for groups of one rank that send to each other, `members` of them at a time.
struct local_ll_mailboxes {
  uint32_t count;
  uint32_t members;
  uint32_t packets;

  DEVCOMM_HOST_DEVICE constexpr ll_handle add_to(requirements& needs) const {
    return ll_mailboxes{{0, static_cast<int32_t>(members), 0, 1}, count, packets}.add_to(needs);
  }
};

}  // namespace devcomm::lsa
