/// \file cuda_fp4.h
/// Keeps the CUDA toolkit's header of this name out of simulated kernels.
#pragma once

#error \
    "the simulator has no 4-bit floating-point types: leave this part of the kernel out with #if !defined(DEVCOMM_SIMULATOR)"
