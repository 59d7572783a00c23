#include <rank/topology.hpp>

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

using namespace devcomm::host;
using namespace devcomm::host::detail;

namespace {

using teams = std::vector<std::vector<int>>;

/// Ranks on hosts: "aabb" puts the first two on one host and the others on a second.
reach_matrix reaches_of(const std::string& hosts) {
  reach_matrix found;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    found.ranks.push_back(static_cast<int>(i));
    found.rows.emplace_back();
    for (const char other : hosts) found.rows.back().push_back(other == hosts[i]);
  }
  return found;
}

teams teams_of(const std::string& hosts, int most = 0) { return form_teams(reaches_of(hosts), most); }

/// "block of 4", "round robin of 2", or why there are no rails.
std::string placed(const std::string& hosts, int most = 0) {
  std::vector<team_note> notes(hosts.size());
  for (const std::vector<int>& team : teams_of(hosts, most)) {
    for (const int rank : team) {
      notes[static_cast<std::size_t>(rank)] = {static_cast<int>(team.size()),
                                               placement_of(team, static_cast<int>(hosts.size()))};
    }
  }
  const capability rails = rails_of(notes);
  if (!rails.available) return rails.reason;
  return (notes[0].placed == placement::block ? "block of " : "round robin of ") + std::to_string(notes[0].size);
}

rank_info rank_at(char host, int pid) {
  rank_info r{};
  r.host[0] = static_cast<std::byte>(host);
  r.pid = pid;
  return r;
}

bool visits_all(std::vector<int> ring, std::size_t size) {
  std::sort(ring.begin(), ring.end());
  for (std::size_t i = 0; i < ring.size(); ++i) {
    if (ring[i] != static_cast<int>(i)) return false;
  }
  return ring.size() == size;
}

/// Hops of the ring between members that `of` tells apart.
template <class Of>
std::size_t crossings(const std::vector<int>& ring, const std::vector<member_site>& members, Of of) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const auto here = static_cast<std::size_t>(ring[i]);
    const auto next = static_cast<std::size_t>(ring[(i + 1) % ring.size()]);
    count += of(members[here]) != of(members[next]) ? 1 : 0;
  }
  return count;
}

/// Each place has to be entered once, where there are several.
template <class Of>
std::size_t fewest_crossings(const std::vector<member_site>& members, Of of) {
  std::set<decltype(of(members[0]))> places;
  for (const member_site& m : members) places.insert(of(m));
  return places.size() == 1 ? 0 : places.size();
}

}  // namespace

TEST_CASE("LSA teams are all ranks that reach each other, wherever they are") {
  CHECK(teams_of("a") == teams{{0}});
  CHECK(teams_of("aaaaaaa") == teams{{0, 1, 2, 3, 4, 5, 6}});
  CHECK(teams_of("aaaabbbb") == teams{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(teams_of("aaabbbb") == teams{{0, 1, 2}, {3, 4, 5, 6}});
  CHECK(teams_of("abab") == teams{{0, 2}, {1, 3}});
  CHECK(teams_of("aabbaabb") == teams{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(teams_of("abcab") == teams{{0, 3}, {1, 4}, {2}});
}

TEST_CASE("a limit is kept, and the last team has what is left") {
  CHECK(teams_of("aaaaaaaa", 4) == teams{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(teams_of("aaaaaaaa", 8) == teams{{0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(teams_of("aabbccdd", 4) == teams{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(teams_of("abababab", 2) == teams{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(teams_of("aaaaaaaa", 3) == teams{{0, 1, 2}, {3, 4, 5}, {6, 7}});
  CHECK(teams_of("aaabbbb", 2) == teams{{0, 1}, {2}, {3, 4}, {5, 6}});
  CHECK(teams_of("aaaa", 8) == teams{{0, 1, 2, 3}});
  CHECK(placed("aaaaaaaa", 3).find("the LSA team of rank 0 has 3 ranks and that of rank 6 has 2 ranks") == 0);
}

TEST_CASE("two ranks of which one does not reach the other are not in one LSA team") {
  auto reaches = reaches_of("aaaa");
  reaches.rows[2][3] = false;
  CHECK(form_teams(reaches, 0) == teams{{0, 1, 2}, {3}});
  reaches = reaches_of("aaaa");
  reaches.rows[3][0] = false;
  CHECK(form_teams(reaches, 0) == teams{{0, 1, 2}, {3}});
  reaches.rows[0][1] = false;
  CHECK(form_teams(reaches, 0) == teams{{0, 2}, {1, 3}});
}

TEST_CASE("there are rails where LSA teams have one size and lie in blocks or in turn") {
  CHECK(placed("aaaabbbb") == "block of 4");
  CHECK(placed("abcd") == "block of 1");
  CHECK(placed("abab") == "round robin of 2");
  CHECK(placed("abcabcabc") == "round robin of 3");
  CHECK(placed("aaabbbb").find("the LSA team of rank 0 has 3 ranks and that of rank 3 has 4 ranks") == 0);
  CHECK(placed("aabbaabb").find("the LSA team of rank 0 is neither a block") == 0);
  CHECK(placed("abba").find("the LSA team of rank 0 is neither a block") == 0);
  CHECK(placed("abbaab").find("the LSA team of rank 0 is neither a block") == 0);
  CHECK(placed("aabbcc", 2) == "block of 2");
}

TEST_CASE("a team of consecutive ranks counts world ranks, and another one its members") {
  CHECK(team_of({3, 4, 5, 6}, 5) == devcomm::team{2, 4, 3, 1});
  CHECK(team_of({4}, 4) == devcomm::team{0, 1, 4, 1});
  const devcomm::team even = team_of({0, 2}, 2);
  const devcomm::team odd = team_of({1, 3}, 3);
  CHECK(even.rank == 1);
  CHECK(even.size == 2);
  CHECK_FALSE(even.has_world_ranks());
  CHECK_FALSE(odd.has_world_ranks());
  for (int member = 0; member < 2; ++member) CHECK_FALSE(odd.contains(even.number(member)));
}

TEST_CASE("a ring enters each host once, for every number of ranks and every placement") {
  std::mt19937 random(1);
  for (std::size_t size = 1; size <= 64; ++size) {
    for (int placed = 0; placed < 4; ++placed) {  // in turn over two hosts, over three, in blocks, at random
      CAPTURE(size, placed);
      std::vector<member_site> members(size);
      for (std::size_t i = 0; i < size; ++i) {
        const std::size_t hosts[] = {i % 2, i % 3, i / 5, random() % 4};
        members[i].host[0] = static_cast<std::byte>(hosts[placed]);
        members[i].pci = placed == 3 ? random() % 7 << 8 : i << 8;
      }
      const std::vector<int> ring = ring_over(members);
      CHECK(visits_all(ring, size));
      const auto host = [](const member_site& m) { return std::vector<std::byte>(m.host.begin(), m.host.end()); };
      CHECK(crossings(ring, members, host) == fewest_crossings(members, host));
    }
  }
}

TEST_CASE("on a host a ring goes from each switch to the next once, whichever ranks are behind it") {
  const auto at = [](char host, std::uint64_t pci) {
    member_site m{{}, pci};
    m.host[0] = static_cast<std::byte>(host);
    return m;
  };
  // Two sockets, of buses below 0x80 and from there on, and ranks dealt to them in turn; a second PCI domain.
  const std::vector<member_site> one_host = {at('a', 0x8a00), at('a', 0x1a00), at('a', 0x8b00), at('a', 0x1b00)};
  CHECK(ring_over(one_host) == std::vector<int>{1, 3, 0, 2});
  CHECK(ring_over({at('a', std::uint64_t{1} << 32), at('a', 0xff00)}) == std::vector<int>{1, 0});
  // Hosts in the order of their first members, ranks of one GPU in their own.
  CHECK(ring_over({at('b', 7), at('a', 7), at('b', 6), at('a', 7), at('a', 6)}) == std::vector<int>{2, 0, 4, 1, 3});
  CHECK(ring_over({}).empty());
}

TEST_CASE("an NVLink domain counts where all ranks of a host are in it") {
  std::vector<rank_info> ranks = {rank_at('a', 7), rank_at('a', 8), rank_at('b', 7), rank_at('b', 8)};
  std::vector<device_info> cards(4);
  for (device_info& card : cards) card.nvlink_domain[0] = std::byte{9};
  CHECK(name_of_domain(ranks, cards, 0) == cards[0].nvlink_domain);
  CHECK(name_of_domain(ranks, cards, 2) == cards[0].nvlink_domain);
  cards[3].nvlink_domain[0] = std::byte{8};
  CHECK(name_of_domain(ranks, cards, 2) == ranks[2].host);
  CHECK(name_of_domain(ranks, cards, 3) == ranks[3].host);
  cards[0] = cards[1] = {};
  CHECK(name_of_domain(ranks, cards, 1) == ranks[1].host);
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
