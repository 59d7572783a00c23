/// \file device.hpp
/// The simulated GPUs.
#pragma once

namespace devcomm::simulator::detail {

/// The calling host thread's device.
[[nodiscard]] int current_device();

}  // namespace devcomm::simulator::detail
