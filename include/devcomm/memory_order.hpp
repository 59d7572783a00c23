/// \file memory_order.hpp
/// Memory orders and scopes, with the enumerators and values of `cuda::memory_order` and PTX.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm {

/// Same enumerators and values as `cuda::std::memory_order`, without the seconds that `<cuda/atomic>` adds to a
/// compilation. Calls take either, see `any_order`.
enum class memory_order : int { relaxed = 0, acquire = 2, release = 3, acq_rel = 4 };

namespace detail {
/// What `lsa::at_launch` is: neither acquires nor releases. Beside the values of `cuda::memory_order`.
inline constexpr memory_order launch_order = static_cast<memory_order>(16);
}  // namespace detail

/// The threads among which an order holds: one block, one GPU, or all GPUs and the host.
enum class scope : int { block, device, system };

DEVCOMM_HOST_DEVICE constexpr bool acquires(memory_order order) {
  return order == memory_order::acquire || order == memory_order::acq_rel;
}
DEVCOMM_HOST_DEVICE constexpr bool releases(memory_order order) {
  return order == memory_order::release || order == memory_order::acq_rel;
}

}  // namespace devcomm
