/// \file multicast.hpp
/// Multicast addresses: ranges without memory, and where the members of each keep its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

/// Memory that a member has bound at an offset of a multicast object.
struct multicast_binding {
  uint64_t member;  ///< the process and device that bound it
  uint64_t offset;
  uint64_t bytes;
  uint64_t memory;  ///< names the physical memory in all processes
};

/// What a multicast object is; in memory that all processes which hold it share.
struct multicast_state {
  static constexpr uint32_t max_members = 128;
  static constexpr uint32_t max_bindings = 4096;

  uint32_t lock;     ///< process that holds it; 0: none
  uint32_t members;  ///< devices that it is for
  uint32_t added;
  uint32_t bound;  ///< bindings
  uint64_t bytes;
  uint64_t changes;  ///< of bindings so far
  uint64_t devices[max_members];
  multicast_binding bindings[max_bindings];
};

/// Guards a state against the other processes. A process that ended while it held the lock holds it no more. What it
/// had begun to add is not there, as `added` and `bound` count whole entries; where it was removing its own, the last
/// may be there twice.
class multicast_lock {
 public:
  explicit multicast_lock(multicast_state& state);
  ~multicast_lock();
  multicast_lock(const multicast_lock&) = delete;
  multicast_lock& operator=(const multicast_lock&) = delete;

 private:
  multicast_state& state_;
};

// All of these are called with the engine's lock.

/// Physical memory `memory` is reachable at `base`, from its first byte on.
void add_physical_mapping(uint64_t memory, char* base, size_t bytes);
void remove_physical_mapping(char* base);
/// The object is reachable at `base`.
void add_multicast_range(char* base, size_t bytes, multicast_state* state);
void remove_multicast_range(char* base);

struct multicast_place {
  bool found = false;     ///< it is a multicast address
  uint32_t members = 0;   ///< that the object has
  uint32_t bound = 0;     ///< members that have bound memory there
  std::vector<char*> at;  ///< where this process reaches it, in the order of the ranks
};
/// What is behind `bytes` bytes at a multicast address. Reaches into an unmapped page only where the range ends.
[[nodiscard]] multicast_place find_multicast(const void* address, size_t bytes);

/// "the multicast address of byte 128 of the 4096 of window 'x' of rank 0"; empty when it is none.
[[nodiscard]] std::string describe_multicast(const void* address);

}  // namespace devcomm::simulator::detail
