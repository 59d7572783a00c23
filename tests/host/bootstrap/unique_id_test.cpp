#include "job_harness.hpp"

#include <devcomm/host/error.hpp>
#include <devcomm/host/unique_id.hpp>

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace devcomm_test;
namespace host = devcomm::host;

namespace {

const std::string digits = "00112233445566778899aabbccddeeff";

std::string why_refused(const std::string& text) {
  const outcome o = outcome_of([&] { static_cast<void>(host::unique_id::parse(text)); });
  return o.kind == "invalid_argument" ? o.text : "accepted or " + o.kind;
}

}  // namespace

TEST_CASE("unique_id survives the trip through text") {
  for (const std::string address : {"127.0.0.1", "::1", "node-3.example.org", "fe80::1%eth0", "a"}) {
    CAPTURE(address);
    const auto id = host::unique_id::create(address, 29500);
    const std::string text = id.to_string();
    CHECK(text.find_first_of(" \t\n") == std::string::npos);
    const auto back = host::unique_id::parse(text);
    CHECK(back.host() == address);
    CHECK(back.port() == 29500);
    CHECK(back.secret() == id.secret());
  }
}

TEST_CASE("unique_id::create never repeats a secret, nor a port it holds") {
  std::set<std::string> secrets;
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 10; ++i) {
    const auto id = host::unique_id::create();
    CHECK(id.port() != 0);
    secrets.insert(id.to_string().substr(9, 32));
    ports.insert(id.port());
  }
  CHECK(secrets.size() == 10);
  CHECK(ports.size() == 10);
}

TEST_CASE("unique_id::create keeps a bounded number of reserved ports") {
  for (int i = 0; i < 16; ++i) static_cast<void>(host::unique_id::create());
  const std::size_t full = open_descriptors();
  for (int i = 0; i < 40; ++i) static_cast<void>(host::unique_id::create());
  CHECK(open_descriptors() == full);
}

TEST_CASE("rank 0 may listen at an id that another process made and still holds") {
  const auto id = host::unique_id::create();
  const auto text = id.to_string();
  const auto outcomes = on_processes(2, [&](int rank) {
    const auto job = host::tcp_bootstrap(host::unique_id::parse(text), rank, 2, 10s);
    gather_and_check(*job, 10, 1);
  });
  CHECK(first_failure(outcomes) == "");
}

TEST_CASE("unique_id::parse says what is wrong with a text, and never repeats the secret") {
  CHECK(host::unique_id::parse("devcomm1:" + digits + "@h:1").port() == 1);
  const struct {
    std::string text;
    std::string why;
  } cases[] = {
      {"", "does not start with"},
      {"devcomm2:" + digits + "@h:1", "does not start with"},
      {" devcomm1:" + digits + "@h:1", "does not start with"},
      {"devcomm1:", "no \"@\""},
      {"devcomm1:" + digits, "no \"@\""},
      {"devcomm1:" + digits + "0@h:1", "no \"@\""},
      {"devcomm1:" + digits.substr(1) + "@@h:1", "hexadecimal"},
      {"devcomm1:g" + digits.substr(1) + "@h:1", "hexadecimal"},
      {"devcomm1:" + digits + "@", "has no port"},
      {"devcomm1:" + digits + "@h", "has no port"},
      {"devcomm1:" + digits + "@:1", "is empty"},
      {"devcomm1:" + digits + "@h:", "no number from 1 to 65535"},
      {"devcomm1:" + digits + "@h:0", "no number from 1 to 65535"},
      {"devcomm1:" + digits + "@h:65536", "no number from 1 to 65535"},
      {"devcomm1:" + digits + "@h:99999999999999999999", "no number from 1 to 65535"},
      {"devcomm1:" + digits + "@h:-1", "no number from 1 to 65535"},
      {"devcomm1:" + digits + "@h:1x", "no number from 1 to 65535"},
      {"devcomm1:" + digits + "@h:1\n", "no number from 1 to 65535"},
      {"devcomm1:" + digits + "@a b:1", "no host name"},
      {"devcomm1:" + digits + "@::1:80", "without brackets"},
      {"devcomm1:" + digits + "@[::1:80", "unclosed bracket"},
      {"devcomm1:" + digits + "@[h]:80", "no IPv6 address"},
      {"devcomm1:" + digits + "@[zz::1]:80", "no IPv6 address"},
      {"devcomm1:" + digits + "@" + std::string(256, 'a') + ":80", "longer than 255"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    const std::string why = why_refused(c.text);
    CAPTURE(why);
    CHECK(why.find(c.why) != std::string::npos);
    CHECK(why.find(digits.substr(4, 12)) == std::string::npos);
  }
}

TEST_CASE("unique_id refuses hosts and ports that cannot be") {
  CHECK_THROWS_AS(host::unique_id("", 1, {}), host::invalid_argument);
  CHECK_THROWS_AS(host::unique_id("h", 0, {}), host::invalid_argument);
  CHECK_THROWS_AS(host::unique_id("a b", 1, {}), host::invalid_argument);
  CHECK_THROWS_AS(host::unique_id::create("a:b"), host::invalid_argument);
  CHECK_THROWS_AS(host::unique_id::create("192.0.2.1"), host::system_error);
}
