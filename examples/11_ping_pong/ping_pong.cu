/// Ping-pong by a signal: ranks 0 and 1, 2 and 3, and so on throw a ball to each other, and each hit adds 1 to it. What
/// a hit takes is the latency of a flag.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

__global__ void ping_pong(device_comm comm, lsa::signal_handle signals, sym_ptr<float> ball, int rounds) {
  lsa::signal_session signal{block{}, comm, signals, 0};
  const int me = comm.lsa_rank(), peer = me ^ 1;
  if (peer >= comm.lsa_size) return;  // the last of an odd number of ranks has nobody to play with
  for (int round = 0; round < rounds; ++round) {
    if (me % 2 == 1) signal.take(peer);  // the ball is here, and all threads see it
    ball.lsa(peer)[threadIdx.x] = ball.local()[threadIdx.x] + 1;
    signal.add(peer, 1);  // after what all threads of the block wrote
    if (me % 2 == 0) signal.take(peer);
  }
}

void play(host::communicator& comm) {
  requirements needs = comm.requirements();
  const lsa::signal_handle signals = needs.add(lsa::signals{comm.lsa(), 1});
  const host::device_communicator device_comm = comm.create_device_comm(needs);
  const host::symmetric_memory ball = comm.allocate(256 * sizeof(float));
  launch(ping_pong, {.grid = 1, .block = 256}, device_comm.get(), signals, ball.pointer<float>(), 100);
  check_cuda(cudaDeviceSynchronize(), "ping_pong");
  device_comm.check();
  const int me = comm.lsa().rank;
  const auto hits = static_cast<float>((me ^ 1) < comm.lsa().size ? 200 - me % 2 : 0);  // the last one was rank 1's
  example::expect(ball.pointer<float>().local(), 256, "ball", [hits](std::uint64_t) { return hits; });
  if (comm.rank() == 0) std::printf("ping_pong: %g hits correct on %d ranks\n", hits, comm.size());
}

int main() {
  return example::run([] { host::run_ranks({}, play); });
}
