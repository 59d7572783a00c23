/// \file context.hpp
/// Switching between stacks of one OS thread.
#pragma once

extern "C" {
/// Keeps the callee-saved registers on the running stack, its stack pointer in `*from`, and continues where the
/// context `to` left off.
void devcomm_simulator_switch(void** from, void* to);

/// Calls `use` with the address from which on the stack holds all that the caller goes on with: first the callee-saved
/// registers, then its own frame.
void devcomm_simulator_keep_registers(void (*use)(const void* from));
}

namespace devcomm::simulator::detail {

/// A context that starts `entry` on the stack that ends at `top`, aligned to 16. `entry` never returns.
[[nodiscard]] void* make_context(char* top, void (*entry)());

}  // namespace devcomm::simulator::detail
