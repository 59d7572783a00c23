/// \file current_device.hpp
/// The device of the calling host thread, as `cudaSetDevice` sets it.
#pragma once

namespace devcomm::simulator::detail {

[[nodiscard]] int current_device();
void make_device_current(int device);

}  // namespace devcomm::simulator::detail
