// A session is its group's hold on a barrier: it is not copied.
#include <devcomm/devcomm.cuh>

__global__ void kernel(devcomm::device_comm comm) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, 0};
#if defined(CORRECTED)
  auto& same = barrier;
#else
  auto same = barrier;
#endif
  same.sync(devcomm::memory_order::acq_rel);
}
