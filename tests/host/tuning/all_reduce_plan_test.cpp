#include <devcomm/host/all_reduce_plan.hpp>
#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

using namespace devcomm::host;
using Catch::Matchers::ContainsSubstring;

namespace {

const char* const table = R"(
# ranks bytes algorithm protocol blocks threads microseconds
4 1024 one_shot lamport 2 64 2.6   # remarks may follow
4 1024 one_shot ll 2 64 2.8
4 65536 one_shot lamport 64 64 3.5
4 65536 one_shot lamport 16 128 4.1
4 65536 two_shot lamport 32 64 5.2
4 65536 one_shot ll 64 64 4.2
4 1048576 one_shot lamport 128 512 12.5
4 1048576 two_shot lamport 64 256 10.6
4 1048576 two_shot ll 128 64 17.3
4 1048576 two_shot_zero_copy simple 64 256 10.2
4 1048576 two_shot_chunked simple 64 512 10.1
4 1048576 two_shot_chunked_to_window simple 64 512 9.9
4 1048576 two_shot ll128 64 256 9.1
)";

all_reduce_plan choose(const all_reduce_request& request) {
  return all_reduce_times::parse(table, "the test's table").choose(request);
}

void refuses(const std::string& text, const std::string& part) {
  CHECK_THROWS_MATCHES(all_reduce_times::parse(text, "x.txt"), invalid_argument,
                       Catch::Matchers::MessageMatches(ContainsSubstring(part)));
}

}  // namespace

TEST_CASE("a plan is the fastest row of the next larger size") {
  const auto small = choose({.bytes = 1000, .ranks = 4});
  CHECK(small.algorithm == all_reduce_algorithm::one_shot);
  CHECK(small.protocol == all_reduce_protocol::lamport);
  CHECK(small.blocks == 2);
  CHECK(choose({.bytes = 1025, .ranks = 4}).blocks == 64);
  CHECK(choose({.bytes = 65537, .ranks = 4}).algorithm == all_reduce_algorithm::two_shot);
  CHECK(choose({.bytes = 1 << 30, .ranks = 4}).algorithm == all_reduce_algorithm::two_shot);
}

TEST_CASE("a plan keeps to the budget of blocks, the type and the memory") {
  const auto few = choose({.bytes = 65536, .ranks = 4, .max_blocks = 16});
  CHECK(few.blocks == 16);
  CHECK(few.threads == 128);
  CHECK(choose({.bytes = 65536, .ranks = 4, .max_blocks = 5}).blocks == 5);
  CHECK(choose({.bytes = 65536, .ranks = 4, .lamport = false}).protocol == all_reduce_protocol::ll);
  CHECK(choose({.bytes = 1 << 20, .ranks = 4, .in_windows = true}).algorithm ==
        all_reduce_algorithm::two_shot_zero_copy);
  CHECK(choose({.bytes = 1 << 20, .ranks = 4, .chunks = true}).algorithm == all_reduce_algorithm::two_shot_chunked);
  CHECK(choose({.bytes = 1 << 20, .ranks = 4, .in_windows = true, .chunks = true}).algorithm ==
        all_reduce_algorithm::two_shot_chunked_to_window);
  const auto by_lines = choose({.bytes = 1 << 20, .ranks = 4, .lamport = false, .ll128 = true});
  CHECK(by_lines.protocol == all_reduce_protocol::ll128);
  CHECK(by_lines.why.find("two_shot ll128, 64 x 256") == 0);
}

TEST_CASE("a plan takes multimem only between windows that have a multicast address") {
  const auto times =
      all_reduce_times::parse(std::string(table) + "4 1048576 two_shot_multimem simple 4 512 5.0\n", "x");
  const auto way = [&](bool in_windows, bool multimem) {
    return times.choose({.bytes = 1 << 20, .ranks = 4, .in_windows = in_windows, .multimem = multimem}).algorithm;
  };
  CHECK(way(true, true) == all_reduce_algorithm::two_shot_multimem);
  CHECK(way(true, false) == all_reduce_algorithm::two_shot_zero_copy);
  CHECK(way(false, true) == all_reduce_algorithm::two_shot);
  for (const all_reduce_time& row : all_reduce_times::usual().rows())  // it has not run on a switch
    CHECK(row.algorithm != all_reduce_algorithm::two_shot_multimem);
  // Of four times the ranks each sends as good as the same, while two shots send a quarter more.
  CHECK(times.choose({.bytes = 1 << 20, .ranks = 16, .in_windows = true, .multimem = true}).microseconds < 5);
}

TEST_CASE("a plan takes rings and trees only where there are FIFOs, and what else they need") {
  const auto times = all_reduce_times::parse(std::string(table) +
                                                 "4 1048576 ring_to_window simple 4 512 5.0\n"
                                                 "4 1048576 ring ll128 4 512 6.0\n"
                                                 "4 1048576 tree simple 4 512 7.0\n",
                                             "x");
  const auto way = [&](bool fifos, bool in_windows, bool ll128) {
    const auto plan = times.choose(
        {.bytes = 1 << 20, .ranks = 4, .lamport = false, .in_windows = in_windows, .ll128 = ll128, .fifos = fifos});
    return to_string(plan.algorithm) + std::string(" ") + to_string(plan.protocol);
  };
  CHECK(way(true, true, true) == "ring_to_window simple");
  CHECK(way(true, false, true) == "ring ll128");
  CHECK(way(true, false, false) == "tree simple");
  CHECK(way(false, true, true) == "two_shot ll128");
  CHECK(way(false, false, false) == "two_shot ll");
  // Of 16 times the ranks a ring sends a quarter more, a tree the same.
  const auto more = [&](bool ll128) {
    return times.choose({.bytes = 1 << 20, .ranks = 64, .lamport = false, .ll128 = ll128, .fifos = true}).microseconds;
  };
  CHECK(more(true) > 6.0);
  CHECK(more(false) < 7.01);
}

TEST_CASE("for ranks that were not measured, one shot pays for its traffic") {
  // Four times the ranks: one shot sends five times as much, two shots a quarter more.
  CHECK(choose({.bytes = 65536, .ranks = 4}).algorithm == all_reduce_algorithm::one_shot);
  CHECK(choose({.bytes = 65536, .ranks = 16}).algorithm == all_reduce_algorithm::two_shot);
  CHECK_THAT(choose({.bytes = 65536, .ranks = 16}).why, ContainsSubstring("not measured for 16 ranks"));
}

TEST_CASE("a number of ranks with one size leaves the other sizes to its neighbors") {
  const auto times = all_reduce_times::parse(
      "3 1024 one_shot lamport 1 64 2.5\n"
      "4 1024 one_shot lamport 2 64 2.6\n"
      "4 1048576 two_shot lamport 64 256 10.6\n"
      "6 1048576 two_shot lamport 32 256 12.1\n",
      "x.txt");
  const auto blocks = [&](std::uint64_t bytes, int ranks) {
    return times.choose({.bytes = bytes, .ranks = ranks}).blocks;
  };
  CHECK(blocks(1000, 3) == 1);
  CHECK(blocks(1100, 3) == 1);
  CHECK(blocks(4096, 3) == 64);  // estimated from 4 ranks: one block would be no plan for a megabyte
  CHECK(blocks(1 << 20, 3) == 64);
  CHECK(blocks(1000, 6) == 2);
  CHECK(blocks(1 << 20, 6) == 32);
  CHECK(blocks(1 << 24, 5) == 32);  // all sizes end alike, and 6 ranks are nearer to 5 than 4 are
}

namespace {

/// A sweep of 2 and 4 ranks: every algorithm at every size in several shapes, with different times, which more blocks
/// and ranks change in any way.
std::string random_sweep(unsigned seed) {
  std::minstd_rand random(seed);
  std::string text;
  for (const int ranks : {2, 4}) {
    for (const int bytes : {1024, 4096, 16384}) {
      for (const char* const way :
           {"one_shot ll", "one_shot lamport", "one_shot ll128", "two_shot ll", "two_shot lamport", "two_shot ll128",
            "two_shot_zero_copy simple", "two_shot_chunked simple", "two_shot_chunked_to_window simple",
            "two_shot_multimem simple", "ring simple", "ring ll128", "ring_to_window simple", "tree ll"}) {
        for (const int blocks : {1, 4, 16})
          text += std::to_string(ranks) + " " + std::to_string(bytes) + " " + way + " " + std::to_string(blocks) +
                  " 64 " + std::to_string(2 + bytes / 4096 + static_cast<int>(random() % 100000) / 25000.0) + "\n";
      }
    }
  }
  return text;
}

}  // namespace

TEST_CASE("a pruned table answers every request as the whole one does") {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const auto whole = all_reduce_times::parse(random_sweep(seed), "x.txt");
    const auto pruned = whole.pruned();
    CHECK(pruned.rows().size() < whole.rows().size() * 3 / 4);
    CHECK(pruned.pruned().rows().size() == pruned.rows().size());
    for (const int ranks : {1, 2, 3, 4, 5, 8, 64}) {
      for (const std::uint64_t bytes : {100u, 1024u, 4000u, 16384u, 65536u, 16u << 20}) {
        for (const unsigned budget : {0u, 2u, 4u}) {
          for (unsigned asks = 0; asks < 32; ++asks) {
            const all_reduce_request request{.bytes = bytes,
                                             .ranks = ranks,
                                             .max_blocks = budget,
                                             .lamport = (asks & 1) != 0,
                                             .in_windows = (asks & 2) != 0,
                                             .chunks = (asks & 4) != 0,
                                             .ll128 = (asks & 8) != 0,
                                             .multimem = (asks & 16) != 0};
            const auto expected = whole.choose(request);
            REQUIRE(pruned.choose(request).why == expected.why);
          }
        }
      }
    }
  }
}

TEST_CASE("a row that is slow where it was measured stays for the ranks where it is not") {
  // Of two ranks, one shot and two shots send the same; of more, one shot sends more.
  const auto pruned = all_reduce_times::parse(
                          "2 1024 one_shot lamport 1 64 2.5\n"
                          "2 1024 two_shot lamport 1 64 3.6\n"
                          "2 65536 one_shot lamport 16 64 3.5\n"
                          "2 65536 one_shot lamport 16 64 3.5\n"
                          "2 65536 one_shot ll 16 64 3.7\n"
                          "2 65536 one_shot ll 32 64 3.8\n"
                          "2 65536 two_shot lamport 16 64 4.3\n",
                          "x.txt")
                          .pruned();
  CHECK(pruned.choose({.bytes = 65536, .ranks = 2}).algorithm == all_reduce_algorithm::one_shot);
  CHECK(pruned.choose({.bytes = 65536, .ranks = 8}).algorithm == all_reduce_algorithm::two_shot);
  CHECK(pruned.rows().size() == 5);  // not the second of two equals, and LL in more blocks
}

TEST_CASE("sweeps that are pruned one by one answer together as the whole does") {
  const std::string large = "2 1048576 one_shot ll 8 64 100\n2 1048576 two_shot ll 8 64 110\n";
  const std::string small = "2 1024 one_shot ll 8 64 3\n2 1024 two_shot ll 8 64 5\n";
  std::string kept;
  for (const std::string& sweep : {large, small})
    for (const auto& row : all_reduce_times::parse(sweep, "a sweep").pruned().rows()) kept += to_string(row) + "\n";
  const auto whole = all_reduce_times::parse(large + small, "all");
  const auto together = all_reduce_times::parse(kept, "all");
  for (int ranks = 1; ranks <= 64; ++ranks)
    for (const std::uint64_t bytes : {100u, 1024u, 65536u, 1u << 20, 64u << 20})
      CHECK(together.choose({.bytes = bytes, .ranks = ranks}).microseconds ==
            whole.choose({.bytes = bytes, .ranks = ranks}).microseconds);
}

TEST_CASE("a vector of less than 1 KiB is planned as one of 1 KiB") {
  const auto times = all_reduce_times::parse("8 1024 one_shot ll 1 64 4\n2 64 one_shot ll 1 64 2\n", "x.txt");
  CHECK(times.choose({.bytes = 100, .ranks = 8}).microseconds == 4);
}

TEST_CASE("a row comes back from its line") {
  const auto times = all_reduce_times::parse(table, "x.txt");
  std::string text;
  for (const all_reduce_time& row : times.rows()) text += to_string(row) + "\n";
  CHECK_THAT(text, ContainsSubstring("4 1048576 two_shot ll128 64 256 9.10\n"));
  std::string again;
  for (const all_reduce_time& row : all_reduce_times::parse(text, "x.txt").rows()) again += to_string(row) + "\n";
  CHECK(again == text);
  CHECK(times.rows().size() == 13);
}

TEST_CASE("what is sought among are the rows that can serve") {
  const auto mixed = all_reduce_times::parse("2 1024 one_shot ll 1 64 2.5\n2 2048 one_shot lamport 1 64 2.6", "x.txt");
  CHECK(mixed.choose({.bytes = 1500, .ranks = 2, .lamport = false}).protocol == all_reduce_protocol::ll);
  const auto windows = all_reduce_times::parse("2 1024 two_shot_zero_copy simple 1 64 2.5", "x.txt");
  CHECK_THROWS_MATCHES(windows.choose({.bytes = 4, .ranks = 2}), invalid_argument,
                       Catch::Matchers::MessageMatches(ContainsSubstring("no algorithm for any memory")));
}

TEST_CASE("a larger vector takes longer, and a grid that is cut down, too") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const auto times = all_reduce_times::usual();
    CHECK(times.choose({.bytes = 64 << 20, .ranks = ranks}).microseconds >
          10 * times.choose({.bytes = 64 << 10, .ranks = ranks}).microseconds);
    CHECK(times.choose({.bytes = 64 << 20, .ranks = ranks}).blocks > 16);
  }
  CHECK(choose({.bytes = 65536, .ranks = 4, .max_blocks = 4}).microseconds > 4 * 4.0);
  CHECK_THAT(choose({.bytes = 65536, .ranks = 4, .max_blocks = 4}).why, ContainsSubstring("cut down from 16 blocks"));
}

TEST_CASE("a plan says what it chose and why") {
  CHECK(
      choose({.bytes = 65536, .ranks = 4, .max_blocks = 16}).why ==
      "one_shot lamport, 16 x 128, about 4.10 us: the fastest in the test's table for 4 ranks and 65536 bytes in at most 16 "
      "blocks, for any memory, kernels without chunk buffers");
}

TEST_CASE("a table that cannot be read names its line") {
  refuses("4 1024 one_shot lamport 2 64 2.6\n4 1024 one_shot lamport 2 64\n", "x.txt, line 2");
  refuses("4 1024 star lamport 2 64 2.6", "x.txt, line 1");
  refuses("4 1024 ring lamport 2 64 2.6", "is no row of a plan");
  refuses("4 1024 ring_to_window ll 2 64 2.6", "is no row of a plan");
  refuses("4 1024 one_shot lamport 2 64 2.6 7", "is no row of a plan");
  refuses("4 1024 one_shot lamport 2 2048 2.6", "is no row of a plan");
  refuses("4 1024 one_shot lamport 0 64 2.6", "is no row of a plan");
  refuses("4 1024 one_shot lamport 2 64 -1", "is no row of a plan");
  refuses("# nothing\n", "has no rows");
}

TEST_CASE("a request that makes no sense is refused") {
  CHECK_THROWS_AS(choose({.bytes = 0, .ranks = 4}), invalid_argument);
  CHECK_THROWS_AS(choose({.bytes = 4, .ranks = 0}), invalid_argument);
  const auto lamport_only = all_reduce_times::parse("4 1024 one_shot lamport 2 64 2.6", "x.txt");
  CHECK_THROWS_AS(lamport_only.choose({.bytes = 4, .ranks = 4, .lamport = false}), invalid_argument);
}

TEST_CASE("the library's own table serves every request") {
  for (const int ranks : {1, 2, 3, 4, 7, 8}) {
    for (std::uint64_t bytes = 2; bytes < (std::uint64_t{1} << 33); bytes *= 3) {
      for (const unsigned budget : {0u, 1u, 16u, 132u}) {
        for (const bool lamport : {false, true}) {
          const auto plan = all_reduce_times::usual().choose(
              {.bytes = bytes, .ranks = ranks, .max_blocks = budget, .lamport = lamport});
          REQUIRE(plan.blocks >= 1);
          REQUIRE((budget == 0 || plan.blocks <= budget));
          REQUIRE(plan.microseconds > 0);
          REQUIRE((lamport || plan.protocol != all_reduce_protocol::lamport));
        }
      }
    }
  }
}

TEST_CASE("DEVCOMM_ALL_REDUCE_PLAN names another table") {
  const std::string path = "all_reduce_plan_test.txt";
  std::ofstream(path) << "2 4096 two_shot ll 3 96 7.5\n";
  REQUIRE(setenv("DEVCOMM_ALL_REDUCE_PLAN", path.c_str(), 1) == 0);
  const auto plan = all_reduce_times::usual().choose({.bytes = 100, .ranks = 2});
  CHECK(plan.blocks == 3);
  CHECK(plan.threads == 96);
  REQUIRE(setenv("DEVCOMM_ALL_REDUCE_PLAN", "/nowhere/plan.txt", 1) == 0);
  CHECK_THROWS_MATCHES(all_reduce_times::usual(), system_error,
                       Catch::Matchers::MessageMatches(ContainsSubstring("/nowhere/plan.txt cannot be read")));
  REQUIRE(unsetenv("DEVCOMM_ALL_REDUCE_PLAN") == 0);
  std::remove(path.c_str());
}
