/// \file settings.hpp
/// What can be set from outside, with the first values taken from the environment.
#pragma once

#include "gpu/peer_groups.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace devcomm::simulator::detail {

/// Whether the simulated GPUs have an NVLink switch, and in which order it reaches members.
enum class multicast_kind : uint8_t { none, in_any_order, in_rank_order };

struct settings {
  uint64_t seed;
  schedule_choice schedule;
  uint64_t store_delay;  ///< scheduling steps; 0: none
  multicast_kind multicast;
  peer_groups peers;  ///< which GPUs reach each other
  int devices;
  bool named_devices;  ///< more ranks than those share them
  int multiprocessors;
  int arch;  ///< compute capability times ten
  size_t stack_bytes;
  uint64_t watchdog;             ///< nanoseconds of real time; 0: none
  uint64_t grace;                ///< nanoseconds of real time
  uint64_t background_start;     ///< nanoseconds of real time
  int leak_exit_status;          ///< 0: the program's own
  std::string deadlock_picture;  ///< file; empty for none
};

[[nodiscard]] settings settings_from_environment();

/// "seed 1", and what else a run is repeated with, as variables of the environment.
[[nodiscard]] std::string how_to_repeat(const settings& s);

/// Whether the file name ends in .svg or .dot, or is empty.
[[nodiscard]] bool is_picture(std::string_view path);
/// Why stores cannot be delayed.
extern const char* const store_delay_needs;

}  // namespace devcomm::simulator::detail
