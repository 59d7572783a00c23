// PTX has no red of 8-bit floats.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  memory.multimem<__half>().reduce<sum>(pack<__half>{});
#else
  memory.multimem<__nv_fp8_e4m3>().reduce<sum>(pack<__nv_fp8_e4m3>{});
#endif
}
