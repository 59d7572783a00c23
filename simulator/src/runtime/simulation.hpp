/// \file simulation.hpp
/// The one simulation of the process. CUDA's functions, the host library's device port and the control functions have
/// no handle of it, so they get it here. The rooms below are given a reference.
#pragma once

#include "base/sanitizer.hpp"
#include "engine/engine.hpp"

namespace devcomm::simulator::detail {

[[nodiscard]] engine& the_engine();

/// A program that ends well waits for its launches before, so that reports say whether they were right. Called by each
/// launch.
void await_launches_at_end();

/// Holds the engine's lock; for threads of hosts.
class engine_guard {
 public:
  engine_guard() {
    if (in_kernel()) {
      fail_misuse(
          "a kernel calls the CUDA runtime, and the simulator has no launches or copies by kernels; do this on the host");
    }
    the_engine().lock.lock();
    the_engine().hosts_moved = true;
  }
  ~engine_guard() { the_engine().lock.unlock(); }
  engine_guard(const engine_guard&) = delete;
  engine_guard& operator=(const engine_guard&) = delete;

 private:
  sanitizer::unobserved unobserved_;
};

}  // namespace devcomm::simulator::detail
