/// \file trap.cuh
/// How a broken precondition ends a kernel on a GPU. Apart from cuda.cuh so that plain-data headers
/// can use it without the rest.
#pragma once

#if !defined(__CUDACC_RTC__)
#  include <cstdio>
#endif

namespace devcomm::arch {

/// Prints what the caller broke, where, and by which thread; then traps.
__device__ __noinline__ inline void fail_assertion(const char* condition, const char* message, const char* file,
                                                   int line) {
  printf("%s:%d: block (%u, %u, %u) thread (%u, %u, %u): %s [%s]\n", file, line, blockIdx.x, blockIdx.y, blockIdx.z,
         threadIdx.x, threadIdx.y, threadIdx.z, message, condition);
  __trap();
}
/// The same of `what`, which is `value` of `limit`.
__device__ __noinline__ inline void fail_assertion(const char* condition, const char* what, long long value,
                                                   long long limit, const char* message, const char* file, int line) {
  printf("%s:%d: block (%u, %u, %u) thread (%u, %u, %u): %s (%s %lld of %lld) [%s]\n", file, line, blockIdx.x,
         blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, message, what, value, limit, condition);
  __trap();
}

}  // namespace devcomm::arch
