// Channels whose ends are in different processes, over libfabric: rings with links by stores and by puts.
#include <devcomm/devcomm.cuh>

#include <devcomm/host/communicator.hpp>

#include "channel/ring_operations.cuh"
#include "host/communicator/rank_harness.hpp"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

using namespace devcomm;
using namespace std::chrono_literals;
using devcomm_test::all_ok;
using devcomm_test::outcomes;
using ring_test::protocol;

namespace {

/// Four ranks, processes of their own, on two hosts of two.
outcomes on_two_hosts(const std::function<void(host::communicator&)>& program,
                      std::chrono::milliseconds timeout = 0ms) {
  const std::string provider = GENERATE("tcp;ofi_rxm", "shm");
  CAPTURE(provider);
  host::communicator_options options;
  options.lsa_size = 2;
  if (timeout != 0ms) options.kernel_timeout = timeout;
  return devcomm_test::on_processes(4, [&](auto bootstrap) {
    ::setenv("DEVCOMM_GIN_PROVIDER", provider.c_str(), 1);
    host::communicator comm(std::move(bootstrap), options);
    program(comm);
  });
}

channel::network_fifos fifos_of(const host::communicator& comm) {
  return {.contexts = {.world = comm.world(), .count = 2}, .count = ring_test::blocks, .packs = 30, .slots = 2};
}

__global__ void reduce_until_failure(device_comm comm, channel::fifo_handle<protocol::network> fifos, float* data,
                                     std::uint64_t count, status* outcome) {
  channel::session ring{block{}, comm, fifos, channel::from_previous(comm.world(), blockIdx.x),
                        channel::to_next(comm.world(), blockIdx.x)};
  const slice packs = collective::slice_of_block(packs_of<float>(count));
  status said = status::success;
  while (said == status::success) {
    collective::all_reduce_ring<float>(ring, packs, collective::from_memory<float>{data, count},
                                       collective::to_memory<float>{data, count}, average{});
    said = ring.agree();
  }
  if (threadIdx.x == 0) outcome[blockIdx.x] = said;
}

}  // namespace

TEST_CASE("between processes collectives over hosts that go round a ring are right") {
  const auto ends = on_two_hosts([](host::communicator& comm) {
    for (const bool in_order : {false, true}) {
      auto needs = comm.requirements();
      const auto fifos = needs.add(fifos_of(comm));
      const auto device_comm = comm.create_device_comm(needs);
      ring_test::require_rings(comm, device_comm, fifos, comm.world(), 301, 1, in_order);
      comm.barrier();
    }
  });
  CHECK(ends == all_ok(4));
}

TEST_CASE("a process killed in a ring over hosts ends all others, and is named") {
  const auto ends = on_two_hosts(
      [](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto fifos = needs.add(fifos_of(comm));
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<float> data(500);
        const test::device_array<status> outcome(ring_test::blocks);
        comm.barrier();
        if (comm.rank() == 3) {
          std::thread([] {
            std::this_thread::sleep_for(300ms);
            ::raise(SIGKILL);
          }).detach();
        }
        launch(reduce_until_failure, {.grid = ring_test::blocks, .block = 64, .stream = cudaStreamPerThread},
               device_comm.get(), fifos, data.get(), data.size(), outcome.get());
        test::finish("reduce_until_failure");
        for (const status each : outcome.read()) test::require(each != status::success, "the waits fail");
        device_comm.check();
      },
      5s);
  CHECK(ends[3] == "signal 9");
  for (std::size_t rank = 0; rank < 3; ++rank) {
    INFO(ends[rank]);
    CHECK((ends[rank].starts_with("remote_error(3)") || ends[rank].find("rank 3") != std::string::npos));
  }
}
