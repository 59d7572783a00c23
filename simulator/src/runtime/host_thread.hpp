/// \file host_thread.hpp
/// What the CUDA runtime keeps for each host thread: its device and its last error.
#pragma once

#include <cuda_runtime_api.h>

namespace devcomm::simulator::detail {

/// The device that `cudaSetDevice` has set.
[[nodiscard]] int current_device();
void make_device_current(int device);

/// Keeps a failure for `cudaGetLastError`, and returns it.
cudaError_t keep(cudaError_t error);
inline cudaError_t keep(int error) { return keep(static_cast<cudaError_t>(error)); }

/// The error of a kernel that failed on the current device, once a call has returned it: as on a GPU, every call on
/// that device returns it from then on, until the program takes the failure as seen or resets the device. With the
/// engine's lock.
[[nodiscard]] cudaError_t lasting_error();

/// The error of a launch by `<<<>>>` that was refused, if no call has looked for errors on its thread since; or null.
[[nodiscard]] const char* unseen_refusal();

}  // namespace devcomm::simulator::detail
