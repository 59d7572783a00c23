#include "job_harness.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>

using namespace devcomm_test;
namespace host = devcomm::host;

TEST_CASE("thread_bootstraps numbers its ranks in order") {
  const auto ranks = host::thread_bootstraps(5);
  REQUIRE(ranks.size() == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(ranks[static_cast<std::size_t>(i)]->rank() == i);
    CHECK(ranks[static_cast<std::size_t>(i)]->size() == 5);
  }
}

TEST_CASE("thread_bootstraps refuses a size below 1") {
  CHECK_THROWS_AS(host::thread_bootstraps(0), host::invalid_argument);
  CHECK_THROWS_AS(host::thread_bootstraps(-3), host::invalid_argument);
}

TEST_CASE("default_bootstrap_limit is a minute, or what DEVCOMM_BOOTSTRAP_TIMEOUT says") {
  ::unsetenv("DEVCOMM_BOOTSTRAP_TIMEOUT");
  CHECK(host::default_bootstrap_limit() == 60s);
  ::setenv("DEVCOMM_BOOTSTRAP_TIMEOUT", "2.5", 1);
  CHECK(host::default_bootstrap_limit() == 2500ms);
  ::setenv("DEVCOMM_BOOTSTRAP_TIMEOUT", "7", 1);
  CHECK(host::default_bootstrap_limit() == 7s);
  for (const char* const bad : {"", "0", "-1", "abc", "5s", " 5", "nan", "inf", "1e9"}) {
    CAPTURE(bad);
    ::setenv("DEVCOMM_BOOTSTRAP_TIMEOUT", bad, 1);
    const outcome o = outcome_of([] { static_cast<void>(host::default_bootstrap_limit()); });
    CHECK(o.kind == "invalid_argument");
    CHECK(o.says("DEVCOMM_BOOTSTRAP_TIMEOUT is \"" + std::string(bad) + "\""));
  }
  ::unsetenv("DEVCOMM_BOOTSTRAP_TIMEOUT");
}
