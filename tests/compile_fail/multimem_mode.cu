// A type that is no mode.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  multimem::ptr<float, multimem::software>(memory).store(1.0f);
#else
  multimem::ptr<float, multimem::value<float, 4>>(memory).store(1.0f);
#endif
}
