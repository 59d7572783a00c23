// Lines are moved by whole warps.
#include <devcomm/devcomm.cuh>

#if defined(CORRECTED)
using group = devcomm::warp;
#else
using group = devcomm::tile<16>;
#endif

__global__ void kernel(devcomm::device_comm comm, devcomm::lsa::ll128_handle channels) {
  devcomm::lsa::ll128_session channel{group{}, comm, channels, 0};
}
