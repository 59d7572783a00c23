/// \file network_fifos.hpp
/// FIFOs between ranks of any hosts: how to ask for them, and how what they need beside slots is laid out.
/// channel/detail/network_end.cuh has the protocol.
#pragma once

#include <devcomm/channel/fifos.hpp>
#include <devcomm/config.hpp>
#include <devcomm/gin/contexts.hpp>
#include <devcomm/gin/queue.hpp>
#include <devcomm/requirements.hpp>

namespace devcomm::channel {

/// FIFOs of `network_fifos`. Plain data; pass it to the kernel.
template <>
struct fifo_handle<protocol::network> : resource_handle {
  uint32_t slots;                ///< steps that a sender may be ahead of its receiver; a power of two
  uint32_t packs;                ///< of 16 bytes, that a slot holds
  uint64_t kept;                 ///< of `network_layout`, bytes from the start of the resource window
  uint64_t steps;                ///< of `network_steps_layout`, bytes from the start of the network memory
  gin::context_handle contexts;  ///< for the kernel's own operations too; its signals are those from 0 on
  uint32_t first_signal;         ///< of each context, of those that the FIFOs use
};

/// What the ends of a FIFO keep where the network joins them. Counts have 64 bits, as signals have.
struct network_counts {
  uint64_t sent;
  uint64_t received;
};

/// Where that is on every rank, in bytes from `fifo_handle<protocol::network>::kept`.
struct network_layout {
  uint32_t count;
  uint32_t slots;

  DEVCOMM_HOST_DEVICE constexpr uint64_t counts(uint32_t index) const {
    return uint64_t{index} * sizeof(network_counts);
  }
  /// Up to which operation the context that sent from `slot` must be done before the slot is written again.
  DEVCOMM_HOST_DEVICE constexpr uint64_t put_number(uint32_t index, uint32_t slot) const {
    return detail::round_up_to_line(counts(count)) + (uint64_t{index} * slots + slot) * sizeof(uint64_t);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return put_number(count, 0); }
};

/// Steps on their way, on every rank: those of FIFO `index` out of it, and those of FIFO `index` into it. In bytes from
/// `fifo_handle<protocol::network>::steps`.
struct network_steps_layout {
  uint32_t count;
  uint32_t slots;
  uint32_t packs;

  enum side : uint32_t { outgoing, incoming };

  /// What the sender shows with a step in `slot`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t contract(side which, uint32_t index, uint32_t slot) const {
    return slot_index(which, index, slot) * sizeof(step_contract);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t slot(side which, uint32_t index, uint32_t slot) const {
    return detail::round_up_to_line(2 * uint64_t{count} * slots * sizeof(step_contract)) +
           slot_index(which, index, slot) * slot_bytes<protocol::network>(packs);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return slot(incoming, count, 0); }

 private:
  DEVCOMM_HOST_DEVICE constexpr uint64_t slot_index(side which, uint32_t index, uint32_t slot) const {
    return (uint64_t{which == incoming ? count : 0} + index) * slots + slot;
  }
};

/// Asks for `count` FIFOs into every rank, and as many out of it, as `simple_fifos` does; the ranks that a FIFO joins
/// may be any of the world. Ranks of one LSA team store into each other's slots, others put. Asks for the contexts too,
/// and two signals for each FIFO that a context serves: FIFO `i` uses context `i % contexts.count`.
///
///     const auto fifos = needs.add(channel::network_fifos{.contexts = {comm.world(), 4}, .count = blocks});
///
/// Takes `count * slots` slots of device memory and `2 * count * slots` of network memory on every rank, and fails as
/// `gin::contexts` does where there is no network.
template <>
struct fifos<protocol::network> {
  gin::contexts contexts;  ///< as for a kernel without FIFOs
  uint32_t count;
  uint32_t packs = 8192;
  uint32_t slots = 4;

  DEVCOMM_HOST_DEVICE constexpr fifo_handle<protocol::network> add_to(requirements& needs) const {
    // As many, where a step is stored into the receiver's slot.
    const fifo_handle<protocol::simple> stored = needs.add(simple_fifos{contexts.world, count, packs, slots});
    const network_steps_layout put{count, stored.slots, packs};
    const uint64_t of_slots =
        detail::limited_product(uint64_t{count} * stored.slots, 2 * slot_bytes<protocol::network>(packs) + 256);
    const bool fits = of_slots < uint64_t{1} << 60;  // or the layout would wrap around
    const uint64_t kept = needs.add(network_layout{count, stored.slots}.bytes(), 128, {contexts.signals});
    const uint64_t steps = needs.add_for_network(fits ? put.bytes() : of_slots, 128, {contexts.signals});
    const uint64_t shared_by = contexts.count == 0 ? 1 : contexts.count;
    const signal_range signals = needs.add_signals(2 * ((count + shared_by - 1) / shared_by));
    const gin::context_handle made = needs.add(contexts);
    return {stored, stored.slots, packs, kept, steps, made, made.first_signal(signals)};
  }
};

using network_fifos = fifos<protocol::network>;

}  // namespace devcomm::channel
