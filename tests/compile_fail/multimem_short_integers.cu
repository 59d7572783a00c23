// PTX has no integers of 2 bytes.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  static_cast<void>(memory.multimem<std::int32_t>().load_reduce<sum>());
#else
  static_cast<void>(memory.multimem<std::int16_t>().load_reduce<sum, 4>());
#endif
}
