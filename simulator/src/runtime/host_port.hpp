/// \file host_port.hpp
/// What the device port (backend.cpp) needs of the simulation.
#pragma once

#include "gpu/device_memory.hpp"
#include "gpu/multicast.hpp"

#include <chrono>
#include <cstddef>
#include <optional>

namespace devcomm::simulator::detail::host_port {

[[nodiscard]] int device_count();
/// Whether the environment says how many there are.
[[nodiscard]] bool devices_are_named();
[[nodiscard]] int multiprocessors();

/// Messages may call the device's kernels by the rank that launches them.
void name_rank_of_device(int device, int rank);

// As in gpu/device_memory.hpp, but these take the engine's lock.
[[nodiscard]] std::optional<allocation> find_allocation(const void* pointer);
void add_device_range(int device, void* base, std::size_t bytes);
void add_pinned_range(int device, void* base, std::size_t bytes);
void remove_range(void* base);
void retire_range(void* range, std::size_t bytes);
[[nodiscard]] bool take_device_memory(int device, std::size_t bytes);
void return_device_memory(int device, std::size_t bytes);

/// Whether the simulated GPUs have an NVLink switch.
[[nodiscard]] bool has_multicast();
/// Whether one GPU loads and stores memory of the other.
[[nodiscard]] bool reach_each_other(int a, int b);
// As in gpu/multicast.hpp, with the engine's lock.
void add_physical_mapping(std::uint64_t memory, char* base, std::size_t bytes);
void remove_physical_mapping(char* base);
void add_multicast_range(char* base, std::size_t bytes, multicast_state* state);
void remove_multicast_range(char* base);

/// From now on other processes may change memory that kernels here wait on, so that waiting
/// kernels are no deadlock.
void note_shared_memory();

/// The calling thread never acts on behalf of kernels that wait, from `begin_observing` to `end_observing`.
void begin_observing();
void end_observing();
/// The calling thread waits for other host threads, although its wait has a limit, from `begin_waiting_for_ranks` to
/// `end_waiting_for_ranks`.
void begin_waiting_for_ranks();
void end_waiting_for_ranks();
/// Runs kernels until nothing is left to do on the device, at most for `limit` of real time; whether that was so.
[[nodiscard]] bool wait_until_idle(int device, std::chrono::milliseconds limit);
/// The error of a kernel that failed on the device and its text, unless the program has taken it as seen; else empty.
[[nodiscard]] std::string kernel_failure(int device);
/// Whether a launch is running; asked without the engine's lock.
[[nodiscard]] bool kernels_run();

}  // namespace devcomm::simulator::detail::host_port
