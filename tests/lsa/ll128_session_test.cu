#include <devcomm/devcomm.cuh>

#include "lsa/exchange.cuh"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;

TEST_CASE("ll128_session brings each pack of each round to its receiver") {
  test::check_exchanges<lsa::ll128_session<block>>();
}

namespace {

/// Whole numbers that are small enough for exact sums in every type.
double element(int rank, std::uint64_t i) {
  const auto mix = (i * 2654435761u) ^ (static_cast<std::uint64_t>(rank + 1) * 40503u);
  return static_cast<double>(mix % 15) - 7.0;
}

/// The block's first warp by itself, and the other three together, each with half of the vector and a mailbox.
__global__ void reduce_by_warps(device_comm comm, lsa::ll128_handle mailboxes, const double* input, double* output,
                                std::uint64_t part) {
  const bool first = threadIdx.x < 32;
  const collective::from_memory<double> source{first ? input : input + part, part};
  const collective::to_memory<double> destination{first ? output : output + part, part};
  const collective::slice packs{0, collective::packs_of<double>(part)};
  if (first) {
    lsa::ll128_session session{warp{}, comm, mailboxes, 0};
    collective::all_reduce_two_shot<double>(session, packs, source, destination, sum{});
  } else {
    lsa::ll128_session session{warp_span(1, 3, 1), comm, mailboxes, 1};
    collective::all_reduce_one_shot<double>(session, packs, source, destination, sum{});
  }
}

}  // namespace

TEST_CASE("warps and spans of warps have LL128 mailboxes of their own") {
  test::on_ranks(test::ranks_that_meet(3), [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<lsa::ll128_session<block>>(comm.lsa(), 2, 70));
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::size_t part = 500;
    std::vector<double> input(2 * part);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = element(comm.rank(), i);
    const test::device_array<double> from(input);
    const test::device_array<double> to(input.size(), 0xff);
    for (int i = 0; i < 3; ++i) {
      launch(reduce_by_warps, {.grid = 1, .block = 128, .stream = cudaStreamPerThread}, device_comm.get(), mailboxes,
             static_cast<const double*>(from.get()), to.get(), part);
    }
    test::finish("reduce_by_warps");
    device_comm.check();
    const auto got = to.read();
    for (std::size_t i = 0; i < got.size(); ++i) {
      double total = 0;
      for (int rank = 0; rank < comm.size(); ++rank) total += element(rank, i);
      test::require(got[i] == total, "element " + std::to_string(i) + " on rank " + std::to_string(comm.rank()));
    }
    comm.barrier();
  });
}
