/// \file prelude.hpp
/// Included by the build before everything else in a simulated kernel's file: CUDA's words, and the
/// hook behind `cuda::atomic_ref`.
#pragma once

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__  // the C++ library has an attribute of this name
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __constant__

// The build puts it where a file defines a __device__ or __constant__ variable.
#define DEVCOMM_SIMULATOR_OF_EACH_GPU __attribute__((section("devcomm_of_each_gpu")))

// What __CUDA_ARCH__ and __CUDACC__ become in the files of users: headers of others must not take this for nvcc.
#if !defined(DEVCOMM_SIMULATOR_CUDA_ARCH)
#  define DEVCOMM_SIMULATOR_CUDA_ARCH 900
#endif
#define DEVCOMM_SIMULATOR_CUDACC 13

#define __managed__ _Pragma("GCC error \"the simulator has no managed memory; take memory of cudaMallocHost\"")
// Python rewrites it in .cu files, and devcomm-simulate in headers, too.
#define __cluster_dims__(...) \
  _Pragma(                    \
      "GCC error \"__cluster_dims__ in a header needs devcomm-simulate; launch with cudaLaunchAttributeClusterDimension\"")

#if !defined(__clang__)
#  define __builtin_assume(condition) static_cast<void>(0)
#endif

// A block is an OS thread.
#define __shared__ thread_local

// CCCL's headers work without a CUDA compiler, and need not know the shim's small types.
#define CCCL_DISABLE_CTK_COMPATIBILITY_CHECK
#define CCCL_DISABLE_FP16_SUPPORT
#define CCCL_DISABLE_BF16_SUPPORT
// In those that are for devices alone, of which the build makes copies.
#define DEVCOMM_SIMULATOR_HAS_CUDA_COMPILER() 1

#include <cuda_runtime.h>
#include <devcomm/simulator/detail/atomic_hook.hpp>
