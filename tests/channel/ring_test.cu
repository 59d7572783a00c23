/// The collectives round a ring, against references of integers: every protocol, number of ranks, size and alignment.
#include <devcomm/devcomm.cuh>

#include "channel/fifo_kinds.hpp"
#include "channel/ring_operations.cuh"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

using namespace devcomm;
using namespace ring_test;
using channel::protocol;

namespace {

template <protocol Protocol>
void check(int ranks, std::uint64_t count, std::size_t offset, bool in_order = false) {
  INFO(to_string(Protocol) << ", " << ranks << " ranks, " << count << " elements, offset " << offset
                           << (in_order ? ", in an order of its own" : ""));
  test::on_ranks(ranks, [=](host::communicator& comm) {
    auto needs = comm.requirements();
    const std::uint32_t slots = count % 2 == 0 ? 2 : 4;
    const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), blocks, 30, slots});
    const auto device_comm = comm.create_device_comm(needs);
    require_rings(comm, device_comm, fifos, comm.lsa(), count, offset, in_order);
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("collectives round a ring give what the definition says") {
  test::for_each_protocol([](auto protocol) {
    for (const int ranks : test::rank_counts) check<protocol()>(ranks, 501, 0);
    for (const std::uint64_t count : {1u, 2u, 119u, 120u, 2000u}) check<protocol()>(test::ranks_that_meet(3), count, 0);
    for (const std::size_t offset : {1u, 2u, 3u}) check<protocol()>(test::ranks_that_meet(3), 333, offset);
  });
}

TEST_CASE("collectives round a ring in any order give what the definition says") {
  test::for_each_protocol([](auto protocol) {
    for (const int ranks : test::rank_counts) check<protocol()>(ranks, 501, 1, true);
    check<protocol()>(test::ranks_that_meet(4), 2000, 0, true);
  });
}

TEST_CASE("an order of a ring that leaves a member out is refused") {
  const team three{1, 3, 0, 1};
  for (const std::vector<int>& members :
       std::vector<std::vector<int>>{{}, {0, 1}, {0, 1, 1}, {0, 1, 3}, {0, -1, 2}, {0, 1, 2, 0}}) {
    CAPTURE(members);
    CHECK_THROWS_AS(channel::ring_table(three, members), std::invalid_argument);
  }
  const channel::ring_table right(three, {2, 1, 0});
  CHECK(right.order().position == 1);
  CHECK(right.order().next == 0);
  CHECK(right.order().previous == 2);
}

namespace {

/// An average of bf16 numbers that are exact, and a scaled sum: the operator's own steps are taken once.
template <protocol Protocol, class Operator>
__global__ void reduce_floats(device_comm comm, channel::fifo_handle<Protocol> fifos, float* data, std::uint64_t count,
                              Operator op) {
  const team ranks = comm.lsa();
  channel::session ring{block{}, comm, fifos, channel::from_previous(ranks, blockIdx.x),
                        channel::to_next(ranks, blockIdx.x)};
  collective::all_reduce_ring<float>(ring, collective::slice_of_block(packs_of<float>(count)),
                                     collective::from_memory<float>{data, count},
                                     collective::to_memory<float>{data, count}, op);
}

template <protocol Protocol, class Operator>
void check_operator(int ranks, Operator op, float factor) {
  test::on_ranks(ranks, [=](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), blocks, 30, 2});
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::uint64_t count = 77;
    std::vector<float> values(count);
    for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(comm.rank() + 1) * static_cast<float>(i);
    const test::device_array<float> data(values);
    comm.barrier();
    launch(reduce_floats<Protocol, Operator>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
           device_comm.get(), fifos, data.get(), count, op);
    test::finish("reduce_floats");
    device_comm.check();
    const auto got = data.read();
    const float total = static_cast<float>(ranks * (ranks + 1) / 2);
    for (std::uint64_t i = 0; i < count; ++i)
      test::require(got[i] == total * static_cast<float>(i) * factor, "element " + std::to_string(i));
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("operators prepare each input once and finish the result once") {
  test::for_each_protocol([](auto protocol) {
    for (const int ranks : {1, 2, 4}) {
      check_operator<protocol()>(ranks, average{}, 1.0f / static_cast<float>(ranks));
      check_operator<protocol()>(ranks, scaled_sum{3.0f}, 3.0f);
    }
  });
}

namespace {

/// Pairs of ranks reduce into their outputs in a window.
__global__ void reduce_in_pairs(device_comm comm, channel::fifo_handle<protocol::simple> fifos, const float* input,
                                sym_ptr<float> output, std::uint64_t count) {
  const team pair = inner_factor(comm.lsa(), 2);
  channel::session ring{
      block{}, comm, pair, fifos, channel::from_previous(pair, blockIdx.x), channel::to_next(pair, blockIdx.x)};
  collective::all_reduce_ring<float>(ring, collective::slice_of_block(packs_of<float>(count)),
                                     collective::from_memory<float>{input, count},
                                     collective::to_window<float>{output, count}, sum{});
}

}  // namespace

TEST_CASE("a ring of some ranks of the LSA team writes into their outputs alone") {
  test::on_ranks(4, [](host::communicator& comm) {
    constexpr std::uint64_t count = 700;
    auto needs = comm.requirements();
    const auto fifos = needs.add(channel::simple_fifos{comm.lsa(), blocks, 30, 2});
    const auto device_comm = comm.create_device_comm(needs);
    const auto output = comm.allocate(count * sizeof(float));
    const test::device_array<float> input(std::vector<float>(count, static_cast<float>(1 << comm.rank())));
    comm.barrier();
    launch(reduce_in_pairs, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), fifos,
           input.get(), output.pointer<float>(), count);
    test::finish("reduce_in_pairs");
    device_comm.check();
    std::vector<float> got(count);
    check_cuda(
        cudaMemcpyAsync(got.data(), output.data(), count * sizeof(float), cudaMemcpyDefault, cudaStreamPerThread),
        "copy");
    test::finish("copy");
    for (const float each : got) test::require(each == (comm.rank() < 2 ? 3.0f : 12.0f), std::to_string(each));
    comm.barrier();
  });
}
