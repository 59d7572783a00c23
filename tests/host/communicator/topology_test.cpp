#include <rank/topology.hpp>

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>

using namespace devcomm::host;
using namespace devcomm::host::detail;

namespace {

/// Ranks on hosts: "aabb" puts the first two on one host and the others on a second.
std::vector<reach> reaches_of(const std::string& hosts) {
  std::vector<reach> all;
  for (const char a : hosts) {
    for (const char b : hosts) all.push_back(a == b ? reach::load_store : reach::none);
  }
  return all;
}

/// `reaches` has a row for each rank.
int lsa_of(const std::vector<reach>& reaches, int ranks, int most = 0) {
  const std::vector<int> sizes = team_sizes(ranks, most);
  std::vector<size_mask> masks;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto row = reaches.begin() + rank * ranks;
    masks.push_back(sizes_within_reach({row, row + ranks}, rank, sizes));
  }
  return choose_lsa_size(masks, sizes);
}

int lsa_of(const std::string& hosts, int most = 0) {
  return lsa_of(reaches_of(hosts), static_cast<int>(hosts.size()), most);
}

rank_info rank_at(char host, int pid) {
  rank_info r{};
  r.host[0] = static_cast<std::byte>(host);
  r.pid = pid;
  return r;
}

}  // namespace

TEST_CASE("LSA teams are as large as one size for all, within hosts, allows") {
  CHECK(lsa_of("a") == 1);
  CHECK(lsa_of("aaaaaaa") == 7);
  CHECK(lsa_of("aaaabbbb") == 4);
  CHECK(lsa_of("aabbccdd") == 2);
  CHECK(lsa_of("abababab") == 1);
  CHECK(lsa_of("aaaabb") == 2);
  CHECK(lsa_of("aaabb") == 1);
  CHECK(lsa_of("aaaaaaaabbbbbbbb") == 8);
}

TEST_CASE("a limit is kept, and must divide") {
  CHECK(lsa_of("aaaaaaaa", 4) == 4);
  CHECK(lsa_of("aaaaaaaa", 8) == 8);
  CHECK(lsa_of("aabbccdd", 4) == 2);
  CHECK_THROWS_AS(lsa_of("aaaaaaaa", 3), invalid_argument);
  CHECK_THROWS_AS(lsa_of("aaaa", 8), invalid_argument);
}

TEST_CASE("one pair that cannot reach each other keeps their run out of a team") {
  auto reaches = reaches_of("aaaa");
  reaches[2 * 4 + 3] = reach::none;
  CHECK(lsa_of(reaches, 4) == 1);
  reaches = reaches_of("aaaa");
  reaches[0 * 4 + 3] = reach::none;
  CHECK(lsa_of(reaches, 4) == 2);
}

TEST_CASE("processes are told apart by host and pid, in the order of their first ranks") {
  const std::vector<rank_info> ranks = {rank_at('a', 7), rank_at('b', 7), rank_at('a', 8),
                                        rank_at('a', 7), rank_at('b', 7), rank_at('a', 8)};
  CHECK(ranks_of_process(ranks, 3) == std::vector<int>{0, 3});
  CHECK(ranks_of_host(ranks, 4) == std::vector<int>{1, 4});
  std::vector<device_info> cards(6);
  cards[2].links.name[0] = 42;
  const auto processes = processes_of_host(ranks, cards, 5);
  REQUIRE(processes.size() == 2);
  CHECK(processes[0].ranks == std::vector<int>{0, 3});
  CHECK(processes[1].ranks == std::vector<int>{2, 5});
  CHECK(processes[1].address.name[0] == 42);
}

TEST_CASE("memory travels by descriptor first, by fabric else, or as the environment says") {
  const std::uint32_t fabric = bit_of(handle_kind::fabric);
  const std::uint32_t both = bit_of(handle_kind::file_descriptor) | fabric;
  CHECK(common_handle(both, handle_kind::none) == handle_kind::file_descriptor);
  CHECK(common_handle(both, handle_kind::fabric) == handle_kind::fabric);
  CHECK(common_handle(both & fabric, handle_kind::none) == handle_kind::fabric);
  CHECK(common_handle(both & fabric, handle_kind::file_descriptor) == handle_kind::none);
  CHECK(common_handle(0, handle_kind::none) == handle_kind::none);
  CHECK(common_handle(bit_of(handle_kind::none), handle_kind::none) == handle_kind::none);
}
