#include "engine/spin.hpp"

#include "base/context.hpp"
#include "engine/block.hpp"
#include "engine/engine.hpp"

#include <cstddef>
#include <cstdint>

namespace devcomm::simulator::detail {
namespace {

/// Basic blocks that a thread may pass without a preemption point; of a loop that was found to wait, fewer.
constexpr uint32_t basic_blocks_at_once = 65536;
constexpr uint32_t basic_blocks_of_wait = 256;
/// So many retries of a wait, the last, are long: a loop that only changes memory, as `++*p`, also comes back with
/// nothing changed.
constexpr uint32_t long_retries = 10;
constexpr uint32_t basic_blocks_of_long_retry = 1 << 20;
/// Basic blocks in which a loop has to come back to the same place.
constexpr uint32_t longest_loop = 256;

__thread uint32_t blocks_left = basic_blocks_at_once;

/// What the running thread was when it was first interrupted since its latest step.
struct interruption {
  uint64_t step;
  size_t bytes;
  uint64_t state;
  uint32_t blocks;  ///< passed since
};
__thread interruption latest = {};

/// Of all that the thread goes on with, the place in its code too: its return address is on the stack.
__attribute__((no_sanitize("address"))) uint64_t hash_of(const uint64_t* words, size_t count) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < count; ++i) {
    h = (h ^ words[i]) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

void yield(fiber& f, bool waits) {
  engine& e = f.home->simulation;
  latest = {};
  f.interrupted = true;
  f.spins = waits;
  if (waits) {
    f.spin_progress = e.progress;
    f.wake_time = never;
    f.home->suspend(f, fiber_state::polling);
    e.add_waiting(f);
  }
  e.reschedule();
}

void interrupt(const void* from) {
  fiber* const f = this_fiber;
  if (f == nullptr || f->label != nullptr || f->home->simulation.order.explores()) {
    blocks_left = basic_blocks_at_once;
    return;
  }
  const engine& e = f->home->simulation;
  const auto* const words = static_cast<const uint64_t*>(from);
  const char* const top = f->home->stack_bottom(*f) + f->home->stack_bytes();
  const auto bytes = static_cast<size_t>(top - static_cast<const char*>(from));
  if (bytes > f->home->stack_bytes()) return yield(*f, false);  // the frame is not on the thread's stack
  const uint64_t state = hash_of(words, bytes / sizeof *words);
  const bool first = latest.step != e.steps || latest.bytes == 0;
  if (!first && latest.bytes == bytes && latest.state == state) return yield(*f, true);
  if (first) latest = {e.steps, bytes, state, 0};
  if (++latest.blocks > longest_loop) return yield(*f, false);
  blocks_left = 1;
}

}  // namespace

void allow_plain_code(const fiber& f) {
  if (!f.spins) {
    blocks_left = basic_blocks_at_once;
  } else {
    blocks_left = f.watches.retries + long_retries >= f.home->simulation.poll_retries() ? basic_blocks_of_long_retry
                                                                                        : basic_blocks_of_wait;
  }
}

}  // namespace devcomm::simulator::detail

extern "C" void __sanitizer_cov_trace_pc() {
  namespace detail = devcomm::simulator::detail;
  if (--detail::blocks_left == 0) devcomm_simulator_keep_registers(&detail::interrupt);
}
