/// Barriers of a block and of a cooperative launch.
#include "engine/warp_operations.hpp"

#include "engine/engine.hpp"
#include "engine/failure.hpp"
#include "engine/grid.hpp"
#include "engine/task_order.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <cstring>
#include <string>

namespace devcomm::simulator::detail {
namespace {

[[nodiscard]] uint32_t needed(const block& b, const named_barrier& barrier) {
  return barrier.threads == 0 ? b.live : barrier.threads;
}

/// All threads have arrived: wakes those that wait, and prepares the barrier for the next round.
uint32_t complete(block& b, uint32_t index) {
  named_barrier& barrier = b.barriers[index];
  const uint32_t predicates = barrier.predicates;
  uint32_t waiting = barrier.arrived;
  sanitizer::cell& cell = barrier.cells[barrier.odd];
  for (fiber& f : b.fibers) {
    if (waiting == 0) break;
    if (f.state != fiber_state::at_barrier || f.barrier != index) continue;
    f.value = predicates;
    sanitizer::acquire_as(f.identity, cell);
    b.wake(f);
    --waiting;
  }
  barrier.arrived = 0;
  barrier.predicates = 0;
  barrier.threads = 0;
  sanitizer::clear(cell);
  barrier.odd = !barrier.odd;
  return predicates;
}

bool are_two_calls(const fiber& f, const char* file, int line) {
  return f.aligned_line != line || std::strcmp(f.aligned_file, file) != 0;
}

std::string way_of(const fiber& f) {
  const std::string name = "thread " + std::to_string(f.rank);
  if (f.return_line == 0) return name + " has not returned early";
  return name + " returned at line " + std::to_string(f.return_line);
}

/// Fails where another lane of the warp waits at what a GPU may have as another instruction.
void check_aligned(const fiber& f, const char* file, int line) {
  const block& b = *f.home;
  const uint32_t first = f.rank / 32 * 32;
  for (uint32_t i = first; i < b.fibers.size() && i < first + 32; ++i) {
    const fiber& other = b.fibers[i];
    if (other.state != fiber_state::at_barrier || other.aligned_file == nullptr) continue;
    if (are_two_calls(other, file, line)) {
      fail_misuse(
          ("threads of one warp are at two calls of __syncthreads, which is one instruction for all of them; move "
           "it out of the branches (thread " +
           std::to_string(other.rank) + " is at " + other.aligned_file + ":" + std::to_string(other.aligned_line) + ")")
              .c_str());
    }
    if (other.return_line != f.return_line) {
      fail_misuse(("threads of one warp reach a __syncthreads in a destructor by different ways: " + way_of(f) + ", " +
                   way_of(other) +
                   "; a GPU may run it as two instructions and hang. Let all threads leave by one way, or give the "
                   "group of the session a member sync_apart() that calls devcomm::block::sync_apart()")
                      .c_str());
    }
    break;  // all others are at the same one
  }
}

}  // namespace

void return_at(int line) noexcept {
  if (this_fiber != nullptr) this_fiber->return_line = line;
}

uint32_t aligned_block_barrier(bool predicate, const char* file, int line) {
  fiber& f = *this_fiber;
  check_aligned(f, file, line);
  f.aligned_file = file;
  f.aligned_line = line;
  const uint32_t passed = block_barrier(0, 0, predicate);
  f.aligned_file = nullptr;
  return passed;
}

uint32_t block_barrier(uint32_t index, uint32_t threads, bool predicate) {
  fiber& f = *this_fiber;
  block& b = *f.home;
  if (index >= 16) fail_misuse("named barriers are numbered 0 to 15");
  if (threads % 32 != 0) fail_misuse("the number of threads of a named barrier must be a multiple of 32");
  if (threads > b.launch.shape.threads()) {
    fail_misuse("a named barrier waits for more threads than the block has");
  }
  named_barrier& barrier = b.barriers[index];
  if (barrier.arrived > 0 && barrier.threads != threads) {
    fail_misuse("threads of one barrier disagree on how many they are");
  }
  barrier.threads = threads;
  barrier.predicates += predicate ? 1 : 0;
  sanitizer::cell& cell = barrier.cells[barrier.odd];
  sanitizer::release(cell);
  engine& e = b.simulation;
  uint32_t result = 0;
  if (barrier.arrived + 1 == needed(b, barrier)) {
    sanitizer::acquire_as(f.identity, cell);
    result = complete(b, index);
    preempt();
  } else {
    ++barrier.arrived;
    f.barrier = index;
    f.threads = threads;
    b.suspend(f, fiber_state::at_barrier);
    e.reschedule();
    result = static_cast<uint32_t>(f.value);
  }
  sanitizer::acquire_unless_done(cell);
  return result;
}

void grid_barrier() {
  fiber& f = *this_fiber;
  block& b = *f.home;
  grid& g = b.launch;
  if (!g.shape.cooperative) fail_misuse("grid.sync() needs a cooperative launch");
  sanitizer::cell& cell = g.cells[g.odd];
  sanitizer::release(cell);
  if (g.arrived + 1 == g.live) {
    sanitizer::acquire_as(f.identity, cell);
    complete_grid_barrier(g);
    preempt();
  } else {
    ++g.arrived;
    f.barrier = barrier_of_grid;
    b.suspend(f, fiber_state::at_barrier);
    b.simulation.reschedule();
  }
  sanitizer::acquire_unless_done(cell);
}

void wait_for_prior_launch() {
  fiber* const f = this_fiber;
  if (f == nullptr || !f->home->launch.owner->prior) return;
  grid& g = f->home->launch;
  while (g.prior_runs != 0) loaded(&g.prior_runs, sizeof g.prior_runs, 1);
  g.owner->prior->awaited_by_next = true;
  if (!sanitizer::orders()) return;
  sanitizer::acquire(g.owner->prior->completed);
  if (sanitizer::exact()) sanitizer::exact_port().begins_again();
}

void allow_dependent_launch() {
  if (this_fiber == nullptr) return;
  allow_next(*this_fiber->home);
  preempt();
}

void allow_next(block& b) {
  if (b.allows_next) return;
  b.allows_next = true;
  grid& g = b.launch;
  if (++g.blocks_allowing == g.shape.blocks()) let_next_start(*g.owner);
}

void complete_grid_barrier(grid& g) {
  sanitizer::cell& cell = g.cells[g.odd];
  for (block* b : g.running) {
    for (fiber& f : b->fibers) {
      if (f.state != fiber_state::at_barrier || f.barrier != barrier_of_grid) continue;
      sanitizer::acquire_as(f.identity, cell);
      b->wake(f);
    }
  }
  sanitizer::clear(cell);
  g.arrived = 0;
  g.odd = !g.odd;
}

/// Releases barriers that waited only for a thread that has exited.
void barriers_after_exit(block& b) {
  for (uint32_t i = 0; i < 16; ++i) {
    named_barrier& barrier = b.barriers[i];
    if (barrier.arrived > 0 && barrier.threads == 0 && barrier.arrived == b.live) complete(b, i);
  }
  grid& g = b.launch;
  --g.live;
  if (g.arrived > 0 && g.arrived == g.live) complete_grid_barrier(g);
}

}  // namespace devcomm::simulator::detail
