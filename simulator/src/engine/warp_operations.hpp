/// \file warp_operations.hpp
/// What the end or a wait of one thread means for others of its block.
#pragma once

#include "engine/block.hpp"

namespace devcomm::simulator::detail {

/// Whether other lanes wait for `f` in a warp operation.
[[nodiscard]] bool awaited_by_lanes(block& b, const fiber& f);
/// `f` waits for something other than its warp.
void warps_after_suspend(block& b, const fiber& f);
/// `gone` has exited.
void warps_after_exit(block& b, const fiber& gone);
void barriers_after_exit(block& b);

}  // namespace devcomm::simulator::detail
