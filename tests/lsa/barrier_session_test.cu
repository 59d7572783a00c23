#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <string>
#include <thread>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;

/// In each round every thread writes a word that names rank, thread and round, synchronizes with the others, and
/// counts the words of its peers that are not what they wrote this round.
template <class Group>
__device__ std::uint32_t count_stale_words(const Group& group, lsa::barrier_session<Group>& barrier, team members,
                                           const device_comm& comm, sym_ptr<std::uint32_t> board, int rounds) {
  std::uint32_t stale = 0;
  const auto word = [](int rank, std::uint32_t thread, int round) {
    return static_cast<std::uint32_t>(rank) << 24 | thread << 12 | static_cast<std::uint32_t>(round);
  };
  for (int round = 0; round < rounds; ++round) {
    board.local()[group.thread_rank()] = word(comm.rank, group.thread_rank(), round);
    barrier.sync(memory_order::acq_rel);
    for (int member = 0; member < members.size; ++member) {
      // Another thread of the peer than the one that shares this thread's rank in the group.
      const std::uint32_t other = (group.thread_rank() + 1) % group.size();
      const int rank = members.world_rank(member);
      stale += board.peer(rank)[other] != word(rank, other, round) ? 1u : 0u;
    }
    barrier.sync(memory_order::acq_rel);
  }
  return stale;
}

__global__ void meet_in_rounds(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* stale, int rounds) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const auto count = count_stale_words(block{}, barrier, comm.lsa(), comm,
                                       board + static_cast<std::int64_t>(blockIdx.x) * blockDim.x, rounds);
  stale[blockIdx.x * blockDim.x + threadIdx.x] = count;
}

void require_none(const std::vector<std::uint32_t>& stale, const std::string& what) {
  for (const std::uint32_t count : stale) test::require(count == 0, what + ": " + std::to_string(count) + " stale");
}

/// Sets every epoch and flag of the communicator's own barriers, as if that many barriers had passed.
void set_epochs(const device_comm& comm, std::uint32_t epoch) {
  const resource_handle barriers = comm.lsa_barriers;
  const lsa::barrier_layout layout{barriers.count, barriers.members};
  const auto set = [&](std::uint64_t place) {
    check_cuda(cudaMemcpyAsync(comm.resources.local + barriers.offset + place, &epoch, sizeof epoch, cudaMemcpyDefault,
                               cudaStreamPerThread),
               "set_epochs");
    test::finish("set_epochs");
  };
  for (std::uint32_t index = 0; index < barriers.count; ++index) {
    set(layout.epoch(index));
    for (std::uint32_t member = 0; member < barriers.members; ++member) set(layout.flag(index, member));
  }
}

/// Launches `meet_in_rounds` a few times and checks it, from the epoch the barriers are at.
void check_rounds(host::communicator& comm, const host::device_communicator& device_comm, unsigned blocks,
                  int launches) {
  const auto board = comm.allocate(blocks * threads * sizeof(std::uint32_t));
  const test::device_array<std::uint32_t> stale(blocks * threads, 0xff);
  for (int i = 0; i < launches; ++i) {
    launch(meet_in_rounds, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
           board.pointer<std::uint32_t>(), stale.get(), 5);
  }
  test::finish("meet_in_rounds");
  device_comm.check();
  require_none(stale.read(), "rank " + std::to_string(comm.rank()));
  comm.barrier();
}

}  // namespace

TEST_CASE("barrier_session orders data across ranks") {
  for (const int ranks : test::rank_counts) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      constexpr unsigned blocks = 2;
      check_rounds(comm, comm.create_device_comm(comm.requirements().lsa_barriers(blocks)), blocks, 3);
    });
  }
}

TEST_CASE("epochs wrap around") {
  for (const std::uint32_t epoch : {0xffffffffu, 0xfffffff9u, 0x7ffffffbu, 0x80000000u}) {
    INFO("from epoch " << epoch);
    test::on_ranks(test::ranks_that_meet(3), [epoch](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
      set_epochs(device_comm.get(), epoch);
      comm.barrier();
      check_rounds(comm, device_comm, 2, 2);
    });
  }
}

namespace {

/// Rank 0 looks at its flags when its peers have long been at the relaxed barrier of their next launch.
__global__ void meet_and_look_late(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t value,
                                   std::uint32_t* wrong) {
  lsa::barrier_session barrier{block{}, comm, 0};
  const team ranks = comm.lsa();
  board.local()[threadIdx.x] = value + threadIdx.x;
  barrier.arrive(memory_order::acq_rel);
  if (comm.lsa_rank() == 0) {
    for (const std::uint64_t begin = arch::global_time(); arch::global_time() - begin < 300000;) arch::sleep(1000);
  }
  barrier.wait(memory_order::acq_rel);
  const unsigned other = (threadIdx.x + 1) % blockDim.x;
  for (int member = 0; member < ranks.size; ++member)
    wrong[threadIdx.x] += board.lsa(member)[other] != value + other ? 1u : 0u;
}

__global__ void meet_only(device_comm comm, memory_order order) {
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync(order);
}

}  // namespace

TEST_CASE("a barrier orders data although peers have arrived at a relaxed one of a later launch") {
  for (const memory_order later : {memory_order::relaxed, lsa::at_launch}) {
    test::on_ranks(test::ranks_that_meet(3), [&](host::communicator& comm) {
      const auto owner = comm.create_device_comm(comm.requirements().lsa_barriers(1));
      const auto board = comm.allocate(threads * sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> wrong(threads);
      const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
      comm.barrier();
      for (std::uint32_t round = 0; round < 4; ++round) {
        launch(meet_and_look_late, config, owner.get(), board.pointer<std::uint32_t>(), 100 * round, wrong.get());
        device_comm without_atomics = owner.get();
        if (round % 2 != 0) without_atomics.flags |= device_comm::no_lsa_atomics;
        launch(meet_only, config, without_atomics, later);
        launch(meet_only, config, owner.get(), memory_order::acq_rel);
      }
      test::finish("meet_and_look_late");
      owner.check();
      require_none(wrong.read(), "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  }
}

namespace {

/// Two sessions at once, advanced at different rates.
__global__ void meet_at_two_barriers(device_comm comm, std::uint32_t* epochs) {
  lsa::barrier_session first{block{}, comm, 0};
  {
    lsa::barrier_session second{block{}, comm, 1};
    for (int i = 0; i < 6; ++i) {
      second.sync();
      if (i % 3 == 0) first.sync();
    }
    if (threadIdx.x == 0) epochs[1] = second.epoch();
  }
  first.sync();
  if (threadIdx.x == 0) epochs[0] = first.epoch();
}

}  // namespace

TEST_CASE("barriers of one communicator are independent") {
  test::on_ranks(test::ranks_that_meet(4), [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
    const test::device_array<std::uint32_t> epochs(2);
    for (std::uint32_t n = 1; n <= 3; ++n) {
      launch(meet_at_two_barriers, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             epochs.get());
      test::finish("meet_at_two_barriers");
      device_comm.check();
      test::require(epochs.read() == std::vector<std::uint32_t>{3 * n, 6 * n}, "epochs of both barriers");
    }
  });
}

namespace {

__global__ void meet_in_teams(device_comm comm, team inner, lsa::barrier_handle inner_barriers, team outer,
                              lsa::barrier_handle outer_barriers, sym_ptr<std::uint32_t> board, std::uint32_t* stale) {
  std::uint32_t count = 0;
  {
    lsa::barrier_session barrier{block{}, comm, inner, inner_barriers, 1};
    count += count_stale_words(block{}, barrier, inner, comm, board, 4);
  }
  {
    lsa::barrier_session barrier{block{}, comm, outer, outer_barriers, 0};
    count += count_stale_words(block{}, barrier, outer, comm, board, 3);
  }
  stale[threadIdx.x] = count;
}

}  // namespace

TEST_CASE("teams within the LSA team meet at barriers of their own") {
  for (const int factor : {1, 2, 3, 6}) {
    INFO("factor " << factor);
    test::on_ranks(6, [factor](host::communicator& comm) {
      if (comm.size() % factor != 0) return;  // DEVCOMM_RANKS asks for another number
      const team inner = inner_factor(comm.lsa(), factor);
      const team outer = outer_factor(comm.lsa(), factor);
      auto needs = comm.requirements();
      const auto inner_barriers = needs.add(lsa::barriers{inner, 2});
      const auto outer_barriers = needs.add(lsa::barriers{outer, 1});
      const auto device_comm = comm.create_device_comm(needs);
      const auto board = comm.allocate(threads * sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> stale(threads, 0xff);
      launch(meet_in_teams, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), inner,
             inner_barriers, outer, outer_barriers, board.pointer<std::uint32_t>(), stale.get());
      test::finish("meet_in_teams");
      device_comm.check();
      require_none(stale.read(), "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  }
}

namespace {

struct foreign_block {
  __device__ std::uint32_t thread_rank() const { return threadIdx.x; }
  __device__ std::uint32_t size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
};

constexpr unsigned group_barriers = 23;

/// Each kind of group in turn, with a barrier for each group.
__global__ void meet_in_groups(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* stale) {
  const unsigned warp_index = threadIdx.x / 32;
  const auto meet = [&](const auto& group, std::uint32_t index) {
    lsa::barrier_session barrier{group, comm, index};
    return count_stale_words(group, barrier, comm.lsa(), comm, board + static_cast<std::int64_t>(index) * threads, 2);
  };
  std::uint32_t count = 0;
  // Groups of one kind may be done before others of the next begin, so no two share a barrier.
  count += meet(block{}, 0);
  count += meet(foreign_block{}, 1);
  count += meet(any_group(block{}), 2);
  count += meet(warp{}, 3 + warp_index);
  count += meet(tile<8>{}, 5 + threadIdx.x / 8);
  count += meet(lanes(threadIdx.x % 2 == 0 ? 0x55555555u : 0xaaaaaaaau), 13 + warp_index * 2 + threadIdx.x % 2);
  count += meet(warp_span(warp_index, 1, 1 + warp_index), 17 + warp_index);
  if (threadIdx.x % 16 == 0) count += meet(thread{}, 19 + threadIdx.x / 16);
  stale[threadIdx.x] = count;
}

}  // namespace

TEST_CASE("every kind of group can hold a barrier") {
  for (const int ranks : {1, 2, 3, 4}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(group_barriers));
      const auto board = comm.allocate(group_barriers * threads * sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> stale(threads, 0xff);
      launch(meet_in_groups, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             board.pointer<std::uint32_t>(), stale.get());
      test::finish("meet_in_groups");
      device_comm.check();
      require_none(stale.read(), "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  }
}

namespace {

__global__ void arrive_then_wait(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t* wrong) {
  const team ranks = comm.lsa();
  lsa::barrier_session barrier{block{}, comm, 0};
  std::uint32_t count = 0;
  for (std::uint32_t round = 1; round <= 4; ++round) {
    if (threadIdx.x == 0) board.local()[0] = round;
    barrier.arrive(memory_order::release);
    barrier.wait(memory_order::acquire);
    for (int peer = 0; peer < ranks.size; ++peer) count += board.lsa(peer)[0] != round ? 1u : 0u;
    barrier.sync(memory_order::acq_rel);
  }
  wrong[threadIdx.x] = count;
}

/// Writes each thread's status of a barrier with a deadline.
__global__ void try_to_meet(device_comm comm, status* outcomes, std::uint32_t* epoch, nanoseconds limit) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  outcomes[blockIdx.x * blockDim.x + threadIdx.x] = barrier.sync_for(limit);
  if (blockIdx.x == 0 && threadIdx.x == 0) *epoch = barrier.epoch();
}

/// Each thread's view of a barrier without a deadline, and of another one after it.
__global__ void meet_and_agree(device_comm comm, status* outcomes) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync();
  const status first = barrier.agree();
  barrier.sync();
  const status second = barrier.agree();
  const bool repeated = barrier.sync_for(milliseconds(20000)) == second && first == second;
  outcomes[blockIdx.x * blockDim.x + threadIdx.x] = repeated ? first : status::timeout;
}

/// `try_to_meet`, repeated until it succeeds.
__global__ void insist_to_meet(device_comm comm, status* outcomes, std::uint32_t* epoch, nanoseconds limit) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  status outcome = status::timeout;
  while (outcome == status::timeout) outcome = barrier.sync_for(limit);
  outcomes[blockIdx.x * blockDim.x + threadIdx.x] = outcome;
  if (blockIdx.x == 0 && threadIdx.x == 0) *epoch = barrier.epoch();
}

}  // namespace

TEST_CASE("arrive and wait make a barrier") {
  for (const int ranks : test::rank_counts) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
      const auto board = comm.allocate(sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> wrong(threads, 0xff);
      launch(arrive_then_wait, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             board.pointer<std::uint32_t>(), wrong.get());
      test::finish("arrive_then_wait");
      device_comm.check();
      require_none(wrong.read(), "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  }
}

TEST_CASE("a deadline ends a wait for all threads alike, without advancing the epoch") {
  test::on_ranks(test::ranks_that_meet(3), [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    const test::device_array<status> outcomes(threads, 0xff);
    const test::device_array<std::uint32_t> epoch(1, 0xff);
    const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
    const auto all_are = [&](status expected) {
      for (const status outcome : outcomes.read()) {
        test::require(outcome == expected,
                      std::string("outcome is ") + to_string(outcome) + ", expected " + to_string(expected));
      }
    };

    if (comm.rank() != comm.size() - 1) {  // the last is late
      launch(try_to_meet, config, device_comm.get(), outcomes.get(), epoch.get(), milliseconds(20));
      test::finish("try_to_meet");
      all_are(status::timeout);
      test::require(epoch.read()[0] == 0, "the epoch advanced");
    }
    comm.barrier();
    test::require(device_comm.failures().empty(), "a deadline of the caller's own is no failure");

    launch(insist_to_meet, config, device_comm.get(), outcomes.get(), epoch.get(), milliseconds(20));
    test::finish("insist_to_meet");
    all_are(status::success);
    test::require(epoch.read()[0] == 1, "the epoch did not advance");
    device_comm.check();
  });
}

TEST_CASE("abort ends a waiting kernel") {
  test::on_ranks(2, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    const test::device_array<status> outcomes(threads, 0xff);
    const test::device_array<std::uint32_t> epoch(1, 0xff);
    if (comm.rank() == 0) {
      launch(try_to_meet, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             outcomes.get(), epoch.get(), milliseconds(60000));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      comm.abort();
      test::finish("try_to_meet");
      for (const status outcome : outcomes.read()) {
        test::require(outcome == status::aborted, std::string("outcome is ") + to_string(outcome));
      }
      test::require(comm.aborted(), "the communicator does not know that it was aborted");
    }
  });
}

TEST_CASE("launches that differ between ranks are a mismatch that names both") {
  host::communicator_options options;
  options.check_launch = true;
  for (const std::string what : {"grid", "group", "key"}) {
    INFO(what);
    test::on_ranks(
        2,
        [&](host::communicator& comm) {
          const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(4));
          const test::device_array<status> outcomes(4 * threads, 0xff);
          const test::device_array<std::uint32_t> epoch(1, 0xff);
          const bool other = comm.rank() == 1;
          const launch_config config{.grid = what == "grid" && other ? 2u : 1u,
                                     .block = what == "group" && other ? threads / 2 : threads,
                                     .stream = cudaStreamPerThread};
          launch(try_to_meet, config, device_comm.get().with_launch_key(what == "key" && other ? 8 : 7), outcomes.get(),
                 epoch.get(), milliseconds(500));
          test::finish("try_to_meet");
          test::require(outcomes.read()[0] == status::mismatch, "the first block's outcome is not a mismatch");

          bool found = false;
          for (const failure_record& record : device_comm.failures()) {
            if (record.outcome != status::mismatch) continue;
            found = true;
            test::require(record.rank == comm.rank() && record.peer == 1 - comm.rank(), "ranks of the record");
            test::require(record.mine.grid_blocks == config.grid.x && record.mine.group_threads == config.block.x,
                          "this rank's launch in the record");
            test::require(what != "grid" || record.theirs.grid_blocks == (other ? 1u : 2u), "peer's grid");
            test::require(what != "group" || record.theirs.group_threads == (other ? threads : threads / 2),
                          "peer's group");
            test::require(what != "key" || record.theirs.key == (other ? 7u : 8u), "peer's key");
          }
          test::require(found, "no record of the mismatch");
          bool thrown = false;
          try {
            device_comm.check();
          } catch (const host::kernel_error&) {
            thrown = true;
          }
          test::require(thrown, "check did not throw");
        },
        options);
  }
}

TEST_CASE("a group agrees that a session is dead, and its calls go on to return") {
  host::communicator_options options;
  options.check_launch = true;
  for (const bool differ : {true, false}) {
    INFO((differ ? "different keys" : "one key"));
    test::on_ranks(
        test::ranks_that_meet(3),
        [differ](host::communicator& comm) {
          constexpr unsigned blocks = 2;
          const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
          const test::device_array<status> outcomes(blocks * threads, 0xff);
          const auto key = static_cast<std::uint64_t>(differ ? comm.rank() : 5);
          launch(meet_and_agree, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
                 device_comm.get().with_launch_key(key), outcomes.get());
          test::finish("meet_and_agree");
          const auto seen = outcomes.read();
          for (unsigned block = 0; block < blocks; ++block) {
            const status expected = seen[block * threads];
            // The block that finds the difference second may be told of an abort instead.
            const bool plausible =
                differ ? expected == status::mismatch || expected == status::aborted : expected == status::success;
            test::require(plausible, std::string("outcome is ") + to_string(expected));
            for (unsigned thread = 1; thread < threads; ++thread)
              test::require(seen[block * threads + thread] == expected, "the threads of a block disagree");
          }
          test::require(device_comm.failures().empty() != differ, "records of a failure");
          comm.barrier();
        },
        options);
  }
}

TEST_CASE("the same launch on all ranks passes the check, launch after launch") {
  host::communicator_options options;
  options.check_launch = true;
  test::on_ranks(
      test::ranks_that_meet(3),
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(4));
        for (const unsigned blocks : {4u, 1u, 3u}) check_rounds(comm, device_comm, blocks, 2);
      },
      options);
}
