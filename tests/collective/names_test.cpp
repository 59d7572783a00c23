#include <devcomm/collective/all_reduce/algorithm.hpp>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/operation.hpp>

#include <catch2/catch_test_macros.hpp>

#include <set>
#include <string>

using namespace devcomm;

TEST_CASE("an all-reduce algorithm has the name of its function") {
  std::set<std::string> keys;
  for (std::uint32_t i = 0; i < 10; ++i) {
    const auto algorithm = static_cast<collective::all_reduce_algorithm>(i);
    const std::string function = to_string(call_of(algorithm));
    CHECK(("all_reduce_" + std::string(to_string(algorithm))).rfind(function, 0) == 0);
    keys.insert(to_string(algorithm));
  }
  CHECK(keys.size() == 10);
  CHECK(std::string(to_string(static_cast<collective::all_reduce_algorithm>(10))) == "unknown algorithm");
}

TEST_CASE("a call's contract shows the name of the collective") {
  const call_contract by_name = call_contract::of("reduce_scatter", 3, 9, 4, 1);
  const call_contract by_call = call_contract::of<collective_call::reduce_scatter>(3, 9, 4, 1);
  for (int i = 0; i < 3; ++i) CHECK(by_name.name[i] == by_call.name[i]);
  CHECK(by_call.end == 9);
  CHECK(by_call.root == 1);
}

TEST_CASE("every packet protocol has its wait") {
  for (const packet_protocol protocol : {packet_protocol::ll, packet_protocol::lamport, packet_protocol::ll128})
    CHECK(std::string(to_string(mailbox_wait(protocol))).find(" mailbox") != std::string::npos);
  CHECK(mailbox_wait(packet_protocol::ll128) == operation::ll128_mailbox);
  CHECK(std::string(to_string(packet_protocol::lamport)) == "lamport");
}
