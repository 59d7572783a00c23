// Where ranks run, and what they are told of it: hosts, PID namespaces and shared GPUs.
#include <devcomm/host/communicator.hpp>

#include "rank/topology.hpp"
#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cuda_runtime_api.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace devcomm;
using namespace devcomm_test;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// As a rank sends it.
std::string pid_space() {
  struct stat space {};
  require(::stat("/proc/self/ns/pid", &space) == 0, "there is a PID namespace");
  const std::uint64_t number = space.st_ino;
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

/// By which ranks know each other's hosts.
std::string host_name() {
  const auto name = host::detail::name_of_host();
  return {reinterpret_cast<const char*>(name.data()), name.size()};
}

/// A process for each character of `hosts`, on host 'a' or on host 'b', which are one machine.
outcomes on_two_hosts(const std::string& hosts, const std::function<void(host::communicator&)>& body) {
  return on_processes(static_cast<int>(hosts.size()), [&](auto bootstrap) {
    const bool elsewhere = hosts[static_cast<std::size_t>(bootstrap->rank())] == 'b';
    host::communicator comm(
        std::make_shared<altered_bootstrap>(std::move(bootstrap), elsewhere ? host_name() : std::string()));
    body(comm);
    comm.barrier();
  });
}

/// The window holds each rank's number; `mine` are the ranks that this one reaches.
void require_reach(const host::communicator& comm, const window& memory, const std::vector<int>& mine) {
  require(comm.lsa_ranks() == mine, "the LSA team is who can be reached");
  require(memory.lsa_size == static_cast<int>(mine.size()), "windows have a slot for each of them");
  for (int rank = 0; rank < comm.size(); ++rank) {
    const char* const theirs = memory.peer_pointer(rank);
    const auto found = std::find(mine.begin(), mine.end(), rank);
    require((theirs != nullptr) == (found != mine.end()), "members of the LSA team have an address, others none");
    if (theirs == nullptr) continue;
    require(*theirs == static_cast<char>(rank + 1), "it is that rank's memory");
    require(memory.lsa_pointer(static_cast<int>(found - mine.begin())) == theirs, "members ascend");
  }
}

}  // namespace

TEST_CASE("processes on hosts that differ in size, or that are dealt in turn, reach those of their host") {
  const std::string hosts = GENERATE(as<std::string>{}, "aaabbbb", "abab", "abba");
  CAPTURE(hosts);
  const auto ends = on_two_hosts(hosts, [&](host::communicator& comm) {
    std::vector<int> mine;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      if (hosts[rank] == hosts[static_cast<std::size_t>(comm.rank())]) mine.push_back(static_cast<int>(rank));
    }
    const auto memory = comm.allocate(4096);
    *static_cast<char*>(memory.data()) = static_cast<char>(comm.rank() + 1);
    comm.barrier();
    require_reach(comm, memory.window(), mine);

    void* own = nullptr;
    require(cudaMalloc(&own, 4096) == cudaSuccess, "there is memory");
    *static_cast<char*>(own) = static_cast<char>(comm.rank() + 1);
    {
      const auto registered = comm.register_memory(own, 4096);
      require_reach(comm, registered.window(), mine);
      comm.barrier();
    }
    require(cudaFree(own) == cudaSuccess, "it is freed");
    const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(4));
    comm.barrier();
    require(comm.properties().rail.available == (hosts == "abab"), comm.properties().rail.reason);
  });
  CHECK(ends == all_ok(static_cast<int>(hosts.size())));
}

TEST_CASE("an NVLink domain that spans hosts is one LSA team, by fabric handles") {
  ::setenv("DEVCOMM_NVLINK_DOMAIN", "rack 7", 1);
  const auto ends = on_two_hosts("abab", [](host::communicator& comm) {
    const auto memory = comm.allocate(4096);
    require(memory.handle_type() == "fabric", "descriptors do not leave a host: " + memory.handle_type());
    *static_cast<char*>(memory.data()) = static_cast<char>(comm.rank() + 1);
    comm.barrier();
    require_reach(comm, memory.window(), {0, 1, 2, 3});
    require(comm.lsa_ring() == std::vector<int>{0, 2, 1, 3}, "a ring enters each host once");

    void* own = nullptr;
    require(cudaMalloc(&own, 4096) == cudaSuccess, "there is memory");
    const std::string text = text_of<host::not_supported>([&] { static_cast<void>(comm.register_memory(own, 4096)); });
    require(contains(text, "is on another host; use communicator::allocate"), "CUDA IPC ends with a host: " + text);
    require(cudaFree(own) == cudaSuccess, "it is freed");
  });
  CHECK(ends == all_ok(4));

  ::setenv("DEVCOMM_MEMORY_HANDLE", "file_descriptor", 1);
  const auto apart = on_two_hosts("aabb", [](host::communicator& comm) {
    require(comm.lsa().size == 2, "without fabric handles teams end with a host");
    require(contains(comm.properties().lsa.reason, "is on another host"), comm.properties().lsa.reason);
  });
  ::unsetenv("DEVCOMM_MEMORY_HANDLE");
  ::unsetenv("DEVCOMM_NVLINK_DOMAIN");
  CHECK(apart == all_ok(4));
}

TEST_CASE("a ring goes round by the PCI addresses of the devices") {
  const std::vector<int> devices = {3, 0, 2, 1};
  const int inside = GENERATE(0, 1);
  const rank_body body = [&](auto bootstrap) {
    const int mine = devices[static_cast<std::size_t>(bootstrap->rank())];
    host::communicator comm(std::move(bootstrap), {.device = mine});
    require(comm.lsa_ring() == std::vector<int>{1, 3, 2, 0}, "the order of the devices");
    comm.barrier();
  };
  const auto ends = inside == 0 ? on_threads(4, body) : on_processes(4, body);
  CHECK(ends == all_ok(4));
}

TEST_CASE("ranks in different PID namespaces share windows, and are told why they cannot register memory") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    const bool elsewhere = bootstrap->rank() == 1;
    host::communicator comm(
        std::make_shared<altered_bootstrap>(std::move(bootstrap), elsewhere ? pid_space() : std::string()));
    require(comm.lsa().size == 2, "descriptors cross PID namespaces");
    const auto memory = comm.allocate(4096);
    *static_cast<int*>(memory.data()) = comm.rank() + 1;
    comm.barrier();
    require(*reinterpret_cast<int*>(memory.window().lsa_pointer(1 - comm.rank())) == 2 - comm.rank(), "and bytes too");

    const host::capability& ipc = comm.properties().cuda_ipc;
    require(!ipc.available, "there is no CUDA IPC");
    require(contains(ipc.reason, "rank " + std::to_string(1 - comm.rank()) + " is in another PID namespace"),
            "properties have the reason: " + ipc.reason);
    void* own = nullptr;
    require(cudaMalloc(&own, 4096) == cudaSuccess, "there is memory");
    const std::string text = text_of<host::not_supported>([&] { static_cast<void>(comm.register_memory(own, 4096)); });
    require(contains(text, "is in another PID namespace") && contains(text, "use communicator::allocate"),
            "and so has the error: " + text);
    require(cudaFree(own) == cudaSuccess, "it is freed");
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("ranks of one PID namespace have CUDA IPC") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    require(comm.properties().cuda_ipc.available, comm.properties().cuda_ipc.reason);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("ranks that share a GPU are told with whom") {
  const int inside = GENERATE(0, 1);
  CAPTURE(inside);
  const rank_body body = [](auto bootstrap) {
    const int mine = bootstrap->rank() == 1 ? 1 : 0;
    host::communicator comm(std::move(bootstrap), {.device = mine});
    const host::capability& own = comm.properties().own_device;
    require(own.available == (comm.rank() == 1), "rank 1 has a GPU of its own, the others share one");
    const std::string text = to_string(comm.properties());
    if (comm.rank() == 1) require(contains(text, "GPU of its own: yes"), text);
    if (comm.rank() == 0) require(contains(text, "GPU of its own: no (it is shared with rank 2: "), text);
    if (comm.rank() == 2) require(contains(own.reason, "shared with rank 0: "), own.reason);

    // Rank 1 has its own, and may still wait for a rank whose launch is held back.
    const std::string cause = "(ranks 0 and 2 share GPUs: ";
    {
      const auto device_comm = comm.create_device_comm(comm.requirements());
      failure_log& log = *device_comm.get().failures;
      log.records[0] = {1, status::aborted, operation::lsa_barrier, 3, 0, 1, 7, 0, 5, 4, {}, {}, {}, {}, 3, 0};
      const std::string other = text_of<host::kernel_error>([&] { comm.check(); });
      require(!contains(other, cause), "nothing is said of waits that did not time out: " + other);
      log.records[1] = {1, status::timeout, operation::lsa_barrier, 3, 0, 1, 8, 0, 5, 4, {}, {}, {}, {}, 3, 0};
      const std::string timeout = text_of<host::kernel_error>([&] { device_comm.check(); });
      require(contains(timeout, cause) && contains(timeout, "host::prepare"), timeout);
    }
    const std::string past = text_of<host::kernel_error>([&] { comm.check(); });
    require(contains(past, cause), "it is said of destroyed device communicators, too: " + past);
    comm.barrier();
  };
  const auto ends = inside == 0 ? on_threads(3, body) : on_processes(3, body);
  CHECK(ends == all_ok(3));
}
