// LSA teams that are a part of the world, as on several hosts: whatever a kernel reaches is a member's, and not that of
// the rank with the same number. Teams may differ in size, and their members need not be consecutive ranks.
#include <devcomm/devcomm.cuh>

#ifdef DEVCOMM_SIMULATOR
#  include <devcomm/simulator/simulator.hpp>
#endif

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr std::uint32_t words = 64;  // of each rank in the window, and as many results after them

/// Different for each world rank and place, and exact in a float.
__host__ __device__ float element(int rank, std::uint32_t i) {
  return static_cast<float>((rank + 1) * 1000) + static_cast<float>(i);
}

/// What the sum of elements `i` over the LSA team of `comm` is.
__device__ float team_sum(const device_comm& comm, std::uint32_t i) {
  float sum = 0;
  for (int member = 0; member < comm.lsa_size; ++member) sum += element(comm.world_rank(comm.lsa(), member), i);
  return sum;
}

__device__ void count_sums(const device_comm& comm, const float* sums, unsigned* wrong) {
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x)
    if (sums[i] != team_sum(comm, i)) atomicAdd(wrong, 1u);
  __syncthreads();
}

struct resources {
  team pair;  ///< of neighbors within the LSA team
  lsa::barrier_handle of_pairs;
  lsa::signal_handle signals;
  collective::chunk_buffers chunks;
  channel::fifo_handle<channel::protocol::ll> fifos;
};

/// Words of every member, by its place in the LSA team and by its world rank; others have no address.
__global__ void read_all(device_comm comm, sym_ptr<float> board, unsigned* wrong) {
  lsa::barrier_session barrier{block{}, comm, 0};
  board.local()[threadIdx.x] = element(comm.rank, threadIdx.x);
  barrier.sync();
  for (int rank = 0; rank < comm.size; ++rank) {
    const int member = comm.lsa_member(rank);
    if (member < 0) {
      if (board.peer(rank) != nullptr) atomicAdd(wrong, 1u);
      continue;
    }
    const std::uint32_t i = (threadIdx.x + 1) % words;
    if (board.peer(rank)[i] != element(rank, i) || board.lsa(member)[i] != element(rank, i)) atomicAdd(wrong, 1u);
  }
  barrier.sync();
}

/// A barrier, a signal and a FIFO of two neighbors.
__global__ void meet_in_pairs(device_comm comm, resources at, sym_ptr<float> board, unsigned* wrong) {
  const int other = 1 - at.pair.rank;
  const int rank = comm.world_rank(at.pair, other);
  const std::uint32_t i = (threadIdx.x + 1) % words;
  lsa::barrier_session barrier{block{}, comm, at.pair, at.of_pairs, 0};
  board.local()[threadIdx.x] = element(comm.rank, threadIdx.x + words);
  barrier.sync();
  if (board.peer(rank)[i] != element(rank, i + words)) atomicAdd(wrong, 1u);
  barrier.sync();

  lsa::signal_session signal{block{}, comm, at.signals, 0};
  board.local()[threadIdx.x] = element(comm.rank, threadIdx.x + 2 * words);
  signal.add(comm.lsa_member(rank), 1);
  signal.take(comm.lsa_member(rank));
  if (board.peer(rank)[i] != element(rank, i + 2 * words)) atomicAdd(wrong, 1u);
  barrier.sync();

  const channel::endpoint neighbor{other, 0, 0};
  channel::session link{block{}, comm, at.pair, at.fifos, neighbor, neighbor};
  link.send<float>({0, 4}, [&](std::uint64_t p) {
    return pack<float>{{element(comm.rank, static_cast<std::uint32_t>(p)), 0, 0, 0}};
  });
  link.recv<float>({0, 4}, [&](std::uint64_t p, const pack<float>& value) {
    if (value[0] != element(rank, static_cast<std::uint32_t>(p))) atomicAdd(wrong, 1u);
  });
  if (link.agree() != status::success) atomicAdd(wrong, 1u);
}

/// The sum over the LSA team, straight from windows and through chunks.
__global__ void reduce_windows(device_comm comm, resources at, sym_ptr<float> board, float* sums, unsigned* wrong) {
  for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x) board.local()[i] = element(comm.rank, i);
  lsa::barrier_session barrier{block{}, comm, 1};
  collective::all_reduce_two_shot_zero_copy(barrier, board, board + words, words, sum{});
  count_sums(comm, board.local() + words, wrong);
  collective::all_reduce_two_shot_chunked<float>(
      barrier, collective::chunk_scratch::of_group(comm, at.chunks, at.chunks.packs_for(1, comm.lsa_size), 0),
      {0, words / 4},
      [&](std::uint64_t p) {
        pack<float> value;
        for (int e = 0; e < 4; ++e)
          value[e] = element(comm.rank, static_cast<std::uint32_t>(p) * 4 + static_cast<unsigned>(e));
        return value;
      },
      collective::to_memory<float>{sums, words}, sum{});
  count_sums(comm, sums, wrong);
}

template <class Session>
__global__ void reduce_packets(device_comm comm, typename Session::handle mailboxes, float* sums, unsigned* wrong) {
  Session session{block{}, comm, mailboxes, 0};
  collective::all_reduce_one_shot<float>(
      session, {0, words / 4},
      [&](std::uint64_t p) {
        pack<float> value;
        for (int e = 0; e < 4; ++e)
          value[e] = element(comm.rank, static_cast<std::uint32_t>(p) * 4 + static_cast<unsigned>(e));
        return value;
      },
      collective::to_memory<float>{sums, words}, sum{});
  if (session.agree() != status::success) atomicAdd(wrong, 1u);
  count_sums(comm, sums, wrong);
}

using ll = lsa::ll_session<block>;
using lamport = lsa::lamport_session<block>;
using ll128 = lsa::ll128_session<block>;

/// Kernels of one rank, whose LSA team is to have `lsa_size` members.
void run_kernels(host::communicator& comm, int lsa_size) {
  test::require(comm.lsa().size == lsa_size, "the LSA team has another size");
  auto needs = comm.requirements().lsa_barriers(2);
  const int first = comm.lsa().rank / 2 * 2;  // of three members the last has no neighbor
  const bool has_neighbor = first + 1 < lsa_size;
  const resources at{{comm.lsa().rank % 2, has_neighbor ? 2 : 1, comm.lsa().first + first, 1},
                     needs.add(lsa::barriers{{0, 2, 0, 1}, 1}),
                     needs.add(lsa::signals{comm.lsa(), 1}),
                     needs.add(collective::chunk_buffer_bytes{1 << 12}),
                     needs.add(channel::ll_fifos{{0, 2, 0, 1}, 1, 8, 2})};
  const auto ll_mailboxes = needs.add(lsa::mailboxes_for<ll>(comm.lsa(), 1, words / 4));
  const auto lamport_mailboxes = needs.add(lsa::mailboxes_for<lamport>(comm.lsa(), 1, words / 4));
  const auto ll128_mailboxes = needs.add(lsa::mailboxes_for<ll128>(comm.lsa(), 1, words / 4));
  const auto device_comm = comm.create_device_comm(needs);
  const auto board = comm.allocate(2 * words * sizeof(float));
  const test::device_array<float> sums(words, 0xff);
  const test::device_array<unsigned> wrong(1);
  const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
  comm.barrier();
  for (int time = 0; time < 2; ++time) {
    launch(read_all, config, device_comm.get(), board.pointer<float>(), wrong.get());
    if (has_neighbor) launch(meet_in_pairs, config, device_comm.get(), at, board.pointer<float>(), wrong.get());
    launch(reduce_windows, config, device_comm.get(), at, board.pointer<float>(), sums.get(), wrong.get());
    launch(reduce_packets<ll>, config, device_comm.get(), ll_mailboxes, sums.get(), wrong.get());
    launch(reduce_packets<lamport>, config, device_comm.get(), lamport_mailboxes, sums.get(), wrong.get());
    launch(reduce_packets<ll128>, config, device_comm.get(), ll128_mailboxes, sums.get(), wrong.get());
  }
  test::finish("the launches");
  device_comm.check();
  test::require(wrong.read().front() == 0,
                std::to_string(wrong.read().front()) + " wrong on rank " + std::to_string(comm.rank()));
  comm.barrier();
}

/// `ranks` ranks in teams of `lsa_size`.
void check_teams(int ranks, int lsa_size) {
  INFO(ranks << " ranks in LSA teams of " << lsa_size);
  test::on_ranks(ranks,
                 [lsa_size](host::communicator& comm) {
                   if (comm.size() % lsa_size != 0) return;  // DEVCOMM_RANKS asks for another number
                   run_kernels(comm, lsa_size);
                 },
                 {.lsa_size = lsa_size});
}

}  // namespace

TEST_CASE("kernels reach the members of LSA teams that are a part of the world, and nobody else") {
  check_teams(4, 2);
  check_teams(6, 3);
  check_teams(3, 1);
}

namespace {

__global__ void meet_twice(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync();
}

}  // namespace

TEST_CASE("a failure in an LSA team that is not the first names world ranks") {
  test::on_ranks(4,
                 [](host::communicator& comm) {
                   const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
                   comm.barrier();
                   if (comm.rank() != 3) {
                     launch(meet_twice, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get());
                     test::finish("meet_twice");
                   }
                   const auto failures = device_comm.failures();
                   test::require(failures.size() == (comm.rank() == 2 ? 1u : 0u), [&] {
                     return "rank " + std::to_string(comm.rank()) + " has " + std::to_string(failures.size()) +
                            " failures";
                   });
                   for (const failure_record& record : failures)
                     test::require(record.rank == 2 && record.peer == 3, host::describe(record));
                   comm.barrier();
                 },
                 {.lsa_size = 2, .kernel_timeout = std::chrono::milliseconds(500)});
}

#ifdef DEVCOMM_SIMULATOR

namespace {

/// Runs `body` on one rank for each of `teams`, which has the LSA team of each: {0, 1, 0} is ranks 0 and 2, and rank 1.
void on_placed_ranks(const std::vector<int>& teams, const std::function<void(host::communicator&)>& body,
                     host::communicator_options options = {}) {
  std::string groups;
  for (int team = 0; team <= *std::max_element(teams.begin(), teams.end()); ++team) {
    std::string members;
    for (std::size_t rank = 0; rank < teams.size(); ++rank)
      if (teams[rank] == team) members += (members.empty() ? "" : ",") + std::to_string(rank);
    groups += (groups.empty() ? "" : "/") + members;
  }
  INFO("ranks that reach each other: " << groups);
  simulator::set_peers(groups);
  test::on_ranks(
      static_cast<int>(teams.size()),
      [&](host::communicator& comm) {
        if (comm.size() != static_cast<int>(teams.size())) return;  // DEVCOMM_RANKS asks for another number
        for (std::size_t rank = 0; rank < teams.size(); ++rank) {
          const std::vector<int>& mine = comm.lsa_ranks();
          test::require((teams[rank] == teams[static_cast<std::size_t>(comm.rank())]) ==
                            (std::find(mine.begin(), mine.end(), static_cast<int>(rank)) != mine.end()),
                        "the LSA team is all ranks that this one reaches, and no others");
        }
        body(comm);
      },
      options);
  simulator::set_peers("");
}

}  // namespace

TEST_CASE("kernels reach the members of LSA teams that differ in size or are no consecutive ranks") {
  const std::vector<std::vector<int>> placements = {
      {0, 0, 0, 1, 1, 1, 1},     // 3 GPUs on one host and 4 on another
      {0, 1, 0, 1},              // dealt in turn
      {0, 0, 1, 1, 0, 0, 1, 1},  // dealt in pairs
      {0, 1, 0, 0, 1},           // neither one size nor an arithmetic sequence
  };
  for (const std::vector<int>& teams : placements) {
    on_placed_ranks(teams, [&](host::communicator& comm) {
      const int mine = teams[static_cast<std::size_t>(comm.rank())];
      run_kernels(comm, static_cast<int>(std::count(teams.begin(), teams.end(), mine)));
    });
  }
}

TEST_CASE("rails cross LSA teams dealt in turn, and are refused by name where teams differ in size") {
  on_placed_ranks({0, 1, 2, 0, 1, 2}, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements());
    const team rail = device_comm.get().rail();
    test::require(rail == comm.rail(), "kernels have the rail that the host has");
    test::require(rail.size == 3 && rail.world_rank(rail.rank) == comm.rank(), "the caller is in its rail");
    for (int member = 0; member < rail.size; ++member)
      test::require(rail.world_rank(member) / 3 == comm.rank() / 3, "a rail has one index of each LSA team");
  });
  on_placed_ranks({0, 0, 0, 1, 1}, [](host::communicator& comm) {
    std::string text;
    try {
      static_cast<void>(comm.rail());
    } catch (const host::not_supported& refused) {
      text = refused.what();
    }
    test::require(text.find("the LSA team of rank 0 has 3 ranks and that of rank 3 has 2 ranks") != std::string::npos,
                  "the reason is given: " + text);
  });
}

TEST_CASE("requirements of teams that differ in size may have GIN contexts only where places are alike") {
  on_placed_ranks({0, 0, 0, 1}, [](host::communicator& comm) {
    auto both = comm.requirements().lsa_barriers(1);
    both.add(gin::contexts{comm.world(), 1, 1, 0});
    std::string text;
    try {
      static_cast<void>(comm.create_device_comm(both));
    } catch (const host::not_supported& refused) {
      text = refused.what();
    }
    test::require(text.find("make two device communicators") != std::string::npos, "the advice is given: " + text);
    auto alone = comm.requirements();
    alone.add(gin::contexts{comm.world(), 1, 1, 0});
    static_cast<void>(comm.create_device_comm(alone));
    comm.barrier();
  });
}

TEST_CASE("failures and deadlocks in an LSA team dealt in turn name world ranks") {
  const auto rank_3_stays_away = [](host::communicator& comm, const auto& then) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    comm.barrier();
    if (comm.rank() != 3) {
      launch(meet_twice, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get());
      then(device_comm);
    }
    comm.barrier();
  };
  on_placed_ranks({0, 1, 0, 1},
                  [&](host::communicator& comm) {
                    rank_3_stays_away(comm, [&](const host::device_communicator& device_comm) {
                      test::finish("meet_twice");
                      const auto failures = device_comm.failures();
                      test::require(failures.size() == (comm.rank() == 1 ? 1u : 0u), "who waits for rank 3 fails");
                      for (const failure_record& record : failures)
                        test::require(record.rank == 1 && record.peer == 3, host::describe(record));
                    });
                  },
                  {.kernel_timeout = std::chrono::milliseconds(500)});
  simulator::clear_failure();
  on_placed_ranks({0, 1, 0, 1}, [&](host::communicator& comm) {
    rank_3_stays_away(comm, [&](const host::device_communicator&) {
      static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));
      static_cast<void>(simulator::last_failure());  // looked at below
    });
  });
  const std::string said = simulator::last_failure();
  simulator::clear_failure();
  INFO(said);
  CHECK(said.find("rank 1, block 0, thread 0: LSA barrier 0: waits for rank 3 to reach epoch 1") != std::string::npos);
}

#endif
