/// \file nvml.hpp
/// What NVML reports about the NVLink fabric. The library is loaded where there is one, and needed by nothing else.
#pragma once

#include <devcomm/host/properties.hpp>

#include <cuda.h>

namespace devcomm::host::cuda {

/// The NVLink domain that the GPU with `uuid` is in and whose GPUs may be on several hosts: where there is one, the
/// reason has the fabric's cluster and clique, the same on all of them. Does not throw where there is none.
[[nodiscard]] capability nvlink_domain_of(const CUuuid& uuid);

}  // namespace devcomm::host::cuda
