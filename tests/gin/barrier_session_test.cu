// Barriers of the network: what they order at each level, whom they wait for, and how they end. Names follow the tables
// in docs/gin.md.
#include <devcomm/devcomm.cuh>

#include "context_kernels.cuh"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;
using namespace gin_test;

namespace {

constexpr unsigned blocks = 2;
constexpr std::uint32_t rounds = 3;
constexpr unsigned piece = 8;

enum class members_of { world, rail };

__device__ team choose(const device_comm& comm, members_of which) {
  return which == members_of::rail ? comm.rail() : comm.world();
}

struct boards {
  sym_ptr<std::uint32_t> in;
  sym_ptr<std::uint32_t> out;  // for each block, a row of a word for each thread from each rank
};

__device__ std::uint32_t value_of(int rank, std::uint32_t round, unsigned thread) {
  return static_cast<std::uint32_t>(rank + 1) * 10000 + round * 1000 + thread;
}

/// Each rank puts a row to each member, itself too, in pieces by several threads, and by the contexts in turns; after
/// the barrier all rows are there. Then a barrier without a fence says that they have been read.
__global__ void put_to_members(device_comm comm, gin::context_handle contexts, members_of which, bool everywhere,
                               boards memory, std::uint32_t* wrong) {
  const team members = choose(comm, which);
  const gin::context_range range = everywhere ? gin::all_contexts() : gin::one_context(blockIdx.x);
  const std::uint32_t barrier_index = everywhere ? blockIdx.x : 0;
  gin::barrier_session barrier{block{}, comm, members, contexts, range, barrier_index};
  const auto board = static_cast<std::int64_t>(blockIdx.x) * comm.size * threads;
  const sym_ptr<std::uint32_t> in = memory.in + static_cast<std::int64_t>(blockIdx.x * threads);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    in.local()[threadIdx.x] = value_of(comm.rank, round, threadIdx.x);
    block{}.sync();
    for (int i = 0; threadIdx.x % piece == 0 && i < members.size; ++i) {
      const std::uint32_t turn = static_cast<std::uint32_t>(i) + threadIdx.x / piece;
      gin::context net{thread{}, comm, members, contexts, everywhere ? turn % contexts.count : blockIdx.x};
      const auto first = static_cast<std::int64_t>(threadIdx.x);
      net.put(i, memory.out + (board + comm.rank * std::int64_t{threads} + first), in + first, piece);
    }
    if (round % 2 == 0) {
      barrier.sync(gin::fence_level::put_and_get);
    } else {
      barrier.arrive(gin::fence_level::put);
      barrier.wait();
    }
    for (int i = 0; i < members.size; ++i) {
      const int rank = members.world_rank(i);
      const std::uint32_t got = memory.out.local()[board + rank * std::int64_t{threads} + threadIdx.x];
      wrong[blockIdx.x * threads + threadIdx.x] += got != value_of(rank, round, threadIdx.x) ? 1u : 0u;
    }
    barrier.sync(round % 2 == 0 ? gin::fence_level::none : gin::fence_level::get);
  }
}

struct case_of {
  int ranks;
  int lsa_size;
  members_of which;
  bool everywhere;
};

void put_rows(const case_of& what) {
  host::communicator_options options;
  options.lsa_size = what.lsa_size;
  test::on_ranks(
      what.ranks,
      [&](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto contexts = needs.add(
            gin::contexts{.world = comm.world(), .count = blocks, .signals = 1, .depth = 8, .barriers = blocks});
        const auto device_comm = comm.create_device_comm(needs);
        const auto in = comm.allocate(blocks * threads * sizeof(std::uint32_t));
        const auto out =
            comm.allocate(static_cast<std::size_t>(comm.size()) * blocks * threads * sizeof(std::uint32_t));
        const test::device_array<std::uint32_t> wrong(blocks * threads);
        for (int launches = 0; launches < 2; ++launches) {
          launch(put_to_members, blocks_of(blocks), device_comm.get(), contexts, what.which, what.everywhere,
                 boards{in.pointer<std::uint32_t>(), out.pointer<std::uint32_t>()}, wrong.get());
          test::finish("put_to_members");
          device_comm.check();
          require_none(wrong, "rank " + std::to_string(comm.rank()));
        }
        comm.barrier();
      },
      options);
}

}  // namespace

TEST_CASE("a barrier with a fence of puts has all puts of its members before it, to each of them") {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const bool everywhere : {false, true}) {
      if (ranks == 7 && everywhere) continue;
      INFO(ranks << " ranks, " << (everywhere ? "all contexts" : "a context for each block"));
      put_rows({ranks, 0, members_of::world, everywhere});
    }
  }
}

TEST_CASE("a barrier of a rail is one of the ranks with one index in their LSA teams") {
  for (const bool everywhere : {false, true}) {
    put_rows({4, 2, members_of::rail, everywhere});
    put_rows({6, 2, members_of::rail, everywhere});
  }
}

namespace {

constexpr std::uint32_t pieces = 8;

/// Rank 0 puts many pieces to rank 1, passes the barrier that fences them as soon as rank 1 has come, and arrives at
/// the next one, without a fence. That arrival may overtake the pieces, and must not count for the barrier that fences
/// them.
__global__ void run_ahead(device_comm comm, gin::context_handle contexts, std::uint64_t words, boards memory,
                          std::uint32_t* wrong) {
  gin::barrier_session barrier{block{}, comm, comm.world(), contexts, gin::one_context(0), 0};
  const auto of = [&](std::uint32_t round, std::uint32_t i) { return round * pieces + i + 1; };
  for (std::uint32_t round = 0; round < rounds; ++round) {
    if (comm.rank == 0) {
      for (std::uint64_t i = threadIdx.x; i < pieces * words; i += threads)
        memory.in.local()[i] = of(round, static_cast<std::uint32_t>(i / words));
      block{}.sync();
      if (threadIdx.x < pieces) {
        gin::context net{thread{}, comm, contexts, 0};
        const auto first = static_cast<std::int64_t>(threadIdx.x * words);
        net.put(1, memory.out + first, memory.in + first, words);
      }
    }
    barrier.sync(gin::fence_level::put);
    if (comm.rank == 1 && threadIdx.x < pieces) {
      const std::uint32_t* const piece_of_mine = memory.out.local() + threadIdx.x * words;
      wrong[threadIdx.x] += piece_of_mine[0] != of(round, threadIdx.x) ? 1u : 0u;
      wrong[threadIdx.x] += piece_of_mine[words - 1] != of(round, threadIdx.x) ? 1u : 0u;
    }
    barrier.sync(gin::fence_level::none);
    barrier.sync(gin::fence_level::get);  // the source is written again
  }
}

}  // namespace

TEST_CASE("an arrival at a barrier without a fence does not stand for one at the barrier before, which fences puts") {
  test::on_ranks(2, [](host::communicator& comm) {
    constexpr std::uint64_t words = 8192;
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .depth = 64, .barriers = 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(pieces * words * sizeof(std::uint32_t));
    const auto out = comm.allocate(pieces * words * sizeof(std::uint32_t));
    const test::device_array<std::uint32_t> wrong(threads);
    comm.barrier();
    launch(run_ahead, blocks_of(1), device_comm.get(), contexts, words,
           boards{in.pointer<std::uint32_t>(), out.pointer<std::uint32_t>()}, wrong.get());
    test::finish("run_ahead");
    device_comm.check();
    require_none(wrong, "rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

namespace {

/// Barriers without a fence order stores, and one barrier serves one team after the other. Each thread is a group.
__global__ void store_to_next(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> words,
                              std::uint32_t* wrong) {
  const team lsa = comm.lsa();
  const int next = (lsa.rank + 1) % lsa.size;
  const int previous = lsa.world_rank((lsa.rank + lsa.size - 1) % lsa.size);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    words.lsa(next)[threadIdx.x] = value_of(comm.rank, round, threadIdx.x);
    for (const members_of which : {members_of::world, members_of::rail, members_of::world}) {
      gin::barrier_session barrier{thread{}, comm, choose(comm, which), contexts, gin::one_context(0), threadIdx.x};
      barrier.sync(gin::fence_level::none);
      if (which == members_of::rail)
        wrong[threadIdx.x] += words.local()[threadIdx.x] != value_of(previous, round, threadIdx.x) ? 1u : 0u;
    }
  }
}

/// What was got can be read after a barrier with a fence of gets, and its source written again by its owner.
__global__ void get_from_next(device_comm comm, gin::context_handle contexts, boards memory, std::uint32_t* wrong) {
  const int next = (comm.rank + 1) % comm.size;
  gin::context net{block{}, comm, contexts, 0};
  gin::barrier_session barrier{block{}, comm, comm.world(), contexts, gin::one_context(0), 0};
  for (std::uint32_t round = 0; round < rounds; ++round) {
    memory.in.local()[threadIdx.x] = value_of(comm.rank, round, threadIdx.x);
    barrier.sync(gin::fence_level::none);
    net.get(next, memory.out, memory.in, threads);
    barrier.sync(gin::fence_level::get);
    memory.in.local()[threadIdx.x] = 0;
    wrong[threadIdx.x] += memory.out.local()[threadIdx.x] != value_of(next, round, threadIdx.x) ? 1u : 0u;
    block{}.sync();
  }
}

}  // namespace

TEST_CASE("a barrier without a fence orders stores, and serves one team after the other") {
  host::communicator_options options;
  options.lsa_size = 2;
  test::on_ranks(
      4,
      [](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{.world = comm.world(), .barriers = threads});
        const auto device_comm = comm.create_device_comm(needs);
        const auto words = comm.allocate(threads * sizeof(std::uint32_t));
        const test::device_array<std::uint32_t> wrong(threads);
        launch(store_to_next, blocks_of(1), device_comm.get(), contexts, words.pointer<std::uint32_t>(), wrong.get());
        test::finish("store_to_next");
        device_comm.check();
        require_none(wrong, "rank " + std::to_string(comm.rank()));
        comm.barrier();
      },
      options);
}

TEST_CASE("after a barrier with a fence of gets what was got can be read, and its source be written") {
  test::on_ranks(3, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .barriers = 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(threads * sizeof(std::uint32_t));
    const auto out = comm.allocate(threads * sizeof(std::uint32_t));
    const test::device_array<std::uint32_t> wrong(threads);
    launch(get_from_next, blocks_of(1), device_comm.get(), contexts,
           boards{in.pointer<std::uint32_t>(), out.pointer<std::uint32_t>()}, wrong.get());
    test::finish("get_from_next");
    device_comm.check();
    require_none(wrong, "rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

namespace {

enum class patience { none, brief, long_enough };

__global__ void meet(device_comm comm, gin::context_handle contexts, patience how, status* outcome) {
  gin::barrier_session barrier{block{}, comm, comm.world(), contexts, gin::one_context(1), 2};
  status said = status::success;
  if (how == patience::brief) {
    said = barrier.sync_for(microseconds(30), gin::fence_level::put_and_get);
    if (said == status::timeout) said = barrier.wait_for(microseconds(30));
  } else if (how == patience::long_enough) {
    said = barrier.sync_for(milliseconds(10000), gin::fence_level::put_and_get);
  } else {
    barrier.sync(gin::fence_level::put_and_get);
    said = barrier.agree();
    barrier.sync();  // a dead one ends at once
  }
  outcome[threadIdx.x] = said;
}

void run_meet(host::device_communicator& device_comm, const gin::context_handle& contexts, patience how,
              status expected) {
  const test::device_array<status> outcome(threads);
  launch(meet, blocks_of(1), device_comm.get(), contexts, how, outcome.get());
  test::finish("meet");
  for (const status each : outcome.read())
    test::require(each == expected, std::string("the outcome was ") + to_string(each));
}

}  // namespace

TEST_CASE("a GIN barrier that runs out of a limit of its own can be met later, and tells nobody twice") {
  test::on_ranks(3, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2, .barriers = 3});
    auto device_comm = comm.create_device_comm(needs);
    for (int i = 0; i < 2; ++i) {
      if (comm.rank() == 0) run_meet(device_comm, contexts, patience::brief, status::timeout);
      comm.barrier();
      run_meet(device_comm, contexts, patience::long_enough, status::success);
      test::require(device_comm.failures().empty(), "a limit of the caller's own leaves no record");
      comm.barrier();
    }
    run_meet(device_comm, contexts, patience::none, status::success);
    comm.barrier();
  });
}

#if defined(DEVCOMM_SIMULATOR)

#  include <devcomm/simulator/simulator.hpp>

namespace {

/// A barrier of another kind than the one that timed out; in the same session, or in the next.
__global__ void change_level(device_comm comm, gin::context_handle contexts, bool in_one_session) {
  gin::barrier_session barrier{block{}, comm, comm.world(), contexts, gin::one_context(1), 2};
  if (in_one_session) static_cast<void>(barrier.sync_for(microseconds(30), gin::fence_level::put));
  static_cast<void>(barrier.sync_for(microseconds(30), gin::fence_level::none));
}

}  // namespace

TEST_CASE("a barrier that timed out is repeated with its level, and another one is misuse") {
  test::on_ranks(2, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2, .barriers = 3});
    auto device_comm = comm.create_device_comm(needs);
    if (comm.rank() == 0) {
      for (const bool in_one_session : {false, true}) {
        if (!in_one_session) run_meet(device_comm, contexts, patience::brief, status::timeout);
        launch(change_level, blocks_of(1), device_comm.get(), contexts, in_one_session);
        test::require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the launch succeeded");
        const std::string said = simulator::last_failure();
        test::require(said.find(in_one_session ? "give it the level of the first call"
                                               : "repeat it with the same level") != std::string::npos,
                      "it said: " + said);
      }
    }
    comm.barrier();
  });
}

namespace {

__global__ void meet_over(device_comm comm, gin::context_handle contexts, gin::context_range range) {
  gin::barrier_session barrier{block{}, comm, comm.world(), contexts, range, 0};
  barrier.sync(gin::fence_level::put);
}

}  // namespace

TEST_CASE("a GIN barrier over no context, or over more than there are, is misuse and no barrier") {
  test::on_ranks(1, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2, .barriers = 1});
    const auto device_comm = comm.create_device_comm(needs);
    for (const gin::context_range range : {gin::context_range{0, 0}, gin::context_range{0, 3}, gin::context_range{1, 2},
                                           gin::context_range{2, 1}, gin::context_range{1, ~0u}}) {
      launch(meet_over, blocks_of(1), device_comm.get(), contexts, range);
      test::require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess,
                    "contexts " + std::to_string(range.first) + ", " + std::to_string(range.count) + " were taken");
      const std::string said = simulator::last_failure();
      test::require(said.find("give it one_context(index) or all_contexts()") != std::string::npos, "it said: " + said);
    }
    launch(meet_over, blocks_of(1), device_comm.get(), contexts, gin::all_contexts());
    test::finish("meet_over");
  });
}

#endif

TEST_CASE("a GIN barrier ends after the timeout with a record that says who is missing, and the session is dead") {
  host::communicator_options impatient;
  impatient.kernel_timeout = std::chrono::seconds(2);  // the network gives up after half of it
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2, .barriers = 3});
        auto device_comm = comm.create_device_comm(needs);
        comm.barrier();
        if (comm.rank() == 0) {
          run_meet(device_comm, contexts, patience::none, status::timeout);
          std::string said;
          for (const failure_record& record : device_comm.failures()) said += host::describe(record) + "\n";
          test::require(said ==
                            "rank 0, block 0: GIN barrier 2 of context 1 waited for rank 1 to reach epoch 1 and last "
                            "saw 0: timeout\n",
                        "the records say: " + said);
          run_meet(device_comm, contexts, patience::none, status::aborted);
          test::require(device_comm.failures().size() == 1, "a dead session leaves no record");
        }
        comm.barrier();
      },
      impatient);
}
