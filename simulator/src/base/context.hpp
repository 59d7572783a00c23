/// \file context.hpp
/// Switching between stacks of one OS thread.
#pragma once

extern "C" {
/// Keeps the callee-saved registers on the running stack, its stack pointer in `*from`, and continues where the
/// context `to` left off.
void devcomm_simulator_switch(void** from, void* to);
}

namespace devcomm::simulator::detail {

/// A context that starts `entry` on the stack that ends at `top`, aligned to 16. `entry` never returns.
[[nodiscard]] void* make_context(char* top, void (*entry)());

}  // namespace devcomm::simulator::detail
