/// \file buffer.hpp
/// Buffers in the network memory of a device communicator: how to ask for them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/requirements.hpp>

namespace devcomm::gin {

/// A buffer of `gin::buffer`; `gin::memory_of` gives its address in a kernel. Plain data; pass it to the kernel.
template <class T>
struct buffer_handle {
  uint64_t offset;     ///< bytes from the start of the network memory
  uint64_t count;      ///< elements on each rank
  uint16_t owner = 0;  ///< as `resource_handle::owner`
};

/// Asks for `count` elements of `T` on every rank for what is on its way to other ranks, aligned to at least 128 bytes:
///
///     const auto scratch = needs.add(gin::buffer<float>{count});
///
/// Network memory lies where puts and gets take least. Where the network reaches memory of GPUs, that is device
/// memory; else it is pinned host memory, which needs no copy engine, and which kernels load from and store to over
/// PCIe: once for each element, best, with whole packs and many threads. Starts as zeros.
template <class T>
struct buffer {
  uint64_t count;

  DEVCOMM_HOST_DEVICE constexpr buffer_handle<T> add_to(requirements& needs) const {
    const uint64_t bytes = detail::limited_product(count, sizeof(T));
    return {needs.add_for_network(bytes, alignof(T) > 128 ? alignof(T) : 128, {sizeof(T)}), count, needs.owner()};
  }
};

}  // namespace devcomm::gin
