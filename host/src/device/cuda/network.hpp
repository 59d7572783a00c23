/// \file network.hpp
/// What the network's proxies need of CUDA: copies beside kernels, and threads that work while kernels run.
#pragma once

#include <devcomm/host/properties.hpp>

#include "device/backend.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace devcomm::host::cuda {

/// By GPUDirect RDMA.
[[nodiscard]] capability device_from_cards(int device);

/// By copy engines, on streams of its own that wait for no other and are before others where they share a queue of the
/// device's.
[[nodiscard]] std::unique_ptr<detail::copy_engine> open_copies(int device);

/// A thread that does `work`, as `network_port::start_background_task` says.
[[nodiscard]] std::unique_ptr<detail::background_task> start_background_task(const std::vector<int>& cpus,
                                                                             const detail::proxy_work& work);

/// Makes the calling thread one whose calls of the driver are no part of the stream captures of others, and fail none.
void stay_out_of_captures();

}  // namespace devcomm::host::cuda
