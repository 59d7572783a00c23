/// \file device_memory.hpp
/// Memory of the simulated devices and pinned host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace devcomm::simulator::detail {

enum class memory_kind { unknown, device, pinned };

/// Memory from `cudaMalloc` and its relatives.
struct allocation {
  int device;
  char* base;
  size_t bytes;
  int descriptor;   ///< of the memfd that holds it, from offset 0; -1 where there is none
  uint64_t number;  ///< no other has it
};

/// Memory of the host's heap that kernels are lent, to race reports.
inline constexpr const char* array_of_host = "an array of the host";

// All of these are called with the engine's lock.

/// Fresh memory filled with bytes that are NaN in every floating-point type; null when there is none.
[[nodiscard]] void* allocate(memory_kind kind, int device, size_t bytes);
/// Whether `pointer` was the start of an allocation of that kind.
bool release(memory_kind kind, void* pointer);
[[nodiscard]] memory_kind kind_of(const void* pointer, int* device = nullptr);
/// "the heap" or "a stack" where the address is in one of the host's; else empty.
[[nodiscard]] std::string describe_host_memory(const void* address);
/// The allocation of a device that contains `pointer`.
[[nodiscard]] std::optional<allocation> find_allocation(const void* pointer);
/// Device memory that `allocate` has not made, such as a window's: copies and messages then know it.
/// The race detector's reports call it by `kind`, which outlives it, where it has no name.
void add_device_range(int device, void* base, size_t bytes, const char* kind = "window memory");
/// The same for pinned host memory.
void add_pinned_range(int device, void* base, size_t bytes);
/// Of either kind.
void remove_range(void* base);
/// Gives memory back and keeps its addresses for a while without access, so that late accesses fault and do
/// not hit another allocation.
void retire_range(void* range, size_t bytes);
/// Takes `bytes` of the device's memory without an address; false when so many are not left.
[[nodiscard]] bool take_device_memory(int device, size_t bytes);
void return_device_memory(int device, size_t bytes);
/// By `allocate` and `take_device_memory`; at most `device_memory_bytes`.
[[nodiscard]] size_t allocated_bytes(int device);

/// "byte 128 of 4096 allocated on device 2 (0x7f...)".
[[nodiscard]] std::string describe_address(const void* address);

/// "4 bytes past the end of 64 bytes of device 2"; empty when the address is in or near no allocation.
[[nodiscard]] std::string describe_allocation(const void* address);

/// Of an exploration, whose executions find the memory that they allocate at the same addresses: it begins; an
/// execution begins, and what the one before has left is freed; it ends.
void begin_executions();
void restart_execution();
void end_executions();

inline constexpr size_t device_memory_bytes = size_t{64} << 30;

}  // namespace devcomm::simulator::detail
