/// \file host_port.hpp
/// What the device port (backend.cpp) needs of the simulation.
#pragma once

#include "gpu/device_memory.hpp"

#include <cstddef>
#include <optional>

namespace devcomm::simulator::detail::host_port {

[[nodiscard]] int device_count();
[[nodiscard]] int multiprocessors();

/// Messages may call the device's kernels by the rank that launches them.
void name_rank_of_device(int device, int rank);

// As in gpu/device_memory.hpp, but these take the engine's lock.
[[nodiscard]] std::optional<allocation> find_allocation(const void* pointer);
void add_device_range(int device, void* base, std::size_t bytes);
void remove_device_range(void* base);
void retire_range(void* range, std::size_t bytes);
[[nodiscard]] bool take_device_memory(int device, std::size_t bytes);
void return_device_memory(int device, std::size_t bytes);

/// From now on other processes may change memory that kernels here wait on, so that waiting
/// kernels are no deadlock.
void note_shared_memory();

/// The calling thread never acts on behalf of kernels that wait, from `begin_looking_on` to `end_looking_on`.
void begin_looking_on();
void end_looking_on();
/// Whether a launch is running; asked without the engine's lock.
[[nodiscard]] bool kernels_run();

}  // namespace devcomm::simulator::detail::host_port
