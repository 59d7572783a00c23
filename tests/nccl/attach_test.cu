/// devcomm's communicator over the ranks of one of NCCL's, which goes on beside it.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/nccl_bootstrap.hpp>

#include "nccl/on_ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <string>

namespace {

__global__ void sum_of_ranks(devcomm::device_comm comm, devcomm::window memory, float* out) {
  devcomm::lsa::barrier_session barrier(devcomm::block{}, comm, 0);
  *reinterpret_cast<float*>(memory.local_pointer()) = static_cast<float>(comm.rank + 1);
  barrier.sync(devcomm::memory_order::acq_rel);
  float sum = 0;
  for (int peer = 0; peer < comm.lsa_size; ++peer) sum += *reinterpret_cast<const float*>(memory.lsa_pointer(peer));
  *out = sum;
  barrier.sync(devcomm::memory_order::acq_rel);
}

}  // namespace

TEST_CASE("an NCCL communicator's ranks are those of devcomm's, and both go on") {
  on_ranks(3, [](ncclComm_t comm, int rank) {
    devcomm::host::communicator ranks(devcomm::host::nccl_bootstrap(comm));
    require(ranks.rank() == rank && ranks.size() == 3, "rank and size");
    const auto memory = ranks.allocate(64);
    const auto needs = ranks.requirements().lsa_barriers(1);
    const auto device = ranks.create_device_comm(needs);
    float* out = nullptr;
    ok(cudaMalloc(reinterpret_cast<void**>(&out), 2 * sizeof(float)));
    devcomm::launch(sum_of_ranks, one_block(1), device.get(), memory.window(), out);
    ok(ncclAllReduce(out, out + 1, 1, ncclFloat, ncclSum, comm, cudaStreamPerThread));
    float sums[2] = {};
    ok(cudaMemcpyAsync(sums, out, sizeof sums, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    finish();
    require(sums[0] == 6 && sums[1] == 18, "sums " + std::to_string(sums[0]) + " and " + std::to_string(sums[1]));
    ok(cudaFree(out));
  });
}

TEST_CASE("a rank of an NCCL communicator that does not come is waited for no longer than the limit") {
  on_ranks(2, [](ncclComm_t comm, int rank) {
    ncclComm_t second = nullptr;
    ok(ncclCommSplit(comm, 0, rank, &second, nullptr));
    std::string said;
    if (rank == 0) {
      try {
        static_cast<void>(devcomm::host::nccl_bootstrap(second, std::chrono::milliseconds(100)));
      } catch (const devcomm::host::error& error) {
        said = error.what();
      }
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    ok(ncclCommAbort(second));
    static_cast<void>(cudaGetLastError());
    require(rank == 1 || said.find("not all ranks of the NCCL communicator came within 100 ms") != std::string::npos,
            said);
  });
}
