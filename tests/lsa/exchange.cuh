/// \file exchange.cuh
/// The law of every packet session: what a member sends as pack `i` of a round is what the receiver gets as pack `i` of
/// that round.
#pragma once

#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace test {

using namespace devcomm;

inline constexpr unsigned exchange_threads = 64;

/// A number that floats hold exactly; each sender, receiver, pack and round has others.
__host__ __device__ inline float exchanged(int sender, int receiver, std::uint64_t i, std::uint32_t round) {
  return static_cast<float>(
      (static_cast<std::uint64_t>(sender) * 31 + static_cast<std::uint64_t>(receiver) * 7 + i * 131 + round * 1009u) %
      (1u << 20));
}

/// In each round every member sends `packs` packs to each, different ones, and counts what it gets otherwise.
template <class Session>
__global__ void exchange(device_comm comm, typename Session::handle mailboxes, std::uint32_t packs,
                         std::uint32_t first_round, std::uint32_t rounds, unsigned* wrong) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  const int self = session.members().rank;
  const int size = session.members().size;
  for (std::uint32_t round = first_round; round < first_round + rounds; ++round) {
    session.begin_round();
    for (auto at = session.cursor(); at.first() < packs; at.next()) {
      for (int member = 0; member < size; ++member) {
        pack<float> value{};
        if (at.is_below(packs)) {
          for (int e = 0; e < 4; ++e)
            value[e] = exchanged(self, member, at.index() * std::uint64_t{4} + static_cast<unsigned>(e), round);
        }
        session.send_pack(member, at, value);
      }
    }
    for (auto at = session.cursor(); at.first() < packs; at.next()) {
      for (int first = 0; first < size; first += 2) {
        pack<float> values[2];
        session.receive_packs(first, size, at, values);
        for (int m = 0; m < 2 && first + m < size; ++m) {
          if (!at.is_below(packs)) continue;
          for (int e = 0; e < 4; ++e) {
            if (values[m][e] !=
                exchanged(first + m, self, at.index() * std::uint64_t{4} + static_cast<unsigned>(e), round))
              atomicAdd(wrong, 1u);
          }
        }
      }
    }
  }
  if (session.agree() != status::success) atomicAdd(wrong, 1u);
}

/// Launches that follow one another, from the epoch after `epoch` on. A session that may be there once in a launch does
/// one launch more for each round.
template <class Session>
void check_exchange(int ranks, std::uint32_t packs, std::uint32_t epoch = 0) {
  on_ranks(ranks, [packs, epoch](host::communicator& comm) {
    constexpr std::uint32_t blocks = 2;
    constexpr std::uint32_t rounds = 3;
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), blocks, packs));
    const auto device_comm = comm.create_device_comm(needs);
    const lsa::mailbox_layout layout{mailboxes.count, mailboxes.members, mailboxes.packets};
    for (std::uint32_t b = 0; b < blocks; ++b) {
      char* own = device_comm.get().resources.local + mailboxes.offset + layout.epoch(b);
      check_cuda(cudaMemcpyAsync(own, &epoch, sizeof epoch, cudaMemcpyDefault, cudaStreamPerThread), "cudaMemcpyAsync");
    }
    finish("cudaMemcpyAsync");
    comm.barrier();
    const device_array<unsigned> wrong(1);
    for (std::uint32_t n = 0; n < 4; ++n) {
      launch(exchange<Session>, {.grid = blocks, .block = exchange_threads, .stream = cudaStreamPerThread},
             device_comm.get(), mailboxes, packs, n * rounds, rounds, wrong.get());
    }
    finish("exchange");
    device_comm.check();
    require(wrong.read().front() == 0,
            std::to_string(wrong.read().front()) + " wrong elements on rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

/// All of that for one kind of session.
template <class Session>
void check_exchanges() {
  for (const int ranks : rank_counts) check_exchange<Session>(ranks, 33);
  for (const std::uint32_t packs : {1u, 29u, 30u, 31u, 200u}) check_exchange<Session>(ranks_that_meet(3), packs);
  for (const std::uint32_t epoch : {~0u - 5, ~0u}) check_exchange<Session>(ranks_that_meet(3), 33, epoch);
}

}  // namespace test
