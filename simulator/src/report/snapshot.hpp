/// \file snapshot.hpp
/// What reports see of the simulation: who runs, who waits for what, and who holds which sessions, at one moment.
/// Plain data that the engine fills in; a report knows nothing of the engine.
#pragma once

#include <devcomm/diagnostics/wait_table.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

/// What a thread waits for, if anything.
enum class wait_reason : uint8_t {
  none,  ///< it can run
  exited,
  block_barrier,
  grid_barrier,
  warp_operation,
  active_lanes,  ///< it asked which lanes are here
  sleep,
  memory,         ///< it polls
  unseen_memory,  ///< it polls by plain or volatile loads
  session,
};

/// A wait of a session, with what it waits for.
struct session_wait {
  static constexpr size_t none = ~size_t{0};

  devcomm::operation what{};
  uint32_t index = 0;
  int peer = 0;  ///< -1: no particular one
  uint32_t peer_index = 0;
  uint32_t groups = 0;  ///< not 0: waits for a group of its own rank, as `wait_record::groups`
  devcomm::wait_condition condition{};
  uint32_t window = 0;  ///< as `wait_record::window`
  uint64_t expected = 0;
  size_t own = none;            ///< of `snapshot::sessions`: the thread's
  std::vector<size_t> awaited;  ///< of `snapshot::sessions`
};

/// A word that a thread polls.
struct polled_word {
  std::string address;  ///< "byte 128 of the 4096 of window 'weights' of rank 1"
  uint64_t value;
  bool is_mbarrier = false;  ///< `address` says what it lacks
};

struct thread_snapshot {
  size_t block = 0;  ///< of `snapshot::blocks`
  uint32_t rank = 0;
  wait_reason reason = wait_reason::none;
  uint32_t barrier = 0;            ///< of the block
  const char* operation = "";      ///< of the warp
  uint32_t mask = 0;               ///< lanes that take part
  std::vector<polled_word> words;  ///< those of a session may have no address
  uint64_t more_words = 0;         ///< that are polled, and left out here
  session_wait session;
};

struct block_snapshot {
  struct barrier_state {
    uint32_t arrived = 0;
    uint32_t threads = 0;  ///< that complete it; 0: all that live
  };

  size_t launch = 0;  ///< of `snapshot::launches`
  uint64_t rank = 0;
  int world_rank = -1;      ///< -1: not known
  std::set<int> ranks;      ///< whose kernel it may be
  size_t first_thread = 0;  ///< of `snapshot::threads`
  size_t threads = 0;
  uint32_t live = 0;
  barrier_state barriers[16];
  std::vector<uint32_t> live_lanes;  ///< by warp
};

struct launch_snapshot {
  int device = 0;
  uint64_t blocks = 0;
  uint64_t not_started = 0;
  uint64_t arrived = 0;  ///< threads at the barrier of the grid
  uint64_t live = 0;     ///< threads that have not exited
  std::set<int> ranks;   ///< whose kernel it may be
  size_t first_block = 0;
  size_t running = 0;  ///< blocks of `snapshot::blocks`
};

struct snapshot {
  std::vector<launch_snapshot> launches;
  std::vector<block_snapshot> blocks;    ///< those that run, by launch
  std::vector<thread_snapshot> threads;  ///< by block
  /// By session, the threads in it that have not left it.
  std::vector<std::vector<size_t>> sessions;
};

}  // namespace devcomm::simulator::detail
