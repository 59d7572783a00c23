/// How the cost of a simulated program grows with its ranks.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "support/watched.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <ctime>
#include <stdexcept>

using namespace devcomm;

namespace {

/// A rank's work does not depend on how many there are.
__global__ void touch(device_comm comm, sym_ptr<int> data) {
  const team ranks = comm.lsa();
  if (threadIdx.x == 0 && blockIdx.x == 0) ++data.lsa((ranks.rank + 1) % ranks.size)[0];
}

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// Of a program that starts, allocates, launches several times with a wait after each, and ends.
double seconds_with(int ranks) {
  const double start = processor_seconds();
  host::run_ranks({.ranks = ranks}, [](host::communicator& comm) {
    const host::device_communicator device_comm = comm.create_device_comm(comm.requirements());
    const host::symmetric_memory memory = comm.allocate(4096);
    for (int i = 0; i < 20; ++i) {
      launch(touch, {.grid = 2, .block = 32}, device_comm.get(), memory.pointer<int>());
      check_cuda(cudaDeviceSynchronize(), "touch");
      device_comm.check();
      comm.barrier();
    }
    int touched = 0;
    check_cuda(cudaMemcpy(&touched, memory.pointer<int>().local(), sizeof touched, cudaMemcpyDefault), "copy");
    if (touched != 20) throw std::runtime_error("a launch was lost");
  });
  return processor_seconds() - start;
}

}  // namespace

TEST_CASE("start-up and launches take time in proportion to ranks") {
  // 4 where nothing else costs, 16 where all ranks cost all ranks something. Clocks of the race detector grow with
  // them.
  const double most = test::is_watched ? 12 : 8;
  // The best of several: other programs run on the machine.
  double few = seconds_with(16);
  double many = seconds_with(64);
  for (int i = 0; i < 10 && many >= most * few; ++i) {
    few = std::min(few, seconds_with(16));
    many = std::min(many, seconds_with(64));
  }
  INFO("16 ranks: " << few << " s, 64 ranks: " << many << " s");
  CHECK(many < most * few);
}
