// Windows with multimem on simulated GPUs, which have a switch.
#include <devcomm/host/communicator.hpp>
#include <devcomm/multimem/window_record.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace devcomm;
using namespace devcomm_test;

namespace {

/// ctest forbids multicast, for the sake of real switches.
void allow_multicast() {
  ::unsetenv("NCCL_NVLS_ENABLE");
  ::unsetenv("DEVCOMM_NVLS_ENABLE");
}

multimem::window_record multimem_of(const window& w) {
  require(w.base != nullptr && w.multicast != nullptr, "a window with multimem is strided and has a record");
  multimem::window_record record{};
  std::memcpy(&record, w.multicast, sizeof record);
  require(record.members == static_cast<std::uint64_t>(w.lsa_size), "its members are those of the team");
  return record;
}

/// Of a window with multimem: unicast memory as in any other.
void exchange_ranks(host::communicator& comm, const window& w) {
  std::memset(w.local, comm.rank() + 1, w.bytes);
  comm.barrier();
  for (int member = 0; member < w.lsa_size; ++member) {
    require(w.lsa_pointer(member)[w.bytes - 1] == static_cast<char>(comm.lsa().world_rank(member) + 1),
            "the bytes of a member are what it wrote");
  }
  comm.barrier();
}

}  // namespace

TEST_CASE("simulated ranks, threads and processes, bind their windows to a multicast object") {
  struct shape {
    int ranks;
    int inside;
    int lsa_size;
  };
  const shape job = GENERATE(shape{2, 2, 0}, shape{3, 3, 0}, shape{4, 4, 2}, shape{2, 1, 0}, shape{4, 2, 0});
  CAPTURE(job.ranks, job.inside, job.lsa_size);
  allow_multicast();
  const auto ends = on_processes(
      job.ranks,
      [&](auto bootstrap) {
        host::communicator comm(std::move(bootstrap), {.lsa_size = job.lsa_size});
        for (int round = 0; round < 3; ++round) {
          const auto memory = comm.allocate(10007, "shared", host::multimem_policy::required);
          require(memory.multimem().available, "there is multicast: " + memory.multimem().reason);
          require(multimem_of(memory.window()).address != nullptr, "it has an address");
          exchange_ranks(comm, memory.window());
        }
        auto needs = comm.requirements();
        needs.with(multimem::resources{host::multimem_policy::required});
        const auto device = comm.create_device_comm(needs);
        require(multimem_of(device.get().resources).address != nullptr, "so have resources");
        comm.barrier();
      },
      job.inside);
  CHECK(ends == all_ok(job.ranks));
}

TEST_CASE("simulated ranks without a switch go by software, or fail by name") {
  allow_multicast();
  ::setenv("DEVCOMM_SIM_MULTICAST", "none", 1);
  const auto ends = on_processes(
      2,
      [&](auto bootstrap) {
        host::communicator comm(std::move(bootstrap));
        const auto memory = comm.allocate(100, {}, host::multimem_policy::or_software);
        require(!memory.multimem().available && multimem_of(memory.window()).address == nullptr, "it has no address");
        exchange_ranks(comm, memory.window());
        const std::string text =
            text_of<host::not_supported>([&] { (void)comm.allocate(100, {}, host::multimem_policy::required); });
        require(text.find("have no NVLink switch") != std::string::npos, "the reason is told: " + text);
      },
      2);
  ::unsetenv("DEVCOMM_SIM_MULTICAST");
  CHECK(ends == all_ok(2));
}

TEST_CASE("windows with multimem leave no descriptor or mapping behind") {
  allow_multicast();
  const auto ends = on_processes(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto round = [&] {
      {
        const auto memory = comm.allocate(4096, {}, host::multimem_policy::required);
        comm.barrier();
      }
      comm.barrier();
    };
    for (int i = 0; i < 3; ++i) round();
    const holdings before = count_holdings();
    constexpr int rounds = 20;
    for (int i = 0; i < rounds; ++i) round();
    const holdings after = count_holdings();
    // The thread that reads links opens and closes some at times of its own; a leak would be one for each round.
    const auto compare = [](const char* what, auto now, auto then) {
      require(now < then + rounds / 2,
              std::string(what) + ": " + std::to_string(now) + " after " + std::to_string(then));
    };
    compare("descriptors", after.descriptors, before.descriptors);
    compare("mappings", after.mappings, before.mappings);
  });
  CHECK(ends == all_ok(2));
}
