// At which address of this host the ranks of a child on other hosts reach it.
#include "util/outside_address.hpp"
#include "rank_harness.hpp"

#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>
#include <devcomm/host/unique_id.hpp>

#include <catch2/catch_test_macros.hpp>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm::host;
using namespace devcomm::host::detail;
using devcomm_test::require;
using devcomm_test::text_of;
using namespace std::chrono_literals;

namespace {

using interfaces = std::vector<interface_address>;

const interfaces loopback = {{"lo", "127.0.0.1", false}, {"lo", "::1", true}};

interfaces with(const interfaces& more) {
  interfaces all = loopback;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// A bridge comes first, as it may.
const interfaces several = with({{"docker0", "172.17.0.1", false},
                                 {"eth0", "2001:db8::7", true},
                                 {"eth0", "fe80::7", true},
                                 {"eth0", "10.0.0.7", false},
                                 {"ib0", "10.1.0.7", false}});

environment from(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// Two hosts, which are network namespaces of two processes.

bool runs(const std::string& commands) {
  return std::system(("{ " + commands + "; } >/dev/null 2>&1").c_str()) == 0;  // NOLINT(cert-env33-c)
}

bool may_make_hosts() {
  const auto ends = devcomm_test::on_processes(1, [](auto) {
    const bool made = ::unshare(CLONE_NEWNET) == 0 && runs("ip link add eth0 type veth peer name eth1") &&
                      runs("ip link add bridge0 type bridge") && runs("ip link set eth0 up") &&
                      runs("ip address add fd00::1/64 dev eth0 nodad");
    require(made, "namespaces and interfaces can be made");
  });
  return ends == devcomm_test::all_ok(1);
}

/// How far the two hosts are.
struct two_hosts {
  std::atomic<pid_t> other{0};     ///< rank 1, in its namespace
  std::atomic<bool> cable{false};  ///< eth0 is on both
};

void wait_until(const auto& holds) {
  for (int i = 0; i < 3000 && !holds(); ++i) std::this_thread::sleep_for(10ms);
  require(holds(), "the other host comes");
}

/// Joined by IPv6 alone. A bridge, which stands first, has the same IPv4 address on both.
void make_host(int rank, two_hosts& both) {
  require(::unshare(CLONE_NEWNET) == 0, "a namespace");
  require(runs("ip link set lo up && ip link add bridge0 type bridge && ip address add 172.17.0.1/16 dev bridge0 && "
               "ip link set bridge0 up"),
          "a bridge");
  if (rank == 1) {
    both.other = ::getpid();
    wait_until([&] { return both.cable.load(); });
  } else {
    wait_until([&] { return both.other != 0; });
    require(runs("ip link add eth0 type veth peer name eth0 netns " + std::to_string(both.other.load())), "a cable");
    both.cable = true;
  }
  require(runs("ip address add fd00::" + std::to_string(rank + 1) + "/64 dev eth0 nodad && ip link set eth0 up"),
          "an address");
}

}  // namespace

TEST_CASE("split listens where the parent's bootstrap is connected, not at the first interface") {
  CHECK(outside_address(from({}), "10.1.0.7", several) == "10.1.0.7");
  CHECK(outside_address(from({}), "2001:db8::7", several) == "2001:db8::7");
}

TEST_CASE("an interface is taken by name, and an address as it is given") {
  CHECK(outside_address(from({{"DEVCOMM_INTERFACE", "ib0"}}), "10.0.0.7", several) == "10.1.0.7");
  CHECK(outside_address(from({{"DEVCOMM_INTERFACE", "eth0"}}), "", several) == "10.0.0.7");
  CHECK(outside_address(from({{"DEVCOMM_INTERFACE", "eth0"}, {"DEVCOMM_ADDRESS", "n7"}}), "", several) == "n7");
  const std::string why = text_of<invalid_argument>([] {
    static_cast<void>(outside_address(from({{"DEVCOMM_INTERFACE", "ib1"}}), "10.0.0.7", several));
  });
  CHECK(why.starts_with("DEVCOMM_INTERFACE is \"ib1\""));
  CHECK(why.find("docker0 (172.17.0.1), eth0 (10.0.0.7), ib0 (10.1.0.7)") != std::string::npos);
}

TEST_CASE("where the bootstrap has no address, the only interface is taken, and of several none") {
  const interfaces one = with({{"eth0", "10.0.0.7", false}});
  for (const std::string unknown :
       {"", "127.0.0.1", "127.0.1.1", "::1", "fe80::7%eth0", "169.254.1.2", "::ffff:127.0.0.1", "::ffff:169.254.1.2"}) {
    CAPTURE(unknown);
    CHECK(outside_address(from({}), unknown, one) == "10.0.0.7");
    const std::string why =
        text_of<not_supported>([&] { static_cast<void>(outside_address(from({}), unknown, several)); });
    CHECK(why.find("docker0 (172.17.0.1), eth0 (10.0.0.7), ib0 (10.1.0.7)") != std::string::npos);
    CHECK(why.find("DEVCOMM_INTERFACE") != std::string::npos);
  }
}

TEST_CASE("a host with IPv6 only has an address") {
  const interfaces six = with({{"eth0", "fe80::7", true}, {"eth0", "2001:db8::7", true}});
  CHECK(outside_address(from({}), "", six) == "2001:db8::7");
  CHECK(outside_address(from({{"DEVCOMM_INTERFACE", "eth0"}}), "", six) == "2001:db8::7");
  // An address of the link alone means another host on each interface.
  const interfaces link = with({{"eth0", "fe80::7", true}});
  CHECK(text_of<not_supported>([&] {
          static_cast<void>(outside_address(from({}), "", link));
        }).find("set DEVCOMM_ADDRESS") != std::string::npos);
}

TEST_CASE("children span hosts that reach each other by IPv6 alone, whatever bridge stands first") {
  if (!may_make_hosts()) SKIP("needs root, and the program ip with veth and bridges");
  void* const page = ::mmap(nullptr, sizeof(two_hosts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto& both = *new (page) two_hosts;
  devcomm_test::process_job job(2, [&](const unique_id& id, int rank) {
    make_host(rank, both);
    const unique_id place("fd00::1", 29600, id.secret());
    communicator comm(tcp_bootstrap(place, rank, 2, 20s), {.limit = 20s});
    require(comm.lsa().size == 1, "these are two hosts");
    const auto child = comm.split(0, -rank);
    require(child->size() == 2 && child->rank() == 1 - rank, "the child spans both");
    child->split(0, 0)->barrier();
  });
  CHECK(job.finish() == devcomm_test::all_ok(2));
  ::munmap(page, sizeof(two_hosts));
}
