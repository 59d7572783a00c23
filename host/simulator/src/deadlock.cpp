/// The report of a deadlock: every thread that waits, equal ones together.
#include "engine.hpp"
#include "failure.hpp"
#include "grid.hpp"
#include "memory.hpp"

#include <cinttypes>
#include <cstdio>
#include <string>

namespace devcomm::simulator::detail {
namespace {

constexpr size_t lines_kept = 40;

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

/// "LSA barrier 3, waits for rank 1 to reach epoch 5, saw 4".
std::string describe_label(const fiber& f) {
  const devcomm::detail::wait_label& label = *f.label;
  std::string text = std::string(devcomm::to_string(label.what)) + " " + std::to_string(label.index) +
                     ": waits for rank " + std::to_string(label.peer) + " to reach epoch " +
                     std::to_string(label.expected);
  if (f.watches.count > 0) text += ", saw " + std::to_string(f.watches.entries[0].value);
  return text;
}

std::string describe_wait(const fiber& f) {
  const block& b = *f.home;
  switch (f.state) {
    case fiber_state::at_barrier: {
      if (f.barrier >= 16) {
        return "in grid.sync(), " + std::to_string(b.launch.arrived) + " of " + std::to_string(b.launch.live) +
               " threads arrived";
      }
      const named_barrier& barrier = b.barriers[f.barrier];
      const uint32_t all = barrier.threads == 0 ? b.live : barrier.threads;
      const std::string what = f.barrier == 0 && barrier.threads == 0 ? std::string("in __syncthreads")
                                                                      : "at named barrier " + std::to_string(f.barrier);
      return what + ", " + std::to_string(barrier.arrived) + " of " + std::to_string(all) + " arrived";
    }
    case fiber_state::at_warp:
      return std::string("in a ") +
             (f.operation == warp_operation::sync      ? "__syncwarp"
              : f.operation == warp_operation::shuffle ? "shuffle"
              : f.operation == warp_operation::match   ? "__match"
                                                       : "vote") +
             " of the lanes " + hex(f.mask);
    case fiber_state::at_converge: return "asks for the active lanes";
    case fiber_state::sleeping: return "sleeps";
    case fiber_state::polling: {
      if (f.label != nullptr) return describe_label(f);
      std::string text = "polls";
      for (uint32_t i = 0; i < f.watches.count; ++i) {
        const watch& w = f.watches.entries[i];
        text += (i == 0 ? " " : ", ") + describe_address(w.address) + ", which stays " + std::to_string(w.value);
      }
      return text;
    }
    case fiber_state::runnable: return "can run";
    case fiber_state::finished: return "has exited";
  }
  return {};
}

void describe_threads(const block& b, std::string& text, size_t& lines) {
  const size_t count = b.fibers.size();
  for (size_t first = 0; first < count;) {
    const std::string what = describe_wait(b.fibers[first]);
    size_t last = first;
    while (last + 1 < count && describe_wait(b.fibers[last + 1]) == what) ++last;
    if (b.fibers[first].state != fiber_state::finished && lines++ < lines_kept) {
      text +=
          "\n  " + describe_block(b) + ", thread" +
          (first == last ? " " + std::to_string(first) : "s " + std::to_string(first) + ".." + std::to_string(last)) +
          ": " + what;
    }
    first = last + 1;
  }
}

}  // namespace

std::string describe_deadlock() {
  const engine& e = the_engine();
  std::string text = "deadlock: every thread waits and nothing can change";
  size_t lines = 0;
  for (const grid* g : e.grids) {
    for (const block* b : g->running) {
      if (b->fibers.empty()) continue;
      describe_threads(*b, text, lines);
    }
    const uint64_t missing = g->shape.blocks() - g->next_block;
    if (missing > 0) {
      text += "\n  device " + std::to_string(g->device) + ": " + std::to_string(missing) + " of " +
              std::to_string(g->shape.blocks()) +
              " blocks have not started, as the GPU is full; blocks that wait for "
              "each other need a cooperative launch";
    }
  }
  if (lines > lines_kept) text += "\n  and " + std::to_string(lines - lines_kept) + " more";
  return text;
}

}  // namespace devcomm::simulator::detail
