/// \file clock.hpp
/// Simulated time, as a CUDA thread reads it.
#pragma once

#include "engine/fiber.hpp"

#include <cstdint>

namespace devcomm::simulator::detail {

/// What the running thread's clock shows; a labelled wait learns its deadline by it.
uint64_t read_clock(fiber& f);

}  // namespace devcomm::simulator::detail
