// Tiles have the sizes that divide a warp evenly.
#include <devcomm/devcomm.cuh>

#if defined(CORRECTED)
constexpr int lanes = 4;
#else
constexpr int lanes = 3;
#endif

__global__ void kernel() { devcomm::tile<lanes>::sync(); }
