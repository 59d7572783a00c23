/// \file rail_rings.hpp
/// Rings along the rails: how to ask for their memory, and when one pays.
#pragma once

#include <devcomm/requirements.hpp>

namespace devcomm::collective {

/// Where the rings of a kernel's blocks keep chunks that are on their way. Plain data; pass it to the kernel. `count`
/// rings, `members` is not used.
struct rail_ring_handle : resource_handle {
  uint32_t slots;        ///< of a ring, on each rank
  uint32_t packs;        ///< of 16 bytes, in a slot
  signal_range signals;  ///< for each ring one of each slot, and one of credits
  uint64_t chunks;       ///< bytes from the start of the network memory

  /// Chunks of each step of a ring that are under way at once.
  DEVCOMM_HOST_DEVICE constexpr uint32_t in_flight() const { return slots / 2; }

  DEVCOMM_HOST_DEVICE constexpr uint64_t slot_bytes() const { return uint64_t{packs} * 16; }
  /// What a ring keeps between calls: bytes from the start of the resource window.
  DEVCOMM_HOST_DEVICE constexpr uint64_t record(uint32_t ring) const { return offset + ring * record_bytes; }
  /// What the previous rank has put here: bytes from the start of the network memory.
  DEVCOMM_HOST_DEVICE constexpr uint64_t received(uint32_t ring, uint32_t slot) const {
    return chunks + (uint64_t{ring} * 2 * slots + slot) * slot_bytes();
  }
  /// What is put to the next rank from here.
  DEVCOMM_HOST_DEVICE constexpr uint64_t sent(uint32_t ring, uint32_t slot) const {
    return received(ring, slots + slot);
  }

  static constexpr uint64_t record_bytes = 128;
};

/// Asks for the memory of `groups` rings, one for each block, and for the signals that they use: contexts are added
/// after them.
///
///     const auto rings = needs.add(collective::rail_rings{.groups = blocks});
///     const auto contexts =
///         needs.lsa_barriers(blocks).add(gin::contexts{.world = comm.world(), .count = 4, .barriers = blocks});
///
/// `2 * groups * slots * chunk_bytes` bytes of network memory on each rank, whatever the size of the vectors. Half of
/// the slots hold chunks on their way to one step of the ring, the other half those that the next rank is still to give
/// back: chunks in flight should cover the network's bandwidth times its latency, `groups * slots / 2 * chunk_bytes`.
struct rail_rings {
  uint32_t groups;
  uint32_t chunk_bytes = 65536;  ///< rounded up to whole packs, at least one
  uint32_t slots = 8;            ///< fewer than 2 are taken as 2

  DEVCOMM_HOST_DEVICE constexpr rail_ring_handle add_to(requirements& needs) const {
    const uint32_t packs = chunk_bytes == 0 ? 1 : chunk_bytes / 16 + (chunk_bytes % 16 != 0 ? 1u : 0u);
    rail_ring_handle made{{}, slots < 2 ? 2 : slots, packs, {}, 0};
    made.signals = needs.add_signals(groups * (uint64_t{made.slots} + 1));
    const resource_shape what{uint64_t{groups} << 32 | made.slots, packs};
    static_cast<resource_handle&>(made) =
        needs.add_items(detail::limited_product(groups, rail_ring_handle::record_bytes), 128, what, groups, 0);
    const uint64_t of_ring = detail::limited_product(2 * uint64_t{made.slots}, made.slot_bytes());
    made.chunks = needs.add_for_network(detail::limited_product(groups, of_ring), 128, what);
    return made;
  }
};

/// How partial results cross from host to host in `all_reduce_hierarchical`.
enum class rail_exchange : uint32_t {
  /// Each rank puts to every other of its rail: two trips and the barriers around them, none at the same time as the
  /// work inside a host.
  direct,
  /// Each rank puts to the next of its rail, `2 * (hosts - 1)` trips, chunk by chunk, while other chunks are reduced or
  /// stored inside.
  ring,
  /// Each rank puts its LSA team's sum, all of the vector, to every other of its rail: one trip, no barriers of the
  /// network.
  one_shot,
};

/// What `rail_exchange_for` goes by. The defaults were measured between two ranks over sockets, with payload through
/// pinned memory (docs/gin.md); measure your own with `devcomm-perf gin_ping_pong`, `gin_put` and `gin_all_reduce`.
struct rail_costs {
  uint64_t latency = 30000;               ///< ns from a put to its signal on another host
  uint64_t network_bytes_per_us = 4000;   ///< of one rank
  uint64_t inside_bytes_per_us = 300000;  ///< that a rank loads from its LSA team, or stores to it
  uint64_t chunk = 50000;                 ///< ns that a chunk of a ring takes longer than its bytes in a large put
  uint64_t chunk_bytes = 65536;           ///< as in `rail_rings`
  /// Bytes that slots take in one trip, those of all blocks together, see `network_slots`; 0: there are none.
  uint64_t slot_bytes = 0;
};

/// Which exchange takes less time for vectors of `bytes` bytes. The same on all ranks for the same arguments.
///
/// Both put the same bytes, `2 * (hosts - 1) / hosts` times a rank's share of the vector, which take `network`
/// microseconds; reduce-scatter and all-gather inside a host take `inside`. With `latency` for a trip, a direct
/// exchange takes `3 * latency + network + inside`, of which one trip is the barrier that begins it, and a ring
/// `2 * (hosts - 1) * latency` and the longer of the two, where each of its chunks adds `chunk` to `network`. So a ring
/// pays where chunks cost little and there is much to do inside meanwhile. One shot puts `hosts - 1` vectors, loads
/// those of the LSA team, and takes `latency` for each `slot_bytes` of the vector.
DEVCOMM_HOST_DEVICE constexpr rail_exchange rail_exchange_for(uint64_t bytes, int hosts, int lsa_size,
                                                              const rail_costs& costs = {}) {
  if (hosts < 2) return rail_exchange::direct;  // one shot would have each rank reduce all of the vector
  const auto teams = static_cast<uint64_t>(hosts);
  const auto ranks = static_cast<uint64_t>(lsa_size);
  // In nanoseconds; a vector is shorter than 2^50 bytes.
  const uint64_t put = 2 * (bytes / ranks) / teams * (teams - 1);
  const uint64_t network = put * 1000 / costs.network_bytes_per_us;
  const uint64_t inside = 2 * (bytes / ranks) * (ranks - 1) * 1000 / costs.inside_bytes_per_us;
  const uint64_t chunk_bytes = costs.chunk_bytes < 16 ? 16 : costs.chunk_bytes;
  const uint64_t in_chunks = network + (put / chunk_bytes + 1) * costs.chunk;
  const uint64_t direct = 3 * costs.latency + network + inside;
  const uint64_t ring = 2 * (teams - 1) * costs.latency + (in_chunks > inside ? in_chunks : inside);
  const uint64_t best = ring < direct ? ring : direct;
  if (costs.slot_bytes != 0) {
    const uint64_t trips = bytes == 0 ? 1 : (bytes - 1) / costs.slot_bytes + 1;
    const uint64_t one_shot = trips * costs.latency + (teams - 1) * bytes * 1000 / costs.network_bytes_per_us +
                              (ranks - 1) * bytes * 1000 / costs.inside_bytes_per_us;
    if (one_shot < best) return rail_exchange::one_shot;
  }
  return ring < direct ? rail_exchange::ring : rail_exchange::direct;
}

}  // namespace devcomm::collective
