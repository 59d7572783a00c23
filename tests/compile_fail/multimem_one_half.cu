// PTX has no scalar form of half.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  static_cast<void>(memory.multimem<__half>().load_reduce<sum, 4>());
#else
  static_cast<void>(memory.multimem<__half>().load_reduce<sum, 2>());
#endif
}
