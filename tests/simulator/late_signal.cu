// A right kernel, compiled as users do for AddressSanitizer: a rank waits long for a signal.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <cstdio>

using namespace devcomm;

__global__ void late(device_comm comm, lsa::signal_handle signals) {
  lsa::signal_session s{block{}, comm, signals, 0};
  if (comm.rank == 1) {
    const long long begin = clock64();
    while (clock64() - begin < 300000) {
    }
    s.add(0, 1);
  } else {
    s.take(1);
  }
}

int main() {
  host::run_ranks({.ranks = 2}, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto dc = comm.create_device_comm(needs);
    launch(late, {.grid = 1, .block = 64}, dc.get(), signals);
    check_cuda(cudaDeviceSynchronize(), "late");
    dc.check();
    comm.barrier();
  });
  std::puts("right");
}
