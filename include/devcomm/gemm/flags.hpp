/// \file flags.hpp
/// Flags of a product that communicates: how to ask for them, and how they are laid out.
///
/// Protocol. Each launch has an epoch, one more than the launch before, and ranks launch together. A flag on a rank
/// says that a chunk of its operand, or a tile of a result, has arrived there in a launch: whoever wrote it stores the
/// launch's epoch (release), and the rank waits until its flag is at least that (acquire). Flags are never reset, so
/// graphs replay, and each has one writer, so that nothing is counted twice. They have 64 bits: launches of another
/// shape may leave a flag as it is for any number of epochs.
///
/// The epoch is kept on each rank, in a word for each block: a block reads its own, and when it ends it stores the new
/// one there and, where the launch has fewer blocks than there are words, to those that no block of the launch has.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/operation.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::gemm {

/// Plain data; pass it to the kernel.
struct flag_handle : resource_handle {
  uint32_t max_blocks;  ///< of a launch
};

/// Where the parts are, in bytes from the handle's offset: first what peers store to, then what only this rank uses.
struct flag_layout {
  uint32_t count;
  uint32_t max_blocks;

  DEVCOMM_HOST_DEVICE constexpr uint64_t flag(uint32_t index) const { return uint64_t{index} * sizeof(uint64_t); }
  /// The epoch of the latest launch, as `block` reads it.
  DEVCOMM_HOST_DEVICE constexpr uint64_t epoch(uint32_t block) const {
    return detail::round_up_to_line(flag(count)) + uint64_t{block} * sizeof(uint64_t);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return detail::round_up_to_line(epoch(max_blocks)); }
};

/// Asks for `count` flags on each member of the LSA team, for launches of up to `max_blocks` blocks:
/// `needs.add(gemm::flags{comm.lsa(), chunks.count(), blocks})`.
struct flags {
  team members;
  uint32_t count;
  uint32_t max_blocks;

  DEVCOMM_HOST_DEVICE constexpr flag_handle add_to(requirements& needs) const {
    const auto size = static_cast<uint32_t>(members.size);
    const resource_shape what{size, count, uint64_t{max_blocks} << 32 | static_cast<uint64_t>(operation::gemm_session)};
    return {needs.add_items(flag_layout{count, max_blocks}.bytes(), 128, what, count, size), max_blocks};
  }
};

}  // namespace devcomm::gemm
