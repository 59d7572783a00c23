/// \file device_memory.hpp
/// Memory of the simulated devices and pinned host memory.
#pragma once

#include "runtime/host_port.hpp"

#include <cstddef>
#include <string>

namespace devcomm::simulator::detail {

enum class memory_kind { unknown, device, pinned };

// All of these are called with the engine's lock.

/// Fresh memory filled with bytes that are NaN in every floating-point type; null when there is none.
[[nodiscard]] void* allocate(memory_kind kind, int device, size_t bytes);
/// Whether `pointer` was the start of an allocation of that kind.
bool release(memory_kind kind, void* pointer);
[[nodiscard]] memory_kind kind_of(const void* pointer, int* device = nullptr);
/// By `allocate` and `take_device_memory`; at most `device_memory_bytes`.
[[nodiscard]] size_t allocated_bytes(int device);

/// "byte 128 of 4096 allocated on device 2 (0x7f...)".
[[nodiscard]] std::string describe_address(const void* address);

/// "4 bytes past the end of 64 bytes of device 2"; empty when the address is in or near no allocation.
[[nodiscard]] std::string describe_allocation(const void* address);

inline constexpr size_t device_memory_bytes = size_t{64} << 30;

}  // namespace devcomm::simulator::detail
