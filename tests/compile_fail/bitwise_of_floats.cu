// Bits of floating-point numbers mean nothing by themselves.
#include <devcomm/devcomm.cuh>

#if defined(CORRECTED)
using element = unsigned;
#else
using element = float;
#endif

__global__ void kernel(element* all, element mine) { *all = devcomm::bitwise_or{}(*all, mine); }
