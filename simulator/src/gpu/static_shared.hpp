/// \file static_shared.hpp
/// Static shared memory: the `__shared__` variables of all kernels, which are thread-local.
#pragma once

#include <cstddef>
#include <vector>

namespace devcomm::simulator::detail {

/// Fills every `__shared__` variable of the calling OS thread with bytes that are NaN in every
/// floating-point type, as a GPU leaves there what an earlier block left.
///
/// The variables are found by name in the symbol table of the kernel's module: those that are local to a
/// function and thread-local. A file without symbols keeps its zeros.
void poison_static_shared();

/// Notes for `require_global` where the calling OS thread has its shared memory, with `dynamic_bytes` at
/// `dynamic_start`.
void note_shared_range(const char* dynamic_start, size_t dynamic_bytes);

/// One variable of shared memory.
struct memory_span {
  const char* base;
  size_t bytes;
  const char* name;  ///< mangled; kept for ever
};
/// Those of the calling OS thread.
[[nodiscard]] std::vector<memory_span> static_shared_memory();

}  // namespace devcomm::simulator::detail
