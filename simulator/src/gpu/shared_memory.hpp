/// \file shared_memory.hpp
/// Dynamic shared memory of the block that the calling OS thread runs.
///
/// `extern __shared__ T name[]` compiles to an undefined thread-local symbol. The link step of
/// devcomm_simulate() defines every such symbol as an alias of one thread-local array and describes it
/// by `devcomm_simulator_dynamic_shared`; a program without such symbols has none. Libraries of kernels have one each,
/// see `code_module`.
#pragma once

#include <cstddef>
#include <string>

namespace devcomm::simulator::detail {

namespace shared_memory {

/// Bytes of the program's, that every OS thread holds on its stack.
[[nodiscard]] size_t thread_local_bytes();
/// Fills the first `bytes` with a pattern that is NaN in every floating-point type; what lies behind
/// is watched.
void poison(size_t bytes);
/// Where the calling OS thread has it; null when the program has none.
[[nodiscard]] char* start();
/// Gives the memory back to the OS thread.
void unpoison();
/// "8 bytes past the end of dynamic shared memory, of which the launch has 1000 bytes"; empty for other addresses.
/// `launch_bytes`: of the launch that the calling OS thread runs.
[[nodiscard]] std::string describe(const void* address, size_t launch_bytes);
/// Whether nothing was written behind the first `bytes`.
[[nodiscard]] bool intact(size_t bytes);

}  // namespace shared_memory

}  // namespace devcomm::simulator::detail
