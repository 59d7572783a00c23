#include "engine/block.hpp"

#include "engine/cluster.hpp"

#include "base/context.hpp"
#include "engine/engine.hpp"
#include "engine/explorer.hpp"
#include "engine/failure.hpp"
#include "engine/grid.hpp"
#include "engine/scheduler.hpp"
#include "engine/session.hpp"
#include "engine/warp_operations.hpp"
#include "gpu/code_module.hpp"
#include "gpu/device_globals.hpp"
#include "gpu/launch_shape.hpp"
#include "gpu/shared_memory.hpp"
#include "gpu/static_shared.hpp"

#include <devcomm/simulator/simulator.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace devcomm::simulator::detail {

__thread block* this_block = nullptr;
__thread fiber* this_fiber = nullptr;

block::block(grid& owner, uint64_t block_rank, int sm)
    : scheduled_block(owner.device, owner.number, owner.of_device, block_rank, owner.shape.threads()),
      launch(owner),
      simulation(owner.simulation),
      multiprocessor(sm) {}

block::~block() {
  for (warp& w : warps) {
    for (warp_cells* group : w.groups) delete group;
  }
}

void block::start() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 262144 + shared_memory::thread_local_bytes());
  const int error = pthread_create(&thread_, &attributes, &block::thread_main, this);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    std::fprintf(stderr,
                 "devcomm simulator: cannot start a thread for block %llu (%s); raise the limit of threads, or "
                 "lower DEVCOMM_SIM_MULTIPROCESSORS\n",
                 static_cast<unsigned long long>(rank), error == EAGAIN ? "limit reached" : "out of memory");
    std::abort();
  }
  started = true;
}

void block::join() { pthread_join(thread_, nullptr); }

void* block::thread_main(void* self) {
  static_cast<block*>(self)->run();
  return nullptr;
}

namespace {

/// Runs a part of a CUDA thread; an exception fails the launch.
template <class Part>
void guarded(fiber& f, Part part) {
  std::string failure;
  try {
    part();
    return;
  } catch (const misuse& broken) {
    failure = broken.what();
    const std::string sessions = describe_sessions(f, failure);
    const std::string caller = describe_misuser();
    const sanitizer::unobserved hidden;
    const std::string kernel = ", " + describe_kernel(f.home->launch) + sessions + ": ";
    const std::size_t place = failure.rfind(" [");  // of an assertion; what precedes it has the thread's numbers
    f.home->simulation.record_misuse(rank_of(*f.home), describe_thread(f) + kernel + failure + caller,
                                     kernel + failure.substr(place == std::string::npos ? 0 : place) + caller);
    fail_grid(f.home->launch, 710);  // cudaErrorAssert
    return;
  } catch (const std::exception& thrown) {
    failure = std::string("uncaught exception: ") + thrown.what();
  } catch (...) {
    failure = "uncaught exception of unknown type";
  }
  const sanitizer::unobserved hidden;
  f.home->simulation.record_failure(describe_thread(f) + ", " + describe_kernel(f.home->launch) + ": " + failure,
                                    false);
  fail_grid(f.home->launch, 719);  // cudaErrorLaunchFailure
}

/// The first function on every fiber's stack.
void fiber_main() {
  finish_first_switch();
  fiber& f = *this_fiber;
  block& b = *f.home;
  grid& g = b.launch;
  guarded(f, [&] { g.call->run(); });
  if (!b.stack_intact(f)) die_of_overflow(f);
  sanitizer::release(*g.completion);
  if (g.failed) leave_fibers();
  guarded(f, [&] {
    b.suspend(f, fiber_state::finished);
    leave_cluster(b, f);
    b.exited(f);
  });
  if (explorer* const e = b.simulation.explored_by) e->ended(f);
  if (g.failed || b.live == 0) leave_fibers();
  b.simulation.reschedule();
  std::abort();  // a finished fiber is never chosen
}

}  // namespace

namespace {

/// Fails the launch of `b` when it wrote behind its dynamic shared memory.
void check_shared_memory(block& b) {
  const size_t bytes = b.launch.shape.dynamic_bytes;
  if (shared_memory::intact(bytes)) return;
  b.simulation.record_failure(describe_block(b) + ": the block wrote behind its " + std::to_string(bytes) +
                                  " bytes of dynamic shared memory; give the launch more, or write less",
                              false);
  fail_grid(b.launch, 719);
}

/// Fails the launch of `b` when copies still use its shared memory.
void check_copies(block& b) {
  const std::string wrong = b.simulation.copies.end_block(b);
  if (wrong.empty()) return;
  b.simulation.record_failure(describe_block(b) + ", " + describe_kernel(b.launch) + ": " + wrong, false);
  fail_grid(b.launch, 719);
}

}  // namespace

void block::prepare() {
  const launch_shape& shape = launch.shape;
  set_block_variables(shape.grid, shape.block, rank);
  poison_static_shared();
  shared_memory::poison(shape.dynamic_bytes);
  note_shared_range(shared_memory::start(), shape.dynamic_bytes);
  shared_range = shared_of_block;
  stacks_.allocate(threads, simulation.config.stack_bytes);
  stacks_of_block = {reinterpret_cast<std::uintptr_t>(stacks_.bottom(0)), stacks_.bytes() * threads};
  fibers.resize(threads);
  runnable.reserve(threads);
  warps.resize((threads + 31) / 32);
  live = threads;
  if (sanitizer::exact()) {
    const race_port& detector = sanitizer::exact_port();
    const uint32_t group =
        detector.new_block(launch.identity, rank, threads, schedule::block_hash(launch.number, launch.device, rank));
    for (uint32_t i = 0; i < threads; ++i) fibers[i].identity = detector.new_thread(launch.identity, group, i);
    shared_ = static_shared_memory();
    if (shape.dynamic_bytes > 0) shared_.push_back({shared_memory::start(), shape.dynamic_bytes, ""});
    for (const memory_span& s : shared_) detector.watch(s.base, s.bytes, "shared memory", -1, s.name);
  } else {
    // To ThreadSanitizer, the OS thread has written its thread-local variables when it started.
    sanitizer::release(started_cell_);
    sanitizer::become(launch.identity);
    sanitizer::acquire(started_cell_);
    for (uint32_t i = 0; i < threads; ++i) fibers[i].identity = sanitizer::new_identity();
    sanitizer::become(root_identity);
  }
  for (uint32_t i = 0; i < threads; ++i) {
    fiber& f = fibers[i];
    f.home = this;
    f.group = this;
    f.rank = i;
    f.index = {i % shape.block.x, i / shape.block.x % shape.block.y, i / (shape.block.x * shape.block.y)};
    f.context = make_context(stacks_.top(i), &fiber_main);
    add(f);
    warps[i / 32].live |= 1u << (i % 32);
  }
  share_with_cluster(*this);
}

/// Its threads have exited, and so must those of its cluster before it ends.
void block::await_cluster() {
  const bool all = end_in_cluster(*this);
  if (!all) {
    simulation.dispatcher_turn.give();
    my_turn.await();
  } else if (in_cluster != nullptr) {
    for (block* each : in_cluster->blocks) {
      if (each != this) simulation.ending_blocks.push_back(each);
    }
  }
}

void block::run() {
  this_block = this;
  this_module = launch.module;
  thread_id = syscall(SYS_gettid);
  root_identity = sanitizer::identity();
  my_turn.await();
  use_globals_of(device);
  engine& e = simulation;
  {
    const sanitizer::unobserved hidden;
    if (!launch.failed) {
      prepare();
      e.order.started(*this);
      enter_fibers(e.choose_fiber(*this));
      this_fiber = nullptr;
      if (!launch.failed) check_copies(*this);
      if (!launch.failed) check_shared_memory(*this);
      if (!launch.failed) await_cluster();
      clean_up();
    }
    if (ready) e.remove_ready_block(*this);
    finished = true;
    e.finished_blocks.push_back(this);
  }
  e.dispatcher_turn.give();
}

void block::clean_up() {
  engine& e = simulation;
  e.copies.forget(*this);
  for (fiber& f : fibers) {
    if (f.state == fiber_state::polling || f.state == fiber_state::sleeping) e.remove_waiting(f);
    forget_sessions(f);
    if (f.state != fiber_state::finished) {  // given up: what waits for the launch comes after what it did
      sanitizer::become(f.identity);
      sanitizer::release(*launch.completion);
      sanitizer::become(root_identity);
    }
    sanitizer::drop_identity(f.identity);
  }
  for (const memory_span& s : shared_) sanitizer::forget(s.base, s.bytes);
  shared_memory::unpoison();
  stacks_of_block = {};
  stacks_.release();
}

void block::wake(fiber& f) {
  if (explorer* const e = simulation.explored_by) e->synchronizes(f);
  f.state = fiber_state::runnable;
  add(f);
  simulation.order.woken(f, this_fiber);
  if (!ready) simulation.add_ready_block(*this);
}

void block::suspend(fiber& f, fiber_state why) {
  f.state = why;
  remove(f);
  schedule::suspended(f);
  if (runnable.empty()) simulation.remove_ready_block(*this);
  if (converging > 0) warps_after_suspend(*this, f);
}

}  // namespace devcomm::simulator::detail
