// Processes that do not see each other's devices, on the stand-in for the CUDA driver: containers with one GPU, MIG,
// one GPU a task.
#include <devcomm/host/communicator.hpp>

#include "stand_in.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cstdlib>
#include <cstring>
#include <string>

using namespace devcomm;
using namespace devcomm_test;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Before the driver has been called in this process.
void see_only(int gpu) { ::setenv("CUDA_VISIBLE_DEVICES", std::to_string(gpu).c_str(), 1); }

void exchange(host::communicator& comm, const window& w) {
  std::memset(w.local, comm.rank() + 1, w.bytes);
  comm.barrier();
  for (int member = 0; member < w.lsa_size; ++member) {
    require(w.lsa_pointer(member)[w.bytes - 1] == static_cast<char>(comm.lsa().world_rank(member) + 1),
            "the bytes of a member are what it wrote");
  }
  comm.barrier();
}

}  // namespace

TEST_CASE("devices that a process does not see are tried, and form a team where memory can be mapped") {
  const char* const handle = GENERATE("file_descriptor", "fabric");
  const int ranks = GENERATE(2, 3);
  CAPTURE(handle, ranks);
  const auto ends =
      on_stand_in(ranks, 1,
                  [&](auto bootstrap) {
                    const int own = bootstrap->rank();
                    see_only(own);
                    {
                      host::communicator comm(std::move(bootstrap));
                      require(comm.lsa().size == ranks, "they reach each other: " + comm.properties().lsa.reason);
                      comm.barrier();
                      require_nothing_held("after the trial");
                      const auto memory = comm.allocate(5000);
                      exchange(comm, memory.window());
                    }
                    require_nothing_held("in the end");
                  },
                  {{"DEVCOMM_MEMORY_HANDLE", handle}});
  CHECK(ends == all_ok(ranks));
}

TEST_CASE("devices that a process does not see and cannot map are in teams of their own, which work, and say why") {
  struct obstacle {
    variables set;
    std::string reason;
  };
  const auto cause = GENERATE(obstacle{{{"STAND_IN_CUDA_P2P", "0"}}, "cuMemSetAccess failed"},
                              obstacle{{{"STAND_IN_CUDA_FAIL", "cuMemImportFromShareableHandle:1"}},
                                       "cuMemImportFromShareableHandle (file descriptor) failed"},
                              obstacle{{{"STAND_IN_CUDA_FAIL", "cuMemMap:1"}}, "cuMemMap failed"});
  CAPTURE(cause.reason);
  const auto ends = on_stand_in(
      2, 1,
      [&](auto bootstrap) {
        see_only(bootstrap->rank());
        host::communicator comm(std::move(bootstrap));
        require(comm.lsa().size == 1, "there is no team of two");
        const std::string why = comm.properties().lsa.reason;
        require(contains(why, "the device of rank " + std::to_string(1 - comm.rank()) +
                                  ", which this process does not see, was tried: "),
                "the peer is named: " + why);
        require(contains(why, cause.reason), "and the reason: " + why);
        if (contains(why, "cuMemImport")) {
          require(contains(why, "(MIG, containers with one GPU), set DEVCOMM_LSA_SIZE"), "and the advice: " + why);
        }
        const auto memory = comm.allocate(5000);
        exchange(comm, memory.window());
        const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        comm.barrier();
      },
      cause.set);
  CHECK(ends == all_ok(2));
}

TEST_CASE("of processes that see all devices only the driver is asked") {
  const auto ends = on_stand_in(2, 1,
                                [&](auto bootstrap) {
                                  host::communicator comm(std::move(bootstrap));
                                  require(comm.lsa().size == 1, "there is no team of two");
                                  require(contains(comm.properties().lsa.reason, "cuDeviceCanAccessPeer says no"),
                                          comm.properties().lsa.reason);
                                  require(stand_in().calls("cuMemAddressReserve") == 0, "nothing was tried");
                                },
                                {{"STAND_IN_CUDA_P2P", "0"}});
  CHECK(ends == all_ok(2));
}
