/// \file error.hpp
/// The CUDA runtime's last error of each host thread.
#pragma once

#include <cuda_runtime_api.h>

namespace devcomm::simulator::detail {

/// Keeps a failure for `cudaGetLastError`, and returns it.
cudaError_t keep(cudaError_t error);
inline cudaError_t keep(int error) { return keep(static_cast<cudaError_t>(error)); }

}  // namespace devcomm::simulator::detail
