/// \file memory.hpp
/// Memory of the CUDA backend: physical allocations, reservations, pinned and opened memory.
#pragma once

#include "device/backend.hpp"
#include "device/cuda/driver.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace devcomm::host::cuda {

/// What to ask `cuMemCreate` for: pinned memory of `device` that can be exported as `kind`.
[[nodiscard]] CUmemAllocationProp allocation_properties(int device, detail::handle_kind kind);

[[nodiscard]] std::unique_ptr<detail::physical_memory> create_physical(int device, std::size_t bytes,
                                                                       detail::handle_kind kind);
[[nodiscard]] std::unique_ptr<detail::physical_memory> import_descriptor(int device, int descriptor, std::size_t bytes);
[[nodiscard]] std::unique_ptr<detail::physical_memory> import_bytes(int device, detail::handle_kind kind,
                                                                    std::span<const std::byte> handle,
                                                                    std::size_t bytes);
[[nodiscard]] std::unique_ptr<detail::address_range> reserve(std::size_t bytes);
/// Whether there are windows in pinned host memory for `device`.
[[nodiscard]] capability pinned_windows_of(int device);
[[nodiscard]] std::unique_ptr<detail::physical_memory> create_pinned(std::size_t bytes);
[[nodiscard]] std::unique_ptr<detail::physical_memory> import_pinned(int descriptor, std::size_t bytes);
[[nodiscard]] std::unique_ptr<detail::address_range> reserve_pinned(std::size_t bytes);
/// Whether the driver has multicast for `device`; makes no object to find out.
[[nodiscard]] capability multicast_of(int device);
[[nodiscard]] std::size_t multicast_granularity(int members, detail::handle_kind kind);
[[nodiscard]] std::unique_ptr<detail::multicast_object> create_multicast(int members, std::size_t bytes,
                                                                         detail::handle_kind kind);
[[nodiscard]] std::unique_ptr<detail::multicast_object> import_multicast_descriptor(int descriptor, std::size_t bytes);
[[nodiscard]] std::unique_ptr<detail::multicast_object> import_multicast_bytes(detail::handle_kind kind,
                                                                               std::span<const std::byte> handle,
                                                                               std::size_t bytes);
[[nodiscard]] std::unique_ptr<detail::host_memory> allocate_host(int device, std::size_t bytes);
[[nodiscard]] std::unique_ptr<detail::opened_memory> allocate_device(int device, std::size_t bytes);
void check_pointer(int device, void* pointer, std::size_t bytes, bool for_peers);
[[nodiscard]] detail::sharing_port::exported_pointer export_pointer(int device, void* pointer);
[[nodiscard]] std::uint64_t allocation_id(int device, const void* pointer);
[[nodiscard]] detail::sharing_port::mapped_memory retain_mapped(int device, void* pointer, std::size_t bytes,
                                                                detail::handle_kind kind);
[[nodiscard]] std::unique_ptr<detail::opened_memory> open_pointer(int device, std::span<const std::byte> handle);

}  // namespace devcomm::host::cuda
