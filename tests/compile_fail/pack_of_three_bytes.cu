// Packs are 16 bytes of whole elements.
#include <devcomm/devcomm.cuh>

struct pixel {
  unsigned char channels[3];
#if defined(CORRECTED)
  unsigned char padding;
#endif
};

__global__ void kernel(pixel* from, pixel* to) { devcomm::store_pack(to, devcomm::load_pack(from)); }
