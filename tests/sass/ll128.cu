// A kernel that waits for lines, as LL128 mailboxes do.
#include <devcomm/devcomm.cuh>

using namespace devcomm;

__global__ void receive(device_comm comm, lsa::ll128_handle mailboxes, float* out, int rounds) {
  lsa::ll128_session session{block{}, comm, mailboxes, blockIdx.x};
  for (int round = 0; round < rounds; ++round) {
    session.begin_round();
    for (auto at = session.cursor(); at.first() < 30; at.next()) {
      pack<float> values[1];
      session.receive_packs(0, 1, at, values);
      if (at.is_below(30)) store_pack(out + at.index() * 4, values[0]);
    }
  }
}
