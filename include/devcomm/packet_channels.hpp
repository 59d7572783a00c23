/// \file packet_channels.hpp
/// Where packet channels keep their packets and epochs.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/detail/lines.hpp>
#include <devcomm/failure.hpp>

namespace devcomm {

/// How a packet shows that it has arrived; see `lsa::ll_session`, `lsa::lamport_session` and `lsa::ll128_session`.
enum class packet_protocol : uint32_t { ll, lamport, ll128 };

DEVCOMM_HOST_DEVICE constexpr const char* to_string(packet_protocol protocol) {
  switch (protocol) {
    case packet_protocol::ll: return "ll";
    case packet_protocol::lamport: return "lamport";
    case packet_protocol::ll128: break;
  }
  return "ll128";
}

/// `count` independent channels of one team. Plain data; pass it to the kernel.
template <packet_protocol Protocol>
struct packet_handle {
  static constexpr packet_protocol protocol = Protocol;

  uint64_t offset;   ///< bytes from the start of the resource window
  uint32_t count;    ///< channels, indexed from 0
  uint32_t members;  ///< size of the team they were made for
  uint32_t packets;  ///< that each member can send to each in one round
  uint32_t reserved;
};

using ll_handle = packet_handle<packet_protocol::ll>;
using lamport_handle = packet_handle<packet_protocol::lamport>;
using ll128_handle = packet_handle<packet_protocol::ll128>;

/// Groups of one rank's kernel, such as the blocks that share a row, that send packets to each other through their
/// GPU's memory: member `i` holds channel `first + i`, and the caller's is that of `rank`. `first` is a multiple of
/// `size`: the members of a channel are always the same. They must run at the same time. A report of a wait names
/// the channel of the group that is waited for.
struct local_groups {
  int32_t rank;
  int32_t size;
  uint32_t first;
};

/// What a warp moves at once through an LL128 channel: four lines.
struct ll128_unit {
  static constexpr uint32_t packets = 32;
  static constexpr uint32_t packs = 30;

  /// Packets for so many packs: an even number of units, so that half of them are whole units as well.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t packets_for(uint32_t packs_of_round) {
    const uint64_t pairs = (uint64_t{packs_of_round} + 2 * packs - 1) / (2 * packs);
    return pairs < most_pairs ? static_cast<uint32_t>(pairs) * 2 * packets : most_pairs * 2 * packets;
  }
  /// The same or more packets, in whole units.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t whole(uint32_t packets_of_round) {
    const uint64_t units = (uint64_t{packets_of_round} + packets - 1) / packets;
    return units < 2 * most_pairs ? static_cast<uint32_t>(units) * packets : most_pairs * 2 * packets;
  }

 private:
  static constexpr uint32_t most_pairs = 0xffffffffu / (2 * packets);
};

/// What a sender shows with a round's packets when launches are checked.
struct packet_contract {
  uint64_t epoch;  ///< of the round, stored last; 0: nothing has been shown
  launch_contract launch;
  call_contract call;
};

/// Where the parts of packet channels lie, in bytes from the handle's offset: this rank's epochs, then for each
/// channel two halves, for odd and even rounds, in which every sender has its row of packets, then the contracts of
/// checked launches.
struct packet_layout {
  uint32_t count;
  uint32_t members;
  uint32_t packets;

  static constexpr uint64_t packet_bytes = 16;

  /// This rank's epoch of channel `index`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t epoch(uint32_t index) const { return own(index); }
  /// The word by which a group without a vote of its own agrees on an outcome.
  DEVCOMM_HOST_DEVICE constexpr uint64_t outcome(uint32_t index) const { return own(index) + sizeof(uint32_t); }
  /// The first packet that member `sender` writes on channel `index` in a round of an even or odd `epoch`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t row(uint32_t index, uint32_t epoch, uint32_t sender) const {
    return detail::whole_lines(own(count)) +
           ((uint64_t{index} * 2 + epoch % 2) * members + sender) * packets * packet_bytes;
  }
  /// The contract that member `sender` shows on channel `index` in a round of an even or odd `epoch`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t contract(uint32_t index, uint32_t epoch, uint32_t sender) const {
    return row(count, 0, 0) + ((uint64_t{index} * 2 + epoch % 2) * members + sender) * sizeof(packet_contract);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return contract(count, 0, 0); }

 private:
  DEVCOMM_HOST_DEVICE static constexpr uint64_t own(uint32_t index) { return uint64_t{index} * 2 * sizeof(uint32_t); }
};

}  // namespace devcomm
