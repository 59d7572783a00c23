// A call with a deadline returns a status that the caller must check.
#include <devcomm/devcomm.cuh>

__global__ void kernel(devcomm::device_comm comm, bool* met) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, 0};
#if defined(CORRECTED)
  *met = barrier.sync_for(devcomm::milliseconds(5)) == devcomm::status::success;
#else
  barrier.sync_for(devcomm::milliseconds(5));
  *met = true;
#endif
}
