/// \file device_globals.hpp
/// `__device__` and `__constant__` variables, of which each simulated GPU has its own.
///
/// Programs keep them in a section of their own. In its place lie those of one GPU: before threads of another run, the
/// engine exchanges them.
#pragma once

namespace devcomm::simulator::detail {

/// From here on the variables are those of `device`. Called by who has the baton.
void use_globals_of(int device);
/// Whether it is the address of such a variable.
[[nodiscard]] bool is_global(const void* address);
/// Where the variable of `device` is whose address is that.
[[nodiscard]] const void* global_of(int device, const void* address);

}  // namespace devcomm::simulator::detail
