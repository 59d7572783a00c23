/// \file fifos.hpp
/// FIFOs between ranks: how to ask for them, how their memory is laid out, and which rank is at the other end.
/// `channel::session` moves data through them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/ring.hpp>
#include <devcomm/team.hpp>

namespace devcomm::channel {

/// How a step's data shows that it has arrived.
///
/// | protocol | memory of a pack of 16 bytes | latency of a step | for |
/// |---|---|---|---|
/// | `simple` | 16 bytes | a release fence and two trips | large messages |
/// | `ll` | 32 bytes | one trip | small messages, any link |
/// | `ll128` | 17 bytes | one trip | middle sizes, links that keep lines of 128 bytes whole |
/// | `network` | 32 bytes, 16 on each side | as `simple`, or a put with a signal | ranks of any hosts, see
/// `network_fifos` |
enum class protocol : uint32_t { simple, ll, ll128, network };

DEVCOMM_HOST_DEVICE constexpr const char* to_string(protocol p) {
  switch (p) {
    case protocol::simple: return "simple";
    case protocol::ll: return "ll";
    case protocol::ll128: return "ll128";
    case protocol::network: return "network";
  }
  return "unknown protocol";
}

/// FIFOs of one kind. Plain data; pass it to the kernel.
template <protocol Protocol>
struct fifo_handle : resource_handle {
  uint32_t slots;  ///< steps that a sender may be ahead of its receiver; a power of two
  uint32_t packs;  ///< of 16 bytes, that a slot holds
};

/// Bytes of memory that `packs` packs of data take in a slot; with `network`, on either side of the link.
template <protocol Protocol>
DEVCOMM_HOST_DEVICE constexpr uint64_t slot_bytes(uint32_t packs) {
  if constexpr (Protocol == protocol::simple || Protocol == protocol::network) {
    return detail::round_up_to_line(uint64_t{packs} * 16);
  } else if constexpr (Protocol == protocol::ll) {
    return detail::round_up_to_line(uint64_t{packs} * 32);
  } else {
    return (uint64_t{packs} + 29) / 30 * 512;  // 30 packs in four lines
  }
}

/// What a sender shows with a step in checked mode.
struct step_contract {
  uint64_t step;       ///< one more than the step's number, stored last
  call_contract call;  ///< `root` is its number on the FIFO, from 1
};

/// Where FIFOs lie, for the host: sessions add theirs in checked mode, and the end of the device communicator finds
/// steps that nobody has received. Offsets are in the resource window.
struct fifos_note {
  static constexpr uint32_t is_added = 1;  ///< from the first session on
  static constexpr uint32_t timed_out =
      2;  ///< a receive with a deadline did: steps may come that nobody wants any more
  uint32_t flags;
  uint32_t count;
  uint32_t slots;
  uint32_t unused;
  uint64_t heads;      ///< see `fifo_layout::head`
  uint64_t counts;     ///< see `fifo_layout::counts`
  uint64_t contracts;  ///< see `fifo_layout::contract`
  uint64_t next;       ///< the note that was added before; 0: none
};

/// Where the parts of `count` FIFOs are on every rank, in bytes from the handle's offset. Index `i` names two ends: the
/// receiver's end of a FIFO into this rank, and the sender's end of one to another rank.
template <protocol Protocol>
struct fifo_layout {
  uint32_t count;
  uint32_t slots;
  uint32_t packs;

  /// Steps that have been sent into FIFO `index`; stored by its sender. `simple` only.
  DEVCOMM_HOST_DEVICE constexpr uint64_t tail(uint32_t index) const { return uint64_t{index} * sizeof(uint32_t); }
  /// Steps that the receiver has taken from the FIFO whose sender's end is `index`; stored by that receiver.
  DEVCOMM_HOST_DEVICE constexpr uint64_t head(uint32_t index) const {
    return detail::round_up_to_line(tail(count)) + uint64_t{index} * sizeof(uint32_t);
  }
  /// What this rank keeps between sessions; see `fifo_counts`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t counts(uint32_t index) const {
    return detail::round_up_to_line(head(count)) + uint64_t{index} * 32;
  }
  /// What the sender of FIFO `index` shows with a step in `slot`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t contract(uint32_t index, uint32_t slot) const {
    return detail::round_up_to_line(counts(count)) + (uint64_t{index} * slots + slot) * sizeof(step_contract);
  }
  /// Slot `slot` of FIFO `index`, on its receiver.
  DEVCOMM_HOST_DEVICE constexpr uint64_t slot(uint32_t index, uint32_t slot) const {
    return detail::round_up_to_line(contract(count, 0)) +
           (uint64_t{index} * slots + slot) * slot_bytes<Protocol>(packs);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t note() const { return slot(count, 0); }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return note() + detail::round_up_to_line(sizeof(fifos_note)); }
};

/// Counts of steps; they wrap around.
struct fifo_counts {
  uint32_t sent;         ///< into the FIFO whose sender's end this is
  uint32_t credited;     ///< of these, known to be taken
  uint32_t received;     ///< from the FIFO whose receiver's end this is
  uint32_t peers;        ///< in checked mode, `fifo_peer_mark` of the rank sent to; received from, in the upper half
  uint32_t outcomes[2];  ///< scratch words of the group vote: [0] sessions that receive, [1] sessions that only send
  uint32_t calls[2];     ///< in checked mode, made so far: [0] at the receiving end, [1] at the sending end
};

static_assert(sizeof(fifo_counts) == 32, "see fifo_layout::counts");

/// By which a FIFO's end knows its peer: 16 bits, never 0. Ranks 65535 apart have the same.
DEVCOMM_HOST_DEVICE constexpr uint32_t fifo_peer_mark(int world_rank) {
  return static_cast<uint32_t>(world_rank) % 0xffffu + 1;
}

/// Asks for `count` FIFOs into every rank of `members`, and as many out of it: usually as many as the kernel has
/// blocks, times the ranks that a block receives from. A slot holds one step of up to `packs` packs of 16 bytes, and a
/// sender may be `slots` steps ahead, which is rounded up to a power of two. Which ranks a FIFO joins is said when a
/// session begins, and must stay: index `i` receives from one rank, and sends to one, for as long as the device
/// communicator lives.
///
///     needs.add(channel::simple_fifos{comm.lsa(), blocks});
///
/// Takes `count * slots` slots of memory on every rank, see `slot_bytes`. LL128 needs links that keep lines whole, see
/// `properties::ll128`; creation of the device communicator fails where they do not.
template <protocol Protocol>
struct fifos {
  team members;
  uint32_t count;
  uint32_t packs = Protocol == protocol::simple ? 8192 : Protocol == protocol::ll ? 1024 : 1920;
  uint32_t slots = 4;

  DEVCOMM_HOST_DEVICE constexpr fifo_handle<Protocol> add_to(requirements& needs) const {
    if (Protocol == protocol::ll128 && members.size > 1) needs.require(demand::ll128);
    const auto size = static_cast<uint32_t>(members.size);
    const uint32_t rounded = power_of_two(slots);
    const uint64_t of_slots =
        detail::limited_product(uint64_t{count} * rounded, slot_bytes<Protocol>(packs) + sizeof(step_contract));
    const bool fits = of_slots < uint64_t{1} << 60;  // or the layout would wrap around
    const uint64_t bytes = fits ? fifo_layout<Protocol>{count, rounded, packs}.bytes() : of_slots;
    const uint64_t shape = uint64_t{packs} << 32 | uint64_t{rounded} << 8 | static_cast<uint64_t>(Protocol);
    return {needs.add_items(bytes, 128, {size, count, shape}, count, size), rounded, packs};
  }

 private:
  DEVCOMM_HOST_DEVICE static constexpr uint32_t power_of_two(uint32_t least) {
    uint32_t power = 1;
    while (power < least && power < 0x80000000u) power *= 2;
    return power;
  }
};

using simple_fifos = fifos<protocol::simple>;
using ll_fifos = fifos<protocol::ll>;
using ll128_fifos = fifos<protocol::ll128>;

/// One end of a FIFO as this rank names it: who is at the other end, and the index of the FIFO here and there. The two
/// ranks name each other and the same two indices.
struct endpoint {
  int32_t peer;         ///< member of the team; none where negative
  uint32_t index;       ///< on this rank
  uint32_t peer_index;  ///< on the peer

  DEVCOMM_HOST_DEVICE static constexpr endpoint none() { return {-1, 0, 0}; }
};

/// The ends of FIFO `index` of a ring: each member sends to the next.
DEVCOMM_HOST_DEVICE constexpr endpoint from_previous(const team& ring, uint32_t index) {
  return {ring_previous(ring), index, index};
}
DEVCOMM_HOST_DEVICE constexpr endpoint to_next(const team& ring, uint32_t index) {
  return {ring_next(ring), index, index};
}
DEVCOMM_HOST_DEVICE constexpr endpoint from_previous(const ring_order& ring, uint32_t index) {
  return {ring.previous, index, index};
}
DEVCOMM_HOST_DEVICE constexpr endpoint to_next(const ring_order& ring, uint32_t index) {
  return {ring.next, index, index};
}

}  // namespace devcomm::channel
