/// \file host_port.hpp
/// What the host library's simulator backend asks of the runtime.
#pragma once

#include <cstddef>
#include <optional>

namespace devcomm::simulator::detail {

[[nodiscard]] int device_count();
[[nodiscard]] int multiprocessors();
/// Makes `device` the calling thread's, as `cudaSetDevice` does.
void make_device_current(int device);

/// Messages may call the device's kernels by the rank that launches them.
void name_rank_of_device(int device, int rank);

/// Memory from `cudaMalloc` and its relatives.
struct allocation {
  int device;
  char* base;
  std::size_t bytes;
  int descriptor;  ///< of the memfd that holds it, from offset 0; -1 where there is none
};
/// The allocation that contains `pointer`.
[[nodiscard]] std::optional<allocation> find_allocation(const void* pointer);

/// Device memory that the runtime has not allocated itself, such as a window: copies and messages
/// take it for what it is.
void note_device_range(int device, void* base, std::size_t bytes);
void forget_device_range(void* base);
/// Host memory that kernels can reach: their accesses to it are counted.
void note_host_range(void* base, std::size_t bytes);
void forget_host_range(void* base);
/// Unmaps memory and keeps its addresses for a while without access, so that what still uses them faults.
void retire_range(void* range, std::size_t bytes);

/// Takes `bytes` of the device's memory without an address; false when so many are not left.
[[nodiscard]] bool take_device_memory(int device, std::size_t bytes);
void return_device_memory(int device, std::size_t bytes);

/// From now on other processes may change memory that kernels here wait on, so that waiting
/// kernels are no deadlock.
void note_shared_memory();

/// The calling thread never helps kernels that wait, from `begin_looking_on` to `end_looking_on`.
void begin_looking_on();
void end_looking_on();
/// Whether a launch is running; asked without the engine's lock.
[[nodiscard]] bool kernels_run();

}  // namespace devcomm::simulator::detail
