/// \file grid.hpp
/// One running launch.
#pragma once

#include "base/sanitizer.hpp"
#include "engine/cluster.hpp"
#include "gpu/launch_shape.hpp"

#include <devcomm/simulator/detail/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

namespace devcomm::simulator::detail {

class block;
class engine;
struct code_module;
struct task;

struct grid {
  explicit grid(engine& e) : simulation(e) {}

  engine& simulation;
  task* owner = nullptr;
  const kernel_call* call = nullptr;
  code_module* module = nullptr;  ///< that has its kernel
  launch_shape shape;
  int device = 0;
  uint64_t number = 0;     ///< of this launch since the seed was set, from 1
  uint64_t of_device = 0;  ///< of this launch among all of its device, from 1

  uint64_t next_block = 0;      ///< how many have started
  std::vector<uint64_t> order;  ///< in which they start; empty: by their index
  uint64_t must_start = 0;      ///< so many do although the GPU is full: others of their clusters run
  std::map<uint64_t, std::unique_ptr<cluster>> clusters;  ///< by index
  std::vector<block*> running;

  /// Barriers and channels that allow one session per launch, and have had it.
  std::set<std::tuple<const void*, uint64_t, uint32_t, int32_t>> used;

  uint64_t blocks_allowing = 0;  ///< that have let the next launch start, or ended
  uint32_t prior_runs = 0;       ///< whether the launch beside which it started has not ended

  uint64_t invalid_pages = 0;  ///< that the launch accessed, and that it was given to go on with
  bool failed = false;
  int error = 0;  ///< a cudaError_t

  // The barrier of a cooperative launch.
  uint64_t arrived = 0;
  uint64_t live = 0;  ///< threads that have not exited
  bool odd = false;
  sanitizer::cell cells[2];

  sanitizer::cell* completion = nullptr;  ///< released by every thread at its end
  void* identity = nullptr;               ///< ThreadSanitizer's; parent of the threads' identities
};

/// The block lets the next launch start.
void allow_next(block& b);

/// Wakes every thread at the grid barrier.
void complete_grid_barrier(grid& g);

/// The launch ends with `error`: no thread of it runs again. Called with the baton.
void fail_grid(grid& g, int error);

}  // namespace devcomm::simulator::detail
