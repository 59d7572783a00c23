#include "engine/scheduler.hpp"

#include "base/context.hpp"
#include "engine/engine.hpp"
#include "engine/failure.hpp"
#include "engine/grid.hpp"
#include "engine/spin.hpp"
#include "gpu/device_globals.hpp"
#include "gpu/launch_shape.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

/// The C++ runtime keeps exceptions in flight by OS thread; each fiber has its own.
exception_state& exceptions_of_os_thread() { return *reinterpret_cast<exception_state*>(abi::__cxa_get_globals()); }

void load(fiber& f) {
  this_fiber = &f;
  threadIdx = f.index;
  exceptions_of_os_thread() = f.exceptions;
}

/// `from`: where the running context is kept; `keep`: AddressSanitizer's part of it, null to drop it.
void switch_context(void** from, void** keep, fiber& to) {
  block& b = *to.home;
  load(to);
  sanitizer::become(to.identity);
  if (sanitizer::address()) __sanitizer_start_switch_fiber(keep, b.stack_bottom(to), b.stack_bytes());
  devcomm_simulator_switch(from, to.context);
}

uint64_t mixed(uint64_t trace, uint64_t choice) {
  trace ^= choice + 0x9e3779b97f4a7c15u + (trace << 6) + (trace >> 2);
  return trace;
}

/// AddressSanitizer's view of the block's root stack.
__thread const void* root_bottom = nullptr;
__thread size_t root_size = 0;
__thread void* root_fake_stack = nullptr;

}  // namespace

void enter_fibers(fiber& f) {
  block& b = *f.home;
  switch_context(&b.root_context, &root_fake_stack, f);
  if (sanitizer::address()) __sanitizer_finish_switch_fiber(root_fake_stack, nullptr, nullptr);
  this_fiber = nullptr;
}

void finish_first_switch() {
  if (!sanitizer::address()) return;
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (root_bottom != nullptr) return;
  root_bottom = bottom;  // the block's first fiber comes from the root
  root_size = size;
}

void leave_fibers() {
  block& b = *this_block;
  void* nowhere = nullptr;
  exceptions_of_os_thread() = {};
  sanitizer::become(b.root_identity);
  if (sanitizer::address()) __sanitizer_start_switch_fiber(nullptr, root_bottom, root_size);
  devcomm_simulator_switch(&nowhere, b.root_context);
  std::abort();
}

fiber& engine::choose_fiber(block& b) {
  ++steps;
  now += step_time;
  auto& f = static_cast<fiber&>(order.choose_thread(b));
  if (!f.runs_unseen) ++progress;
  allow_plain_code(f);
  trace = mixed(trace, (b.launch.number << 48) ^ (b.rank << 16) ^ f.rank);
  return f;
}

void engine::reschedule() {
  block& b = *this_block;
  fiber& self = *this_fiber;
  const auto left = static_cast<size_t>(reinterpret_cast<char*>(__builtin_frame_address(0)) - b.stack_bottom(self));
  if (left < 1024 || left > b.stack_bytes()) die_of_overflow(self);

  sanitizer::restore_memory();
  if (self.runs_unseen && !self.interrupted) ++progress;
  if (!self.interrupted) self.spins = false;
  self.runs_unseen = std::exchange(self.interrupted, false);
  order.stopped(self);
  if (copies.due(steps)) copies.run(false);
  const bool interrupted = lock.contended() || dispatcher_wanted || steps >= step_limit;
  if (interrupted || b.runnable.empty() || order.leaves(b, ready_blocks, steps)) {
    block* next = choose();
    if (next != &b) hand_over(b, next);
  }
  fiber& next = choose_fiber(b);
  if (&next == &self) return;
  ++switches;
  self.exceptions = exceptions_of_os_thread();
  switch_context(&self.context, &self.fake_stack, next);
  if (sanitizer::address()) __sanitizer_finish_switch_fiber(self.fake_stack, nullptr, nullptr);
}

block* engine::choose() {
  if (lock.contended()) {
    lock.unlock();
    lock.lock();
  }
  if (dispatcher_wanted || steps >= step_limit) return nullptr;
  if (!waiting.empty() && (ready_blocks.empty() || order.poll_due(steps - last_peek_, waiting.size()))) {
    last_peek_ = steps;
    peek();
  }
  while (ready_blocks.empty() && copies.any()) {
    copies.run(true);
    peek();
  }
  if (order.explores() && network_is_next()) return nullptr;
  if (ready_blocks.empty()) return nullptr;
  auto& b = static_cast<block&>(order.choose_block(ready_blocks, steps));
  __atomic_store_n(&running, &b, __ATOMIC_RELAXED);
  return &b;
}

void engine::hand_over(block& self, block* next) {
  ++handoffs;
  (next != nullptr ? next->my_turn : dispatcher_turn).give();
  self.my_turn.await();
  use_globals_of(self.device);
  if (self.launch.failed) leave_fibers();
}

void engine::add_ready_block(block& b) {
  b.ready = true;
  b.ready_slot = static_cast<uint32_t>(ready_blocks.size());
  sanitizer::append(ready_blocks, static_cast<scheduled_block*>(&b));
}

void engine::remove_ready_block(block& b) {
  auto* const last = static_cast<block*>(ready_blocks.back());
  ready_blocks.pop_back();
  if (last != &b) {
    ready_blocks[b.ready_slot] = last;
    last->ready_slot = b.ready_slot;
  }
  b.ready = false;
}

void preempt() {
  fiber* f = this_fiber;
  if (f == nullptr) return;
  if (--f->quantum == 0) f->home->simulation.reschedule();
}

bool in_kernel() noexcept { return this_fiber != nullptr; }
uint32_t thread_rank() noexcept { return this_fiber->rank; }
std::size_t dynamic_shared_bytes() noexcept { return this_block->launch.shape.dynamic_bytes; }
bool cooperative_launch() noexcept { return this_block->launch.shape.cooperative; }

}  // namespace devcomm::simulator::detail
