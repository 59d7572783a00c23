/// \file curand_kernel.h
/// The device generators of the CUDA toolkit's own header, which must be on the path (`-I` its include folder).
#pragma once

#if !__has_include_next(<curand_kernel.h>)
#  error "curand's device generators are the CUDA toolkit's: give its include folder by -I"
#endif

#include <cuda_runtime.h>

#if __has_include(<nv/target>)
#  include <nv/target>
#endif
#if __has_include(<cuda/std/type_traits>)
#  include <cuda/std/type_traits>
#endif

enum libraryPropertyType { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL };

#define __NV_SILENCE_DEPRECATION_BEGIN
#define __NV_SILENCE_DEPRECATION_END
// Else it declares blockDim and threadIdx for the host.
#define __CUDA_ARCH__ DEVCOMM_SIMULATOR_CUDA_ARCH
#include_next <curand_kernel.h>
#undef __CUDA_ARCH__
