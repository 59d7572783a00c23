/// \file chunks.cuh
/// Memory of the peers through which chunks travel, see `all_reduce_chunked`.
#pragma once

#include <devcomm/assert.hpp>
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
  /// Packs of the largest chunks that `groups` groups have room for: 0 if the buffers have less than `32 * groups *
  /// ranks` bytes. *Requires* at least one group.
  DEVCOMM_HOST_DEVICE constexpr uint32_t packs_for(uint64_t groups, int ranks) const {
    const uint64_t packs = inputs.count / (2 * 16 * groups * static_cast<uint64_t>(ranks));
    return packs < 0xffffffffu ? static_cast<uint32_t>(packs) : 0xffffffffu;
  }
};

/// Where the chunks of one group travel, of `packs` packs of 16 bytes at most: two for each rank in either place.
struct chunk_room {
  sym_ptr<char> inputs;
  sym_ptr<char> results;
  uint32_t packs;
  bool takes_first;  ///< what has come before it sends: every other group, so that the links have work all the time

  /// That of group `group`, where all groups have chunks of `packs` packs; see `chunk_buffers::packs_for`. *Requires*
  /// the same `packs` for all groups and calls of a launch; the next launch may have others.
  DEVCOMM_DEVICE static chunk_room of_group(const device_comm& comm, const chunk_buffers& buffers, uint32_t packs,
                                            uint32_t group) {
    const uint64_t bytes = uint64_t{2 * 16} * static_cast<uint32_t>(comm.lsa_size) * packs;
    DEVCOMM_ASSERT(bytes * (group + 1) <= buffers.inputs.count, "the group's chunks are past the end of the buffers");
    const auto skipped = static_cast<int64_t>(bytes * group);
    return {comm.buffer(buffers.inputs) + skipped, comm.buffer(buffers.results) + skipped, packs, group % 2 != 0};
  }
};

}  // namespace devcomm::collective
