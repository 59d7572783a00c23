// Builds without libfabric: contexts of ranks in several processes are refused, with what to install.
#include <devcomm/devcomm.cuh>

#include <devcomm/host/communicator.hpp>

#include "host/communicator/rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>
#include <utility>

using namespace devcomm;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("without libfabric contexts between processes are refused, and the refusal says what to install") {
  const auto ends = devcomm_test::on_processes(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    devcomm_test::require(!comm.properties().network.available, "there is no network");
    auto needs = comm.requirements();
    static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
    static_cast<void>(comm.create_device_comm(needs));
  });
  for (const std::string& end : ends) {
    CHECK_THAT(end, ContainsSubstring("not_supported: create_device_comm"));
    CHECK_THAT(end, ContainsSubstring("install libfabric 1.17 or newer"));
  }
}
