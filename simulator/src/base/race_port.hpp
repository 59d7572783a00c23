/// \file race_port.hpp
/// What the runtime reports to the race detector, if that is linked (devcomm_simulator_race).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace devcomm::simulator::detail {

/// The device of what the network's proxies do.
inline constexpr int network_device = -2;

/// Opaque to the runtime.
struct race_port {
  // Who runs. Identities are the detector's.
  void* (*identity)();
  void (*become)(void* identity);
  void* (*new_identity)();
  void (*drop_identity)(void* identity);
  void (*ignore)(int change);

  // What is ordered. A cell is the detector's word in an object of the runtime's; null at first.
  void (*release)(void** cell);
  void (*acquire)(void** cell);
  void (*acquire_as)(void* identity, void** cell);
  void (*clear)(void** cell);

  // Work of a stream, or of the network. `kernel` is null for copies, fills and host functions.
  void (*begin_task)(void* identity, int device, const void* kernel);
  void (*end_task)(void* identity, void** cell);
  /// The running thread is about to hand an operation of the network over by a store to `word`.
  void (*note_post)(const void* word);
  /// `identity` takes an operation of the network that a store to `word` has handed over; `peer` and `puts` are known a
  /// step later.
  void (*take_operation)(void* identity, uint32_t context, uint64_t number, const void* word);
  void (*describe_operation)(void* identity, uint32_t context, uint64_t number, int peer, bool puts);
  /// `identity` is an asynchronous copy that the running thread issues. Reports call it `what`, which outlives it. What
  /// goes through the asynchronous proxy sees other threads' writes behind a fence of that.
  void (*begin_copy)(void* identity, const char* what, bool async_proxy);
  /// The calling OS thread runs block `block` of the launch `identity`; its threads are lanes of the group.
  /// `key` is the same in every run of a seed.
  uint32_t (*new_block)(void* launch, uint64_t block, uint32_t threads, uint64_t key);
  void* (*new_thread)(void* launch, uint32_t group, uint32_t lane);

  /// What the running thread knows now counts as known when its kernel began.
  void (*begins_again)();

  // Memory that kernels share. `kind` and `name` ("" for none) outlive it; `device` -1 says that it is
  // shared memory of a block.
  void (*watch)(const void* base, size_t bytes, const char* kind, int device, const char* name);
  void (*forget)(const void* base, size_t bytes);
  /// Memory behind the end of what is watched, which kernels must not access; and whatever of that lies in [base,
  /// base + bytes) no longer.
  void (*poison)(const void* base, size_t bytes);
  void (*unpoison)(const void* base, size_t bytes);
  /// The calling thread of the host frees it, while it stays watched for others.
  void (*end_memory)(const void* base, size_t bytes);
  /// Reports call the memory by `name`, such as "window 'weights' of rank 1"; null forgets it.
  void (*name)(const void* base, size_t bytes, const char* name);

  // Reports.
  uint64_t (*reports)();
  const char* (*last_report)();
  void (*clear_reports)();
  void (*set_exit_status)(int status);
  void (*name_rank)(int device, int rank);

  // The store-buffer delay: up to `longest` steps (0: none), of which `*step` is the current one.
  void (*set_store_delay)(uint64_t longest, uint64_t seed, const uint64_t* step);
  /// The running thread's stores become visible at one time, until this ends.
  void (*stores_are_one)(bool on);
  /// The running thread's accesses are by a multicast address, until this ends.
  void (*multicast)(bool on);
  /// Orders its accesses by multicast addresses and by others, or with `async` those that bulk copies make later.
  void (*proxy_fence)(bool async);
  /// The running thread stops: memory gets back its latest values.
  void (*restore_memory)();
};

/// What the detector needs of the runtime: the settings that repeat the run.
[[nodiscard]] std::string how_to_repeat();

/// The same: whether the address is in host memory that kernels may access.
[[nodiscard]] bool is_host_range(const void* address);

}  // namespace devcomm::simulator::detail

extern "C" __attribute__((weak)) const devcomm::simulator::detail::race_port devcomm_simulator_race_port;
