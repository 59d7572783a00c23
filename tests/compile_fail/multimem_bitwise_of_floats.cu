// PTX has bitwise operations of integers.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  static_cast<void>(memory.multimem<float>().as<std::uint32_t>().load_reduce<bitwise_or>());
#else
  static_cast<void>(memory.multimem<float>().load_reduce<bitwise_or>());
#endif
}
