/// \file fiber.hpp
/// One CUDA thread.
#pragma once

#include "base/futex.hpp"
#include "schedule/runnable.hpp"

#include <vector_types.h>
#include <devcomm/arch/observed.hpp>
#include <devcomm/simulator/detail/execution.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace devcomm::simulator::detail {

class block;
struct session;
struct thread_copies;

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

/// A word that a fiber has loaded, and the value that it found.
struct watch {
  const void* address;
  uint64_t value;
  uint32_t bytes;
};

/// The memory that a fiber polls.
struct watch_list {
  /// A fiber that loads more words than this outside devcomm's waits is taken to scan memory, not to poll: it never
  /// sleeps.
  static constexpr size_t max_polled_words = 256;

  std::vector<watch> entries;
  size_t cursor = 0;     ///< in `entries`: the word that a loop loads after its latest load
  uint32_t repeats = 0;  ///< loads in a row that found what they found before
  uint32_t retries = 0;  ///< times it was woken although nothing had changed
};

/// What `__cxa_get_globals` points at: the exceptions in flight of one thread.
struct exception_state {
  void* caught;
  unsigned uncaught;
};

struct fiber : scheduled_thread {
  void* context = nullptr;  ///< stack pointer while switched out
  block* home = nullptr;
  uint3 index{};
  fiber_state state = fiber_state::runnable;
  exception_state exceptions{};

  void* identity = nullptr;    ///< ThreadSanitizer's
  void* fake_stack = nullptr;  ///< AddressSanitizer's

  const uint32_t* abort_word = nullptr;  ///< of a labeled wait
  failure_log* log =
      nullptr;  ///< of a labeled wait: where the host ends it, after which a waiting thread sets `abort_word`

  // In explorations.
  int number = -1;                      ///< in its explorer's table
  bool labels = false;                  ///< loads for a wait's label alone
  std::vector<const void*> call_sites;  ///< of the loads in `watches`

  // Waiting for memory or time.
  watch_list watches;
  const devcomm::detail::wait_label* label = nullptr;
  uint64_t wake_time = never;    ///< polls again at this time at the latest
  uint64_t wait_start = 0;       ///< when the wait began
  uint64_t deadline = never;     ///< of a labeled wait, once it has read the clock
  bool paused = false;           ///< the labeled wait has polled without success
  bool waits_with_warp = false;  ///< the labeled wait is one of all lanes of its warp: none sleeps while another polls
  bool saw_change = false;       ///< since it last would have slept
  bool reads_clock = false;      ///< read the clock since its last poll

  // Loops over plain and volatile memory (spin.cpp).
  bool spins = false;          ///< it polls in a loop that changes nothing of its own
  bool runs_unseen = false;    ///< it has not reached a preemption point since it was interrupted
  bool interrupted = false;    ///< it yields in such a loop, and not at a preemption point
  uint64_t spin_progress = 0;  ///< the engine's progress when it began to wait

  // At a barrier or in a warp operation.
  uint32_t barrier = 0;
  uint32_t threads = 0;
  uint32_t mask = 0;
  uint32_t source = 0;
  uint64_t value = 0;  ///< given, then the result
  warp_operation operation = warp_operation::sync;
  const void* call_site = nullptr;
  const char* aligned_file = nullptr;  ///< of the call of `__syncthreads` in which it waits
  int aligned_line = 0;
  uint64_t cluster_phase = 0;  ///< one more than the phase of the cluster's barrier at which it has arrived; 0: at none
  int return_line = 0;         ///< of the `return` by which it leaves the kernel early

  uint64_t multicasts = 0;  ///< accesses to multicast addresses so far

  std::unique_ptr<thread_copies> copies;  ///< asynchronous ones, once there is one

  std::vector<session*> sessions;  ///< that it is in, oldest first
};

/// What the running thread's clock shows; a labeled wait learns its deadline by it.
uint64_t read_clock(fiber& f);

}  // namespace devcomm::simulator::detail
