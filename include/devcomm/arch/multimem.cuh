/// \file multimem.cuh
/// The part of the seam that accesses multicast addresses; arch.cuh says what each function guarantees.
#pragma once

#include <devcomm/arch/arch.cuh>

#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/arch_multimem.cuh>
#else
#  include <devcomm/arch/cuda_multimem.cuh>
#endif
