// NVLink domains that span hosts, as NVML tells of them: a stand-in for the driver, and one for NVML.
#include <devcomm/host/communicator.hpp>

#include "rank/topology.hpp"
#include "stand_in.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

using namespace devcomm;
using namespace devcomm_test;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string host_name() {
  const auto name = host::detail::name_of_host();
  return {reinterpret_cast<const char*>(name.data()), name.size()};
}

const std::string nvml = std::string(STAND_IN_NVML) + "/libnvidia-ml.so.1";
const std::string old_nvml = std::string(STAND_IN_OLD_NVML) + "/libnvidia-ml.so.1";

/// A process for each character of `hosts`, on host 'a' or 'b', which are one machine. The host library finds `library`
/// where that is not empty, as it is loaded by then; else a file that is no library.
outcomes on_hosts(const std::string& hosts, const std::string& library, const variables& set,
                  const std::function<void(int rank)>& prepare, const std::function<void(host::communicator&)>& body) {
  return on_stand_in(
      static_cast<int>(hosts.size()), 1,
      [&](auto bootstrap) {
        if (!library.empty()) {
          require(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr, "there is a stand-in for NVML");
        }
        prepare(bootstrap->rank());
        const bool elsewhere = hosts[static_cast<std::size_t>(bootstrap->rank())] == 'b';
        host::communicator comm(
            std::make_shared<altered_bootstrap>(std::move(bootstrap), elsewhere ? host_name() : std::string()));
        body(comm);
        comm.barrier();
      },
      set);
}

void no_more(int) {}

}  // namespace

TEST_CASE("GPUs of one cluster and clique form an LSA team across hosts, as NVML of any version tells") {
  const std::string library = GENERATE(nvml, old_nvml);
  const auto ends = on_hosts(
      "abab", library, {{"STAND_IN_NVML_CLUSTER", "rack7"}, {"STAND_IN_NVML_CLIQUE", "12"}}, no_more,
      [](host::communicator& comm) {
        const host::capability& domain = comm.properties().nvlink_domain;
        require(domain.available, "there is a domain: " + domain.reason);
        require(domain.reason == "cluster 7261636b370000000000000000000000, clique 12, says NVML", domain.reason);
        require(contains(to_string(comm.properties()), "NVLink domain across hosts: yes (cluster 7261636b37"),
                to_string(comm.properties()));
        require(comm.lsa().size == 4, "it is a team: " + comm.properties().lsa.reason);
        const auto memory = comm.allocate(5000);
        require(memory.handle_type() == "fabric", "descriptors do not leave a host: " + memory.handle_type());
        const window& w = memory.window();
        std::memset(w.local, comm.rank() + 1, w.bytes);
        comm.barrier();
        for (int member = 0; member < 4; ++member) {
          require(w.lsa_pointer(member)[w.bytes - 1] == static_cast<char>(member + 1), "memory is shared");
        }
        comm.barrier();
      });
  CHECK(ends == all_ok(4));
}

TEST_CASE("another cluster or clique is another domain") {
  const std::string differs = GENERATE("STAND_IN_NVML_CLUSTER", "STAND_IN_NVML_CLIQUE");
  CAPTURE(differs);
  const auto ends = on_hosts(
      "aabb", nvml, {{"STAND_IN_NVML_CLUSTER", "1"}, {"STAND_IN_NVML_CLIQUE", "1"}},
      [&](int rank) {
        if (rank >= 2) ::setenv(differs.c_str(), "2", 1);
      },
      [](host::communicator& comm) {
        require(comm.lsa().size == 2, "teams end with the domain");
        require(contains(comm.properties().lsa.reason, "is on another host, outside the NVLink domain"),
                comm.properties().lsa.reason);
      });
  CHECK(ends == all_ok(4));
}

TEST_CASE("a host whose GPUs are in different domains keeps to itself, and says so") {
  const auto ends = on_hosts(
      "aabb", nvml, {{"STAND_IN_NVML_CLUSTER", "rack7"}},
      [&](int rank) {
        if (rank == 3) ::setenv("STAND_IN_NVML_CLIQUE", "2", 1);
      },
      [](host::communicator& comm) {
        require(comm.lsa().size == 2, "teams of a host");
        const host::capability& domain = comm.properties().nvlink_domain;
        require(domain.available == (comm.rank() < 2), domain.reason);
        if (comm.rank() < 2) return;
        require(contains(domain.reason, "not all ranks of this host are in that of this rank: cluster "),
                domain.reason);
      });
  CHECK(ends == all_ok(4));
}

TEST_CASE("DEVCOMM_NVLINK_DOMAIN goes before NVML") {
  const auto ends = on_hosts(
      "ab", nvml, {{"DEVCOMM_NVLINK_DOMAIN", "rack 7"}},
      [](int rank) { ::setenv("STAND_IN_NVML_CLUSTER", rank == 0 ? "a" : "b", 1); },
      [](host::communicator& comm) {
        require(comm.lsa().size == 2, "it is a team: " + comm.properties().lsa.reason);
        require(comm.properties().nvlink_domain.reason == "DEVCOMM_NVLINK_DOMAIN is rack 7",
                comm.properties().nvlink_domain.reason);
      });
  CHECK(ends == all_ok(2));
}

TEST_CASE("what keeps GPUs out of a domain across hosts is said, and is no error") {
  struct absence {
    std::string library;
    variables set;
    std::string reason;
  };
  const std::string cluster = "STAND_IN_NVML_CLUSTER";
  const std::string state = "STAND_IN_NVML_STATE";
  const std::string fails = "STAND_IN_NVML_FAIL";
  const absence cause = GENERATE_COPY(
      absence{"", {}, "NVML cannot be loaded: "},
      absence{nvml, {{cluster, ""}}, "ends with this host: its cluster has no UUID"},
      absence{nvml, {{cluster, "x"}, {state, "0"}}, "is part of no NVLink fabric"},
      absence{nvml, {{cluster, "x"}, {fails, "nvmlDeviceGetGpuFabricInfo:3"}}, "is part of no NVLink fabric"},
      absence{nvml, {{cluster, "x"}, {state, "1"}}, "has not begun to join its NVLink fabric; see the logs of nvidia-"},
      absence{
          nvml, {{cluster, "x"}, {state, "2"}}, "is still joining its NVLink fabric; start again later, or see the"},
      absence{nvml, {{cluster, "x"}, {state, "7"}}, "a state of the NVLink fabric that this version does not know, 7"},
      absence{
          nvml, {{cluster, "x"}, {"STAND_IN_NVML_STATUS", "999"}}, "could not join its NVLink fabric: Unknown Error"},
      absence{
          nvml, {{cluster, "x"}, {fails, "nvmlInit_v2:999"}}, "NVML does not report it: nvmlInit_v2: Unknown Error"},
      absence{nvml,
              {{cluster, "x"}, {fails, "nvmlDeviceGetHandleByUUID:6"}},
              "NVML does not report it: nvmlDeviceGetHandleByUUID: Not Found"},
      absence{nvml,
              {{cluster, "x"}, {fails, "nvmlDeviceGetGpuFabricInfo:999"}},
              "NVML does not report it: nvmlDeviceGetGpuFabricInfo: Unknown Error"},
      absence{
          nvml, {{cluster, "x"}, {"STAND_IN_CUDA_FABRIC", "0"}}, "by fabric handles, and there are none: the driver"},
      absence{nvml,
              {{cluster, "x"}, {"DEVCOMM_MEMORY_HANDLE", "file_descriptor"}},
              "by fabric handles, and DEVCOMM_MEMORY_HANDLE is file_descriptor"});
  CAPTURE(cause.reason);
  const auto ends = on_hosts("aab", cause.library, cause.set, no_more, [&](host::communicator& comm) {
    require(comm.lsa().size == (comm.rank() < 2 ? 2 : 1), "teams of a host");
    const host::capability& domain = comm.properties().nvlink_domain;
    require(!domain.available, "there is none: " + domain.reason);
    require(contains(domain.reason, cause.reason), domain.reason);
    const auto memory = comm.allocate(5000);
    comm.barrier();
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("on one host NVML is not loaded") {
  const auto ends = on_hosts("aa", "", {}, no_more, [](host::communicator& comm) {
    require(comm.properties().nvlink_domain.reason == "all ranks are on one host",
            comm.properties().nvlink_domain.reason);
  });
  CHECK(ends == all_ok(2));
}
