/// The all-reduce over trees, against a reference of integers: every protocol, number of ranks and size.
#include <devcomm/devcomm.cuh>

#include "channel/fifo_kinds.hpp"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

using namespace devcomm;
using channel::protocol;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned blocks = 2;  // one in each tree

std::uint32_t input_of(int rank, std::uint64_t i) {
  return (static_cast<std::uint32_t>(rank) + 1) * 1000003u + static_cast<std::uint32_t>(i) * 7919u;
}

template <protocol Protocol, class Operator>
__global__ void reduce(device_comm comm, channel::fifo_handle<Protocol> fifos, const std::uint32_t* input,
                       std::uint32_t* output, std::uint64_t count, Operator op) {
  using T = std::uint32_t;
  const collective::tree_position position{block{}, comm, comm.lsa(), fifos, blockIdx.x};
  collective::all_reduce_tree<T>(position, collective::slice_of_block(packs_of<T>(count)),
                                 collective::from_memory<T>{input, count}, collective::to_memory<T>{output, count}, op);
}

template <protocol Protocol>
void check(int ranks, std::uint64_t count) {
  INFO(to_string(Protocol) << ", " << ranks << " ranks, " << count << " elements");
  test::on_ranks(ranks, [=](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), blocks * collective::fifos_of_tree, 30, 2});
    const auto device_comm = comm.create_device_comm(needs);
    std::vector<std::uint32_t> values(count);
    for (std::uint64_t i = 0; i < count; ++i) values[i] = input_of(comm.rank(), i);
    const test::device_array<std::uint32_t> input(values);
    std::vector<std::unique_ptr<test::device_array<std::uint32_t>>> outputs;
    for (int n = 0; n < 3; ++n) outputs.push_back(std::make_unique<test::device_array<std::uint32_t>>(count + 1, 0xff));
    comm.barrier();  // an allocation may wait for a kernel that waits for this rank
    for (int n = 0; n < 3; ++n) {
      const bool scaled = n == 1;
      const bool smallest = n == 2;  // which zeros of children that are not there would change
      const test::device_array<std::uint32_t>& output = *outputs[static_cast<std::size_t>(n)];
      const launch_config shape{.grid = blocks, .block = threads, .stream = cudaStreamPerThread};
      if (scaled) {
        launch(reduce<Protocol, scaled_sum<std::uint32_t>>, shape, device_comm.get(), fifos, input.get(), output.get(),
               count, scaled_sum<std::uint32_t>{3});
      } else if (smallest) {
        launch(reduce<Protocol, minimum>, shape, device_comm.get(), fifos, input.get(), output.get(), count, minimum{});
      } else {
        launch(reduce<Protocol, sum>, shape, device_comm.get(), fifos, input.get(), output.get(), count, sum{});
      }
      test::finish("tree");
      device_comm.check();
      const auto got = output.read();
      for (std::uint64_t i = 0; i < count; ++i) {
        std::uint32_t total = 0;
        std::uint32_t least = ~0u;
        for (int rank = 0; rank < ranks; ++rank) {
          total += input_of(rank, i);
          least = std::min(least, input_of(rank, i));
        }
        test::require(got[i] == (scaled     ? 3 * total
                                 : smallest ? least
                                            : total),
                      [&] {
                        return "rank " + std::to_string(comm.rank()) + ": element " + std::to_string(i) + " is " +
                               std::to_string(got[i]);
                      });
      }
      test::require(got[count] == ~0u, "an element past the end was written");
    }
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("an all-reduce over two trees gives every rank the sum") {
  test::for_each_protocol([](auto protocol) {
    for (const int ranks : test::rank_counts) check<protocol()>(ranks, 1001);
    for (const std::uint64_t count : {1u, 4u, 120u, 121u, 3000u}) check<protocol()>(test::ranks_that_meet(5), count);
  });
}
