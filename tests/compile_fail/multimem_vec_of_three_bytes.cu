// Elements of three bytes do not fill four.
#include <devcomm/multimem/ptr.cuh>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

using namespace devcomm;

struct channel {
  unsigned char value;
};
struct color {
  unsigned char red, green, blue;
};

__global__ void kernel(window memory) {
#if defined(CORRECTED)
  memory.multimem<channel>().store(multimem::vec<channel, 4>{{{0}, {1}, {2}, {3}}});
#else
  memory.multimem<color>().store(multimem::vec<color, 4>{{{0, 1, 2}}});
#endif
}
