// A broadcast copies bytes, so what owns something cannot be sent.
#include <devcomm/devcomm.cuh>

struct owner {
  int value = 0;
#if !defined(CORRECTED)
  DEVCOMM_DEVICE owner(const owner& other) : value(other.value + 1) {}
#endif
  owner() = default;
};

__global__ void kernel(int* out) { *out = devcomm::block::broadcast(owner{}, 0).value; }
