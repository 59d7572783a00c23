// Lines of 128 bytes do not go by a switch.
#include <devcomm/devcomm.cuh>

#if defined(CORRECTED)
using session = devcomm::lsa::ll_session<devcomm::block>;
#else
using session = devcomm::lsa::ll128_session<devcomm::block>;
#endif

__global__ void kernel(devcomm::device_comm comm, session::handle mailboxes) {
  devcomm::multimem::packet_session<session> packets{devcomm::block{}, comm, mailboxes, 0};
}
