/// \file launch.hpp
/// How the shim's launch templates reach the runtime.
#pragma once

#include <driver_types.h>
#include <devcomm/simulator/detail/kernel_call.hpp>

#include <cstddef>
#include <memory>

namespace devcomm::simulator::detail {

/// Gives the kernel to its stream, or to the graph that the stream is captured into.
[[nodiscard]] cudaError_t launch(const cudaLaunchConfig_t& config, std::unique_ptr<kernel_call> call);

[[nodiscard]] cudaError_t set_function_attribute(const void* function, cudaFuncAttribute attribute, int value);
[[nodiscard]] cudaError_t get_function_attributes(cudaFuncAttributes* attributes, const void* function);
[[nodiscard]] cudaError_t occupancy(int* blocks, const void* function, int threads, std::size_t dynamic_bytes);

}  // namespace devcomm::simulator::detail
