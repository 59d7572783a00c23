/// \file cuda_pipeline_primitives.h
/// CUDA's primitives for `cp.async`, for the simulator.
#pragma once

#include <cuda_runtime.h>
#include <devcomm/simulator/device/ptx.hpp>

#include <cstddef>

/// Copies 4, 8 or 16 bytes to shared memory; the last `zeros` of them are zero.
DEVCOMM_SIMULATOR_OF_CALLER void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes,
                                                         std::size_t zeros = 0) {
  devcomm::simulator::detail::copy_element(to, from, bytes, bytes - zeros);
}
inline void __pipeline_commit() { devcomm::simulator::detail::commit_elements(); }
inline void __pipeline_wait_prior(std::size_t pending) {
  devcomm::simulator::detail::await_elements(static_cast<unsigned>(pending));
}

using __mbarrier_t = unsigned long long;
DEVCOMM_SIMULATOR_OF_CALLER void __pipeline_arrive_on(__mbarrier_t* barrier) {
  devcomm::simulator::detail::ptx::mbarrier_arrive_after_elements(barrier, true);
}
