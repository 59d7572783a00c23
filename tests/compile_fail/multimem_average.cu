// A switch does not divide.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  static_cast<void>(memory.multimem<float>().load_reduce<sum>());
#else
  static_cast<void>(memory.multimem<float>().load_reduce<average>());
#endif
}
