/// \file scheduler.hpp
/// Switching among the fibers of a block.
#pragma once

#include "engine/block.hpp"

namespace devcomm::simulator::detail {

/// From the block's root context to `f`; returns when the block leaves its fibers.
void enter_fibers(fiber& f);

/// The first call on each fiber: tells AddressSanitizer that the switch is done.
void finish_first_switch();

/// From the running fiber to the block's root context, never to come back.
[[noreturn]] void leave_fibers();

}  // namespace devcomm::simulator::detail
