// Halves are added where floats are.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  memory.multimem<float>().reduce<sum>(1.0f);
#else
  memory.multimem<float>().reduce<sum>(pack<__half>{});
#endif
}
