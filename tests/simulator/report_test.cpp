/// Reports of deadlocks, from snapshots that no simulation took.
#include "report/deadlock.hpp"
#include "report/wait_graph.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <string>

using namespace devcomm::simulator::detail;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A launch of one block on the device of `rank`: thread 0 waits at LSA barrier 0 for `peer`, the others wait for it.
void add_rank(snapshot& all, int rank, int peer, std::size_t threads) {
  launch_snapshot launch;
  launch.device = rank;
  launch.blocks = 1;
  launch.ranks = {rank};
  launch.first_block = all.blocks.size();
  launch.running = 1;
  block_snapshot block;
  block.launch = all.launches.size();
  block.world_rank = rank;
  block.ranks = {rank};
  block.first_thread = all.threads.size();
  block.threads = threads;
  block.live = static_cast<std::uint32_t>(threads);
  block.barriers[0].arrived = block.live - 1;
  for (std::size_t i = 0; i < threads; ++i) {
    thread_snapshot thread;
    thread.block = all.blocks.size();
    thread.rank = static_cast<std::uint32_t>(i);
    thread.reason = i == 0 ? wait_reason::session : wait_reason::block_barrier;
    if (i == 0) {
      thread.session.what = devcomm::operation::lsa_barrier;
      thread.session.peer = peer;
      thread.session.expected = 1;
      thread.words = {{"", 0}};
    }
    all.threads.push_back(thread);
  }
  all.launches.push_back(launch);
  all.blocks.push_back(block);
}

}  // namespace

TEST_CASE("ranks that wait for each other are reported with a shortest cycle") {
  snapshot all;
  add_rank(all, 0, 1, 64);
  add_rank(all, 1, 0, 64);
  const std::string text = describe_deadlock(all, "");
  CHECK(contains(text, "\n  rank 0, block 0, thread 0: LSA barrier 0: waits for rank 1 to reach epoch 1, saw 0"));
  CHECK(contains(text, "\n  rank 1, block 0, threads 1-63: in __syncthreads, 63 of 64 arrived"));
  CHECK(contains(text, "\n  the waits form a cycle:\n    rank 0, block 0, thread 0 at LSA barrier 0 waits for"));
  CHECK(make_wait_graph(all).cycle.size() == 2);
}

TEST_CASE("a rank without a kernel is named, and is no cycle") {
  snapshot all;
  add_rank(all, 0, 1, 1);
  const wait_graph graph = make_wait_graph(all);
  CHECK(graph.cycle.empty());
  REQUIRE(graph.nodes.size() == 2);
  CHECK(graph.nodes[1].what == "runs no kernel that could arrive");
  CHECK(graph.edges.waits_for(0) == std::vector<std::size_t>{1});
}

TEST_CASE("blocks that have not started wait for those that run") {
  snapshot all;
  add_rank(all, 0, 0, 32);
  all.launches[0].blocks = 4;
  all.launches[0].not_started = 3;
  const std::string text = describe_deadlock(all, "");
  CHECK(contains(text, "device 0: 3 of 4 blocks have not started, as the GPU is full"));
}

TEST_CASE("the words that a thread polls are listed") {
  snapshot all;
  add_rank(all, 0, 0, 1);
  all.threads[0].reason = wait_reason::memory;
  all.threads[0].words = {{"byte 0 of the 4", 7}, {"byte 8 of the 16", 9}};
  all.threads[0].more_words = 3;
  CHECK(contains(describe_deadlock(all, ""),
                 "thread 0: polls byte 0 of the 4, which stays 7, byte 8 of the 16, which stays 9, and 3 words more"));
}
