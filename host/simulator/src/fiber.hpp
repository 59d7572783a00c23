/// \file fiber.hpp
/// One CUDA thread.
#pragma once

#include <vector_types.h>
#include <devcomm/detail/arch/observed.hpp>
#include <devcomm/simulator/detail/execution.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace devcomm::simulator::detail {

class block;
struct session;

inline constexpr uint64_t never = ~uint64_t{0};
inline constexpr uint32_t barrier_of_grid = 16;  ///< as a fiber's `barrier`, behind those of its block

enum class fiber_state : uint8_t {
  runnable,
  at_barrier,   ///< of the block or the grid
  at_warp,      ///< waits for the other lanes of a warp operation
  at_converge,  ///< asked which lanes are here
  polling,      ///< waits for memory to change
  sleeping,
  finished,
};

/// Memory that a fiber has looked at and what it found.
struct watch {
  const void* address;
  uint64_t value;
  uint32_t bytes;
};

/// The memory that a fiber looks at again and again.
struct watch_list {
  /// Whoever looks at more outside devcomm's waits is taken to go through memory and not to wait: it never sleeps.
  static constexpr size_t most_of_loop = 256;

  std::vector<watch> entries;
  size_t next = 0;        ///< of `entries`, what a loop looks at after its latest look
  uint32_t repeats = 0;   ///< looks in a row that found what they found before
  uint32_t patience = 0;  ///< times it was let look again although nothing had changed
};

/// What `__cxa_get_globals` points at: the exceptions in flight of one thread.
struct exception_state {
  void* caught;
  unsigned uncaught;
};

struct fiber {
  void* context = nullptr;  ///< stack pointer while switched out
  block* home = nullptr;
  uint3 index{};
  uint32_t rank = 0;
  fiber_state state = fiber_state::runnable;
  uint32_t slot = 0;      ///< place in the block's runnable list, or in the engine's list of waiting fibers
  uint32_t quantum = 1;   ///< preemption points left before it has to yield
  uint32_t granted = 1;   ///< what `quantum` was when it last stopped or began
  uint32_t alone = 0;     ///< preemption points passed without having to wait (kept by pct schedules)
  uint64_t points = 0;    ///< preemption points and waits so far
  uint64_t priority = 0;  ///< in pct schedules
  exception_state exceptions{};

  void* identity = nullptr;    ///< ThreadSanitizer's
  void* fake_stack = nullptr;  ///< AddressSanitizer's

  // Where it stopped, for reports of replayed schedules.
  void* frames[16] = {};
  uint32_t place_depth = 0;

  const uint32_t* abort_word = nullptr;  ///< of a labelled wait
  const uint32_t* host_word = nullptr;  ///< of a labelled wait: the host's, which one that waits copies to `abort_word`

  // In explorations.
  int number = -1;                  ///< in its explorer's table
  bool labels = false;              ///< looks for a wait's label alone
  std::vector<const void*> places;  ///< in the program, of the looks in `watches`

  // Waiting for memory or time.
  watch_list watches;
  const devcomm::detail::wait_label* label = nullptr;
  uint64_t wake_time = never;    ///< looks again at this time at the latest
  uint64_t wait_start = 0;       ///< when the wait began
  uint64_t deadline = never;     ///< of a labelled wait, once it has looked at the clock
  bool paused = false;           ///< the labelled wait has looked in vain before
  bool waits_with_warp = false;  ///< the labelled wait is one of all lanes of its warp: none sleeps while another looks
  bool saw_change = false;       ///< since it last would have slept
  bool reads_clock = false;      ///< read the clock since its last look

  // At a barrier or in a warp operation.
  uint32_t barrier = 0;
  uint32_t threads = 0;
  uint32_t mask = 0;
  uint32_t source = 0;
  uint64_t value = 0;  ///< given, then the result
  warp_operation operation = warp_operation::sync;
  const void* place = nullptr;

  std::vector<session*> sessions;  ///< that it is in, oldest first
};

}  // namespace devcomm::simulator::detail
