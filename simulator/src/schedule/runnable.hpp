/// \file runnable.hpp
/// The runnable set: all that a schedule sees of the simulation.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace devcomm::simulator::detail {

struct scheduled_block;

/// A thread, the same in every run of the program; or, in explorations, a step of a proxy of the network.
struct thread_key {
  int device = -1;  ///< -1: none; less: `network_key`
  uint64_t launch = 0;
  uint64_t block = 0;
  uint32_t thread = 0;
  auto operator<=>(const thread_key&) const = default;
};

/// Step `step` of operation `number` of a context of `rank`.
[[nodiscard]] inline thread_key network_key(int rank, uint32_t context, uint64_t number, uint32_t step) {
  return {-2 - rank, number, context, step};
}

/// What a schedule sees and keeps of one CUDA thread. The engine's fibers are such threads.
struct scheduled_thread {
  scheduled_block* group = nullptr;  ///< its block
  uint32_t rank = 0;                 ///< in the block
  uint32_t slot = 0;                 ///< in the block's runnable set, or in the engine's list of waiting fibers
  uint32_t quantum = 1;              ///< preemption points left before it has to yield
  uint32_t granted = 1;              ///< what `quantum` was when it last stopped or began
  uint32_t alone = 0;                ///< preemption points passed without having to wait (kept by pct schedules)
  uint64_t points = 0;               ///< preemption points and waits so far
  uint64_t priority = 0;             ///< in pct schedules

  // Where it stopped, for reports of replayed schedules.
  void* frames[16] = {};
  uint32_t frame_count = 0;

  [[nodiscard]] bool is_runnable() const;
  [[nodiscard]] thread_key key() const;
};

/// What a schedule sees and keeps of one block.
struct scheduled_block {
  scheduled_block(int on_device, uint64_t launch, uint64_t launch_on_device, uint64_t block, uint32_t thread_count)
      : device(on_device),
        launch_number(launch),
        launch_of_device(launch_on_device),
        rank(block),
        threads(thread_count) {}

  const int device;
  const uint64_t launch_number;     ///< since the seed was set, from 1
  const uint64_t launch_of_device;  ///< among all of its device, from 1
  const uint64_t rank;              ///< linear index in the grid
  const uint32_t threads;

  std::vector<scheduled_thread*> runnable;  ///< empty until the block has begun
  scheduled_thread* first = nullptr;        ///< of `runnable`, the one of highest priority; null: not known
  uint32_t budget = 0;                      ///< scheduling steps before another block is chosen

  void add(scheduled_thread& t) {
    t.slot = static_cast<uint32_t>(runnable.size());
    runnable.push_back(&t);
  }
  void remove(scheduled_thread& t) {
    scheduled_thread* const last = runnable.back();
    runnable.pop_back();
    if (last == &t) return;
    runnable[t.slot] = last;
    last->slot = t.slot;
  }
};

/// The blocks that have runnable threads or have not begun, in no order.
using runnable_blocks = std::vector<scheduled_block*>;

inline bool scheduled_thread::is_runnable() const {
  return slot < group->runnable.size() && group->runnable[slot] == this;
}
inline thread_key scheduled_thread::key() const { return {group->device, group->launch_of_device, group->rank, rank}; }

}  // namespace devcomm::simulator::detail
