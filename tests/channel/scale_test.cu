/// 64 ranks: a ring, also in an order of its own, two trees, an all-to-all and a group of messages, compared with what
/// all ranks know.
#include <devcomm/devcomm.cuh>

#include "channel/fifo_kinds.hpp"
#include "channel/post_office.hpp"
#include "support/ranks.hpp"
#include "support/watched.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using namespace devcomm;
using channel::protocol;

namespace {

constexpr int ranks = 64;
constexpr unsigned threads = 32;

/// Element `i` of what `rank` has.
__host__ __device__ std::uint32_t element(int rank, std::uint64_t i) {
  return (static_cast<std::uint32_t>(rank) + 1) * 1000003u + static_cast<std::uint32_t>(i) * 7919u;
}

std::uint32_t sum_of_all(std::uint64_t i) {
  std::uint32_t total = 0;
  for (int rank = 0; rank < ranks; ++rank) total += element(rank, i);
  return total;
}

/// A vector in place, which a kernel changes.
template <class Kernel, class... Arguments>
void check_sums(const host::communicator& comm, const host::device_communicator& device_comm, unsigned blocks,
                std::uint64_t count, Kernel kernel, const Arguments&... arguments) {
  std::vector<std::uint32_t> values(count);
  for (std::uint64_t i = 0; i < count; ++i) values[i] = element(comm.rank(), i);
  const test::device_array<std::uint32_t> data(values);
  launch(kernel, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), arguments...,
         data.get(), count);
  test::finish("a sum over 64 ranks");
  device_comm.check();
  const auto got = data.read();
  for (std::uint64_t i = 0; i < count; ++i)
    test::require(got[i] == sum_of_all(i), [&] {
      return "rank " + std::to_string(comm.rank()) + ": element " + std::to_string(i) + " is " + std::to_string(got[i]);
    });
}

template <protocol Protocol>
__global__ void sum_round_ring(device_comm comm, channel::fifo_handle<Protocol> fifos, ring_order order,
                               std::uint32_t* data, std::uint64_t count) {
  using T = std::uint32_t;
  collective::ring_position ring{block{}, comm, comm.lsa(), order, fifos, blockIdx.x};
  collective::all_reduce_ring<T>(ring, collective::slice_of_block(packs_of<T>(count)),
                                 collective::from_memory<T>{data, count}, collective::to_memory<T>{data, count}, sum{});
}

template <protocol Protocol>
__global__ void sum_over_trees(device_comm comm, channel::fifo_handle<Protocol> fifos, std::uint32_t* data,
                               std::uint64_t count) {
  using T = std::uint32_t;
  const collective::tree_position position{block{}, comm, comm.lsa(), fifos, blockIdx.x};
  collective::all_reduce_tree<T>(position, collective::slice_of_block(packs_of<T>(count)),
                                 collective::from_memory<T>{data, count}, collective::to_memory<T>{data, count}, sum{});
}

}  // namespace

TEST_CASE("64 ranks add up round a ring, in the order of the ranks and in another") {
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    test::on_ranks(ranks, [=](host::communicator& comm) {
      auto needs = comm.requirements();
      const channel::fifos<protocol()> asked{comm.lsa(), 1, 30, 2};
      const auto first = needs.add(asked);
      const auto second = needs.add(asked);
      const auto device_comm = comm.create_device_comm(needs);
      std::vector<int> members(ranks);
      std::iota(members.begin(), members.end(), 0);
      std::shuffle(members.begin(), members.end(), std::mt19937(7));
      const channel::ring_table other(comm.lsa(), members);
      comm.barrier();
      check_sums(comm, device_comm, 1, 1000, sum_round_ring<protocol()>, first, in_team_order(comm.lsa()));
      check_sums(comm, device_comm, 1, 1000, sum_round_ring<protocol()>, second, other.order());
      comm.barrier();
    });
  });
}

TEST_CASE("64 ranks add up over two trees") {
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    test::on_ranks(ranks, [=](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 2 * collective::fifos_of_tree, 30, 2});
      const auto device_comm = comm.create_device_comm(needs);
      comm.barrier();
      check_sums(comm, device_comm, 2, 1000, sum_over_trees<protocol()>, fifos);
      comm.barrier();
    });
  });
}

namespace {

/// Shard `m` of the input goes to rank `m`.
__global__ void exchange_all(device_comm comm, lsa::ll_handle mailboxes, const std::uint32_t* input,
                             std::uint32_t* output, std::uint64_t length) {
  using T = std::uint32_t;
  const std::uint64_t all = length * static_cast<std::uint64_t>(comm.lsa_size);
  lsa::ll_session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_to_all<T>(session, collective::slice_of_block(packs_of<T>(length)),
                            collective::from_shards<T>{input, all, length},
                            collective::to_shards<T>{output, all, length});
}

}  // namespace

TEST_CASE("64 ranks exchange a shard each with all others") {
  test::on_ranks(ranks, [](host::communicator& comm) {
    constexpr std::uint64_t length = 37;
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, 2 * threads});
    const auto device_comm = comm.create_device_comm(needs);
    std::vector<std::uint32_t> values(length * ranks);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(comm.rank(), i);
    const test::device_array<std::uint32_t> input(values);
    const test::device_array<std::uint32_t> output(values.size());
    comm.barrier();
    launch(exchange_all, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), mailboxes,
           input.get(), output.get(), length);
    test::finish("exchange_all");
    device_comm.check();
    const auto got = output.read();
    const std::uint64_t mine = static_cast<std::uint64_t>(comm.rank()) * length;
    for (std::uint64_t i = 0; i < got.size(); ++i)
      test::require(got[i] == element(static_cast<int>(i / length), mine + i % length),
                    [&] { return "rank " + std::to_string(comm.rank()) + ": element " + std::to_string(i); });
    comm.barrier();
  });
}

TEST_CASE("a group of messages among 64 ranks arrives whole") {
  test::on_ranks(ranks, [](host::communicator& comm) {
    test::post_office office(comm, 1);
    std::mt19937 all(64);
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    for (int round = 0; round < (test::is_watched ? 1 : 3); ++round)
      office.move(test::random_plan(comm.size(), 300, all), own, 1, threads);
  });
}
