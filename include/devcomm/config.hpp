/// \file config.hpp
/// Version, integer types and the few macros every header needs.
#pragma once

#define DEVCOMM_VERSION_MAJOR 0
#define DEVCOMM_VERSION_MINOR 1
#define DEVCOMM_VERSION_PATCH 0

#if defined(__CUDACC_RTC__)
#  include <cuda/std/cstddef>
#  include <cuda/std/cstdint>
#else
#  include <cstddef>
#  include <cstdint>
#endif

// DEVCOMM_FORCEINLINE is for large functions that kernels call once: a real call puts all that they refer to into
// memory.
#if defined(__CUDACC__)
#  define DEVCOMM_HOST_DEVICE __host__ __device__
#  define DEVCOMM_DEVICE __device__
#  define DEVCOMM_NOINLINE __noinline__
#  define DEVCOMM_FORCEINLINE __forceinline__
#else
#  define DEVCOMM_HOST_DEVICE
#  define DEVCOMM_DEVICE
#  define DEVCOMM_NOINLINE __attribute__((noinline))
#  define DEVCOMM_FORCEINLINE
#endif

#if defined(__CUDACC__)
#  define DEVCOMM_UNROLL _Pragma("unroll")
#  define DEVCOMM_UNROLL_BY(n) DEVCOMM_PRAGMA(unroll n)
#  define DEVCOMM_PRAGMA(text) _Pragma(#  text)
#else
#  define DEVCOMM_UNROLL
#  define DEVCOMM_UNROLL_BY(n)
#endif

/// Checked mode: preconditions of device calls are tested and reported in the caller's terms.
/// Always on in the simulator; on GPUs compile with `-DDEVCOMM_CHECKED=1`. One value per program.
#if !defined(DEVCOMM_CHECKED)
#  if defined(DEVCOMM_SIMULATOR)
#    define DEVCOMM_CHECKED 1
#  else
#    define DEVCOMM_CHECKED 0
#  endif
#endif

/// Watchdog: waits that last show what they wait for in a table that the host library reads and reports,
/// see docs/diagnosis.md. Off unless compiled with `-DDEVCOMM_WATCHDOG=1`. One value per program.
#if !defined(DEVCOMM_WATCHDOG)
#  define DEVCOMM_WATCHDOG 0
#endif

/// Tracing: sessions and `trace_span` record spans of time in device memory, see docs/tracing.md. Off unless compiled
/// with `-DDEVCOMM_TRACE=1`. One value per program.
#if !defined(DEVCOMM_TRACE)
#  define DEVCOMM_TRACE 0
#endif

namespace devcomm {

#if defined(__CUDACC_RTC__)
using cuda::std::int32_t;
using cuda::std::int64_t;
using cuda::std::size_t;
using cuda::std::uint16_t;
using cuda::std::uint32_t;
using cuda::std::uint64_t;
using cuda::std::uint8_t;
using cuda::std::uintptr_t;
#else
using std::int32_t;
using std::int64_t;
using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;
using std::uintptr_t;
#endif

}  // namespace devcomm
