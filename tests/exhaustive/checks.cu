// Every interleaving of the comparison of launches at a barrier, whose stores, loads and fences are hidden elsewhere.
#include "exhaustive/bench.hpp"

#include <catch2/catch_test_macros.hpp>

#include <memory>

using namespace exhaustive;

namespace {

/// Counts the outcomes of an execution.
__device__ void note(std::uint32_t* result, status outcome) { result[static_cast<int>(outcome)] += 1; }

/// Sessions of one barrier, each of another key, as launches that follow one another have; the last has `last`.
__global__ void meet(device_comm comm, std::uint64_t sessions, std::uint64_t last, std::uint32_t* result) {
  for (std::uint64_t n = 1; n <= sessions; ++n) {
    lsa::barrier_session barrier{thread{}, comm.with_launch_key(n < sessions ? n : last), 0};
    barrier.sync(memory_order::relaxed);
    note(result, barrier.agree());
  }
}

/// A round of packets, of one key.
__global__ void send(device_comm comm, lsa::ll_handle mailboxes, std::uint64_t key, std::uint32_t* result) {
  lsa::ll_session session{thread{}, comm.with_launch_key(key), mailboxes, 0};
  session.begin_round();
  session.send(1 - comm.rank, 0, 5);
  std::uint64_t got[1][1];
  session.receive(1 - comm.rank, 2 - comm.rank, 0, got);
  note(result, session.agree());
}

std::uint32_t count(const bench& b, int rank, status outcome) { return b.result(rank)[static_cast<int>(outcome)]; }

constexpr std::uint64_t sessions = 3;

sim::exploration_result explore_barrier(bool differ) {
  return explore(
      2, {}, true, [](requirements& needs) { needs.lsa_barriers(1); },
      [=](const bench& b) {
        b.on_each_rank([&](int rank) {
          devcomm::launch(meet, {}, b.comm(rank), sessions, std::uint64_t{differ && rank == 1 ? 99u : 50u},
                          b.result(rank));
        });
        b.finish();
        for (int rank = 0; rank < b.size(); ++rank) {
          const std::uint32_t well = count(b, rank, status::success);
          const std::uint32_t told = count(b, rank, status::mismatch) + count(b, rank, status::aborted);
          const std::string of_rank = " on rank " + std::to_string(rank);
          b.require(well == sessions - (differ ? 1 : 0), std::to_string(well) + " sessions pass the check" + of_rank);
          b.require(told == (differ ? 1u : 0u), std::to_string(told) + " sessions do not" + of_rank);
        }
        b.restore();  // the failures have been seen
      });
}

sim::exploration_result explore_packets(bool differ) {
  const auto mailboxes = std::make_shared<lsa::ll_handle>();
  return explore(
      2, {}, true,
      [=](requirements& needs) {
        *mailboxes = needs.add(lsa::ll_mailboxes{{0, 2, 0, 1}, 1, 1});
      },
      [=](const bench& b) {
        b.on_each_rank([&](int rank) {
          devcomm::launch(send, {}, b.comm(rank), *mailboxes, std::uint64_t{differ && rank == 1 ? 99u : 50u},
                          b.result(rank));
        });
        b.finish();
        for (int rank = 0; rank < b.size(); ++rank) {
          const std::uint32_t told = count(b, rank, status::mismatch) + count(b, rank, status::aborted);
          b.require(told == (differ ? 1u : 0u), std::to_string(told) + " differences on rank " + std::to_string(rank));
        }
        b.restore();
      });
}

void check(const sim::exploration_result& result) {
  INFO(result.failure);
  INFO(result.executions << " executions");
  CHECK(result.failure.empty());
  CHECK(result.complete);
}

}  // namespace

TEST_CASE("launches that send packets are compared in every interleaving") {
  check(explore_packets(false));
  check(explore_packets(true));
}

TEST_CASE("launches are compared with those of the same epoch in every interleaving") {
  check(explore_barrier(false));
  check(explore_barrier(true));
}
