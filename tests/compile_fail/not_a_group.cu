// A session's group has the three functions of a group.
#include <devcomm/devcomm.cuh>

struct one_thread {
  DEVCOMM_DEVICE static unsigned thread_rank() { return 0; }
  DEVCOMM_DEVICE static unsigned size() { return 1; }
#if defined(CORRECTED)
  DEVCOMM_DEVICE static void sync() {}
#endif
};

__global__ void kernel(devcomm::device_comm comm) {
  devcomm::lsa::barrier_session<one_thread> barrier{one_thread{}, comm, 0};
}
