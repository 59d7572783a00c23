/// \file chunks.cuh
/// Memory of the peers through which chunks travel, see `all_reduce_chunked`.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/sym_ptr.hpp>

namespace devcomm::collective {

/// Two buffers that all groups of a kernel share, and every kernel after it in the stream.
struct chunk_buffers {
  buffer_handle<char> inputs;
  buffer_handle<char> results;

  /// `bytes` bytes for each, on every rank.
  DEVCOMM_HOST_DEVICE static constexpr chunk_buffers add(requirements& needs, uint64_t bytes) {
    const auto inputs = needs.add_buffer<char>(bytes);
    return {inputs, needs.add_buffer<char>(bytes)};
  }
  /// Packs of the largest chunks that `groups` groups have room for, a multiple of `grain`: 0 if the buffers have less
  /// than `32 * grain * groups * ranks` bytes, or for a grain of 0. *Requires* at least one group.
  DEVCOMM_HOST_DEVICE constexpr uint32_t packs_for(uint64_t groups, int ranks, uint32_t grain = 1) const {
    const uint64_t packs = inputs.count / (2 * 16 * groups * static_cast<uint64_t>(ranks));
    if (grain == 0) return 0;
    return (packs < 0xffffffffu ? static_cast<uint32_t>(packs) : 0xffffffffu) / grain * grain;
  }
};

/// Where the chunks of one group travel, of `packs` packs of 16 bytes at most: two for each rank in either place.
struct chunk_room {
  sym_ptr<char> inputs;
  sym_ptr<char> results;
  uint32_t packs;
  bool takes_first;    ///< what has come before it sends: every other group, so that the links have work all the time
  uint32_t grain = 1;  ///< packs that one rank reduces together, such as those of a row; `packs` is a multiple

  /// That of group `group`, where all groups have chunks of `packs` packs; see `chunk_buffers::packs_for`. *Requires*
  /// the same `packs` for all groups and calls of a launch; the next launch may have others.
  DEVCOMM_DEVICE static chunk_room of_group(const device_comm& comm, const chunk_buffers& buffers, uint32_t packs,
                                            uint32_t group, uint32_t grain = 1) {
    const uint64_t bytes = uint64_t{2 * 16} * static_cast<uint32_t>(comm.lsa_size) * packs;
    DEVCOMM_ASSERT(bytes * (group + 1) <= buffers.inputs.count, "the group's chunks are past the end of the buffers");
    const auto skipped = static_cast<int64_t>(bytes * group);
    return {comm.buffer(buffers.inputs) + skipped, comm.buffer(buffers.results) + skipped, packs, group % 2 != 0,
            grain};
  }
};

}  // namespace devcomm::collective

namespace devcomm::detail {

/// What a round takes of a vector: `count` packs from `begin` on, of which rank `r` owns those from `r * share` on.
struct chunk_round {
  uint64_t begin;
  uint32_t count;
  uint32_t share;
  uint32_t half;  // of the room, 0 or 1

  DEVCOMM_DEVICE uint64_t first(int owner) const { return begin + uint64_t{static_cast<uint32_t>(owner)} * share; }
  DEVCOMM_DEVICE uint32_t owned(int owner) const {
    const uint32_t before = static_cast<uint32_t>(owner) * share;
    if (before >= count) return 0;
    return share < count - before ? share : count - before;
  }
};

/// The rounds of a group's slice of a vector.
struct chunk_rounds {
  const collective::chunk_room& room;
  const collective::slice& packs;
  uint32_t members;

  DEVCOMM_DEVICE uint64_t packs_of_round() const { return uint64_t{room.packs} * members; }
  DEVCOMM_DEVICE uint32_t number() const {
    return static_cast<uint32_t>((packs.size() + packs_of_round() - 1) / packs_of_round());
  }
  DEVCOMM_DEVICE chunk_round at(uint32_t k) const {
    const uint64_t begin = packs.begin + k * packs_of_round();
    const uint64_t left = packs.end - begin;
    const auto count = static_cast<uint32_t>(left < packs_of_round() ? left : packs_of_round());
    const uint32_t grains = members * room.grain;
    return {begin, count, (count + grains - 1) / grains * room.grain, k % 2};
  }
};

}  // namespace devcomm::detail
