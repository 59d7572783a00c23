#include <devcomm/devcomm.cuh>

#include "lsa/exchange.cuh"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;

TEST_CASE("ll_session brings each pack of each round to its receiver") {
  test::check_exchanges<lsa::ll_session<block>>();
}

namespace {

constexpr unsigned threads = 64;

__device__ std::uint64_t value_of(int rank, std::uint32_t packet, std::uint32_t round) {
  return std::uint64_t{round} << 32 | static_cast<std::uint64_t>(rank) << 16 | packet;
}

/// What one thread sends another receives, in every round another one.
__global__ void receive_by_others(device_comm comm, lsa::ll_handle mailboxes, std::uint32_t rounds, unsigned* wrong) {
  lsa::ll_session session{block{}, comm, mailboxes, 0};
  const int members = session.members().size;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    session.begin_round();
    for (int m = 0; m < members; ++m) session.send(m, threadIdx.x, value_of(comm.rank, threadIdx.x, round));
    const std::uint32_t other = (threadIdx.x + 1 + 13 * round) % blockDim.x;
    for (int m = 0; m < members; ++m) {
      std::uint64_t got[1][1];
      session.receive(m, m + 1, other, got);
      if (got[0][0] != value_of(m, other, round)) atomicAdd(wrong, 1u);
    }
  }
}

/// Each row is one of several blocks', which tell each other what they have, round after round.
__global__ void sum_of_blocks(device_comm comm, lsa::ll_handle mailboxes, std::uint32_t rounds, std::uint32_t* sums) {
  const std::uint32_t part = blockIdx.x % mailboxes.members;
  lsa::ll_session session{
      block{}, comm, lsa::local_team{static_cast<int>(part), static_cast<int>(mailboxes.members), blockIdx.x - part},
      mailboxes};
  const std::uint32_t packs = session.pack_capacity();
  collective::all_reduce_one_shot<std::uint32_t>(
      session, {0, std::uint64_t{packs} * rounds},
      [&](std::uint64_t i) {
        const auto element = static_cast<std::uint32_t>(i);
        return pack<std::uint32_t>{{blockIdx.x, element, blockIdx.x * element, 1}};
      },
      [&](std::uint64_t i, const pack<std::uint32_t>& sum) {
        store_pack(sums + (std::uint64_t{blockIdx.x} * packs * rounds + i) * 4, sum);
      },
      sum{});
}

}  // namespace

TEST_CASE("packets are received by other threads than sent them, round after round") {
  for (const int ranks : {2, 3}) {
    test::on_ranks(test::ranks_that_meet(ranks), [](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, threads});
      const auto device_comm = comm.create_device_comm(needs);
      const test::device_array<unsigned> wrong(1);
      comm.barrier();
      launch(receive_by_others, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             mailboxes, 8u, wrong.get());
      test::finish("receive_by_others");
      device_comm.check();
      test::require(wrong.read().front() == 0, "packets of another round");
      comm.barrier();
    });
  }
}

TEST_CASE("blocks of one rank reduce among themselves, on several ranks at once") {
  test::on_ranks(2, [](host::communicator& comm) {
    constexpr std::uint32_t packs = 3;
    constexpr std::uint32_t rounds = 4;
    auto needs = comm.requirements();
    std::vector<lsa::ll_handle> handles;
    for (const std::uint32_t members : {1u, 2u, 3u, 5u})
      handles.push_back(
          needs.add(lsa::local_ll_mailboxes{3 * members, members, lsa::ll_session<block>::packets_for(packs)}));
    const auto device_comm = comm.create_device_comm(needs);
    for (int launch_number = 0; launch_number < 3; ++launch_number) {
      for (const lsa::ll_handle& mailboxes : handles) {
        const std::uint32_t m = mailboxes.members;
        const test::device_array<std::uint32_t> sums(std::size_t{mailboxes.count} * packs * rounds * 4, 0xff);
        launch(sum_of_blocks, {.grid = mailboxes.count, .block = threads, .stream = cudaStreamPerThread},
               device_comm.get(), mailboxes, rounds, sums.get());
        test::finish("the sums of blocks");
        device_comm.check();
        const auto got = sums.read();
        for (std::uint32_t b = 0; b < mailboxes.count; ++b) {
          std::uint32_t of_blocks = 0;
          for (std::uint32_t k = 0; k < m; ++k) of_blocks += b / m * m + k;
          for (std::uint32_t i = 0; i < packs * rounds; ++i) {
            const std::uint32_t* at = &got[(std::size_t{b} * packs * rounds + i) * 4];
            test::require(at[0] == of_blocks && at[1] == m * i && at[2] == of_blocks * i && at[3] == m,
                          [&] { return "block " + std::to_string(b) + ", pack " + std::to_string(i); });
          }
        }
      }
    }
  });
}
