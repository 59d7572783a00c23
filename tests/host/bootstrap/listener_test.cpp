// Where rank 0 listens, and the addresses by which ranks know their host.
#include "job_harness.hpp"

#include "bootstrap/tcp/listener.hpp"
#include "bootstrap/tcp/socket.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

using namespace devcomm_test;
namespace host = devcomm::host;
namespace detail = devcomm::host::detail;
using strings = std::vector<std::string>;

namespace {

const strings everywhere = {"::", "0.0.0.0"};
const std::vector<detail::interface_address> interfaces = {
    {"lo", "127.0.0.1", false}, {"lo", "::1", true},           {"eth0", "10.0.0.7", false},
    {"eth0", "fe80::7", true},  {"eth0", "2001:db8::7", true}, {"docker0", "172.17.0.1", false},
    {"ib0", "10.1.0.7", false}};

/// The host and port at which `fd` is bound.
std::string bound_text(const detail::unique_fd& fd) {
  return detail::endpoint_text(detail::address_of_this_end(fd.get()), detail::bound_port(fd.get()));
}

/// In a process of its own, whose environment has it.
std::vector<outcome> with_ports(const std::string& range, int processes, const rank_body& body) {
  return on_processes(processes, [&](int rank) {
    ::setenv("DEVCOMM_PORTS", range.c_str(), 1);
    body(rank);
  });
}

/// Not even by connections that wind down, as those of an earlier run of this test do for a minute.
bool is_unused(std::uint16_t port) {
  const detail::unique_fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  return ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
}

/// A port such that it and the next few are free.
std::uint16_t free_ports() {
  for (std::uint16_t first = 21000; first < 32000; first = static_cast<std::uint16_t>(first + 50)) {
    bool unused = true;
    for (std::uint16_t i = 0; i < 4; ++i) unused = unused && is_unused(static_cast<std::uint16_t>(first + i));
    if (unused) return first;
  }
  throw std::runtime_error("no free ports");
}

}  // namespace

TEST_CASE("rank 0 listens at the address of its name, where it is known") {
  const auto at = [](const strings& of_name) { return detail::addresses_to_listen_at(of_name, interfaces); };
  CHECK(at({"10.0.0.7"}) == strings{"10.0.0.7"});
  CHECK(at({"10.1.0.7", "10.1.0.7"}) == strings{"10.1.0.7"});
  CHECK(at({"2001:db8::7"}) == strings{"2001:db8::7"});
  // Debian's own name, beside the address that other hosts know.
  CHECK(at({"127.0.1.1", "10.0.0.7"}) == strings{"10.0.0.7"});
  CHECK(at({"fe80::7", "10.0.0.7"}) == strings{"10.0.0.7"});
  // One of these may be what the other hosts know by this name.
  CHECK(at({"127.0.1.1"}) == everywhere);
  CHECK(at({"10.0.0.7", "2001:db8::7"}) == everywhere);
  // A service's address, which is translated.
  CHECK(at({"192.0.2.9"}) == everywhere);
  CHECK(at({}) == everywhere);
}

TEST_CASE("an address is taken literally, and this host's name as it is known") {
  CHECK(bound_text(detail::bind_for("127.0.0.1", 0, "test")).starts_with("127.0.0.1:"));
  CHECK(bound_text(detail::bind_for("localhost", 0, "test")).starts_with("127.0.0.1:"));
  CHECK(bound_text(detail::bind_for("::1", 0, "test")).starts_with("[::1]:"));
  std::string name(256, '\0');
  REQUIRE(::gethostname(name.data(), name.size() - 1) == 0);
  name.resize(name.find('\0'));
  std::string problem;
  strings of_name;
  for (const auto& each : detail::resolve(name, 0, detail::deadline(5s), problem)) of_name.push_back(each.host_text());
  const strings expected = detail::addresses_to_listen_at(of_name, detail::interface_addresses());
  CAPTURE(name, of_name);
  const std::string bound = bound_text(detail::bind_for(name, 0, "test"));
  if (expected.size() == 1) {
    CHECK(bound.starts_with(detail::endpoint_text(expected[0], 0).substr(0, expected[0].size())));
  } else {
    CHECK((bound.starts_with("[::]:") || bound.starts_with("0.0.0.0:")));
  }
}

TEST_CASE("ranks know this host's address on the connection to rank 0") {
  for (const std::string address : {"127.0.0.1", "::1"}) {
    const auto id = host::unique_id::create(address);
    const auto outcomes = on_processes(3, [&](int rank) {
      const auto job = host::tcp_bootstrap(id, rank, 3, 20s);
      if (job->local_address() != address) throw std::runtime_error("it is \"" + job->local_address() + "\"");
      gather_and_check(*job, 1, 1);
    });
    CHECK(first_failure(outcomes) == "");
  }
  // Rank 0 listens at all interfaces, for both families.
  const auto id = host::unique_id::create("name-that-nobody-knows.invalid");
  const host::unique_id by_address("127.0.0.1", id.port(), id.secret());
  const auto outcomes = on_processes(2, [&](int rank) {
    const auto job = host::tcp_bootstrap(rank == 0 ? id : by_address, rank, 2, 20s);
    if (job->local_address() != "127.0.0.1") throw std::runtime_error("it is \"" + job->local_address() + "\"");
    gather_and_check(*job, 1, 1);
  });
  CHECK(first_failure(outcomes) == "");
  CHECK(host::thread_bootstraps(1)[0]->local_address().empty());
}

TEST_CASE("DEVCOMM_PORTS bounds the ports that unique_id::create reserves") {
  const std::uint16_t first = free_ports();
  const std::string range = std::to_string(first) + "-" + std::to_string(first + 3);
  const auto outcomes = with_ports(range, 1, [&](int) {
    std::vector<host::unique_id> ids;
    std::set<std::uint16_t> ports;
    for (int i = 0; i < 4; ++i) {
      ids.push_back(host::unique_id::create());
      ports.insert(ids.back().port());
    }
    if (ports.size() != 4 || *ports.begin() != first || *ports.rbegin() != first + 3) {
      throw std::runtime_error("ports repeat or lie outside of the range");
    }
    // A job starts on each.
    for (const host::unique_id& id : ids) {
      const auto ranks = on_threads(2, [&](int rank) { barrier(*host::tcp_bootstrap(id, rank, 2, 20s)); });
      if (!first_failure(ranks).empty()) throw std::runtime_error(first_failure(ranks));
    }
  });
  CHECK(first_failure(outcomes) == "");
}

TEST_CASE("a range without a free port is an error that names it") {
  const std::uint16_t port = free_ports();
  const detail::unique_fd other = detail::bind_for("127.0.0.1", port, "test");
  REQUIRE(::listen(other.get(), 1) == 0);
  const std::string range = std::to_string(port) + "-" + std::to_string(port);
  const auto outcomes = with_ports(range, 1, [](int) { static_cast<void>(host::unique_id::create()); });
  CHECK(outcomes[0].kind == "system_error");
  CHECK(outcomes[0].says("DEVCOMM_PORTS"));
  CHECK(outcomes[0].says(range));
  const auto malformed = with_ports("many", 1, [](int) { static_cast<void>(host::unique_id::create()); });
  CHECK(malformed[0].kind == "invalid_argument");
  CHECK(malformed[0].says("30000-30100"));
}

TEST_CASE("one port serves one job after another") {
  const std::uint16_t port = free_ports();
  const std::string range = std::to_string(port) + "-" + std::to_string(port);
  for (int round = 0; round < 3; ++round) {
    const auto outcomes = with_ports(range, 1, [](int) {
      const auto id = host::unique_id::create();
      const auto ranks = on_threads(2, [&](int rank) { barrier(*host::tcp_bootstrap(id, rank, 2, 20s)); });
      if (!first_failure(ranks).empty()) throw std::runtime_error(first_failure(ranks));
    });
    REQUIRE(first_failure(outcomes) == "");
  }
}
