/// \file block.hpp
/// One thread block: an OS thread, the fibers on it, its barriers and warps.
#pragma once

#include "base/futex.hpp"
#include "base/sanitizer.hpp"
#include "base/stack.hpp"
#include "engine/copies.hpp"
#include "engine/fiber.hpp"
#include "gpu/static_shared.hpp"

#include <pthread.h>

#include <cstdint>
#include <vector>

namespace devcomm::simulator::detail {

class engine;
struct cluster;
struct grid;

/// One of the sixteen barriers of a block.
struct named_barrier {
  uint32_t arrived = 0;
  uint32_t threads = 0;  ///< that complete it, as the first arrival said; 0: all that live
  uint32_t predicates = 0;
  bool odd = false;
  sanitizer::cell cells[2];  ///< of even and odd rounds, so that rounds are ordered apart
};

/// Lanes that synchronize by one mask. Masks have cells of their own, so that disjoint groups of a
/// warp are not ordered by each other.
struct warp_cells {
  explicit warp_cells(uint32_t lanes) : mask(lanes) {}
  uint32_t mask;
  bool odd = false;
  sanitizer::cell cells[2];
};

struct warp {
  uint32_t live = 0;  ///< lanes that have not exited
  std::vector<warp_cells*> groups;
  void* given[32] = {};  ///< by the lanes of a `gather`
  uint32_t acting = 0;   ///< lanes that act for those
};

class block : public scheduled_block {
 public:
  block(grid& launch, uint64_t rank, int multiprocessor);
  ~block();
  block(const block&) = delete;
  block& operator=(const block&) = delete;

  /// Starts the OS thread, which waits for its first turn.
  void start();
  void join();

  grid& launch;
  engine& simulation;
  const int multiprocessor;  ///< whose resources it holds

  turn my_turn;
  uint32_t ready_slot = 0;
  bool ready = false;  ///< in the engine's list of blocks with runnable fibers
  bool finished = false;

  std::vector<fiber> fibers;
  std::vector<warp> warps;
  named_barrier barriers[16];
  uint32_t live = 0;         ///< fibers that have not exited
  uint32_t converging = 0;   ///< fibers that asked which lanes are here
  bool allows_next = false;  ///< has let the next launch start
  bool started = false;
  long thread_id = 0;   ///< the system's, once it has run
  int world_rank = -1;  ///< of the latest session of one of its threads
  memory_range shared_range{};
  uint32_t shares = 0;            ///< once its shared memory is there
  cluster* in_cluster = nullptr;  ///< once the kernel uses clusters
  sanitizer::cell ended_cell;     ///< in a cluster: released by each thread at its end

  /// Body of the OS thread.
  void run();
  /// Adds a fiber that was waiting, or starts, to the runnable ones.
  void wake(fiber& f);
  /// Takes the running fiber from the runnable ones.
  void suspend(fiber& f, fiber_state why);
  /// Accounts for the end of `f`: barriers count only threads that live.
  void exited(fiber& f);
  [[nodiscard]] fiber& lane(uint32_t warp, uint32_t lane) { return fibers[warp * 32 + lane]; }
  [[nodiscard]] char* stack_bottom(const fiber& f) const { return stacks_.bottom(f.rank); }
  [[nodiscard]] size_t stack_bytes() const { return stacks_.bytes(); }
  [[nodiscard]] bool stack_intact(const fiber& f) const { return stacks_.intact(f.rank); }

  /// What the race detector watches of shared memory.
  [[nodiscard]] const std::vector<memory_span>& watched_shared() const { return shared_; }

  void* root_context = nullptr;
  void* root_identity = nullptr;

 private:
  void prepare();
  void await_cluster();
  void clean_up();
  static void* thread_main(void* self);

  pthread_t thread_{};
  stack_set stacks_;
  sanitizer::cell started_cell_;
  std::vector<memory_span> shared_;  ///< memory, once it is watched
};

/// The block and fiber that the calling OS thread runs; null on host threads.
extern __thread block* this_block;
extern __thread fiber* this_fiber;

}  // namespace devcomm::simulator::detail
