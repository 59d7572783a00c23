// PTX has no store of 2 bytes.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  memory.multimem<__half>().store(multimem::vec<__half, 4>{});
#else
  memory.multimem<__half>().store(__half{});
#endif
}
