#include <util/number_list.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <set>

using devcomm::host::detail::number_list;
using devcomm::host::detail::rank_list;

TEST_CASE("ranks are written as runs, two neighbors apart") {
  CHECK(rank_list({}) == "no rank");
  CHECK(rank_list({3}) == "rank 3");
  CHECK(rank_list({0, 1}) == "ranks 0 and 1");
  CHECK(rank_list({0, 1, 2}) == "ranks 0-2");
  CHECK(rank_list({0, 2}) == "ranks 0 and 2");
  CHECK(rank_list({0, 1, 3}) == "ranks 0, 1 and 3");
  CHECK(rank_list({1, 4, 5, 6, 7, 9}) == "ranks 1, 4-7 and 9");
  CHECK(rank_list({1, 2, 3, 7, 8}) == "ranks 1-3, 7 and 8");
}

TEST_CASE("after 16 runs the rest is counted") {
  std::vector<int> even;
  for (int i = 0; i < 20; ++i) even.push_back(2 * i);
  const std::string text = rank_list(even);
  CHECK(text.starts_with("ranks 0, 2, 4, "));
  CHECK(text.ends_with(", 30 and 4 more"));
  even.resize(16);
  CHECK(rank_list(even).ends_with(", 28 and 30"));
}

TEST_CASE("any ascending range and any noun is written so") {
  CHECK(number_list("LSA barrier", std::set<std::uint64_t>{0, 1, 2, 3}) == "LSA barriers 0-3");
  CHECK(number_list("block", std::set<std::uint64_t>{UINT64_MAX}) == "block 18446744073709551615");
}
