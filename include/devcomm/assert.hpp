/// \file assert.hpp
/// Preconditions of device calls, reported in the caller's terms.
#pragma once

#include <devcomm/config.hpp>

/// `DEVCOMM_ASSERT(condition, "what the caller broke and what to do")`.
/// Checked mode: the simulator throws `devcomm::simulator::misuse`; a GPU prints rank-less text with
/// block and thread and traps. Otherwise compiled out.
///
/// `DEVCOMM_ASSERT_OF(condition, "barrier", index, count, "...")` also names the index and the limit: "barrier 1 of 0".
#if !DEVCOMM_CHECKED
#  define DEVCOMM_ASSERT(condition, message) static_cast<void>(0)
#  define DEVCOMM_ASSERT_OF(condition, what, value, limit, message) static_cast<void>(0)
#elif defined(DEVCOMM_SIMULATOR)
namespace devcomm::simulator {
// Throw `misuse`; defined by the simulator.
[[noreturn]] void fail_assertion(const char* condition, const char* message, const char* file, int line);
[[noreturn]] void fail_assertion(const char* condition, const char* what, long long value, long long limit,
                                 const char* message, const char* file, int line);
}  // namespace devcomm::simulator
#  define DEVCOMM_ASSERT(condition, message) \
    ((condition) ? static_cast<void>(0) : ::devcomm::simulator::fail_assertion(#condition, message, __FILE__, __LINE__))
#  define DEVCOMM_ASSERT_OF(condition, what, value, limit, message)                                      \
    ((condition) ? static_cast<void>(0)                                                                  \
                 : ::devcomm::simulator::fail_assertion(#condition, what, static_cast<long long>(value), \
                                                        static_cast<long long>(limit), message, __FILE__, __LINE__))
#elif defined(__CUDA_ARCH__)
#  include <devcomm/arch/trap.cuh>
#  define DEVCOMM_ASSERT(condition, message) \
    ((condition) ? static_cast<void>(0) : ::devcomm::arch::fail_assertion(#condition, message, __FILE__, __LINE__))
#  define DEVCOMM_ASSERT_OF(condition, what, value, limit, message)                                 \
    ((condition) ? static_cast<void>(0)                                                             \
                 : ::devcomm::arch::fail_assertion(#condition, what, static_cast<long long>(value), \
                                                   static_cast<long long>(limit), message, __FILE__, __LINE__))
#else
#  define DEVCOMM_ASSERT(condition, message) static_cast<void>(0)
#  define DEVCOMM_ASSERT_OF(condition, what, value, limit, message) static_cast<void>(0)
#endif
