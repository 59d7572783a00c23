/// The collectives round a ring, against references of integers: every protocol, number of ranks, size and alignment.
#include <devcomm/devcomm.cuh>

#include "channel/fifo_kinds.hpp"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace devcomm;
using channel::protocol;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned blocks = 2;

/// Element `i` of the input of `rank`.
__host__ __device__ std::int32_t input_of(int rank, std::uint64_t i) {
  return static_cast<std::int32_t>((static_cast<std::uint64_t>(rank) + 1) * 1000003u + i * 7919u) & 0xffffff;
}

std::int32_t sum_of(int ranks, std::uint64_t i) {
  std::uint32_t total = 0;
  for (int rank = 0; rank < ranks; ++rank) total += static_cast<std::uint32_t>(input_of(rank, i));
  return static_cast<std::int32_t>(total);
}

enum class operation_kind {
  all_reduce,
  all_reduce_in_place,
  all_reduce_to_window,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce
};
constexpr operation_kind operations[] = {
    operation_kind::all_reduce,     operation_kind::all_reduce_in_place, operation_kind::all_reduce_to_window,
    operation_kind::reduce_scatter, operation_kind::all_gather,          operation_kind::broadcast,
    operation_kind::reduce};

struct vectors {
  std::int32_t* input;
  sym_ptr<std::int32_t> output;
  std::uint64_t count;  ///< elements; of a shard where the operation has shards
  int root;
};

template <class Ring>
__device__ void run_on(Ring& ring, const team& ranks, operation_kind what, const vectors& at) {
  using T = std::int32_t;
  const slice packs = collective::slice_of_block(packs_of<T>(at.count));
  T* out = at.output.local();
  const std::uint64_t all = at.count * static_cast<std::uint64_t>(ranks.size);
  const collective::from_memory<T> input{at.input, at.count};
  const collective::to_memory<T> output{out, at.count};
  switch (what) {
    case operation_kind::all_reduce: collective::all_reduce_ring<T>(ring, packs, input, output, sum{}); break;
    case operation_kind::all_reduce_in_place:
      collective::all_reduce_ring<T>(ring, packs, collective::from_memory<T>{out, at.count}, output, sum{});
      break;
    case operation_kind::all_reduce_to_window:
      collective::all_reduce_ring<T>(ring, packs, input, collective::to_window<T>{at.output, at.count}, sum{});
      break;
    case operation_kind::reduce_scatter:
      collective::reduce_scatter_ring<T>(ring, packs, collective::from_shards<T>{at.input, all, at.count}, output,
                                         sum{});
      break;
    case operation_kind::all_gather:
      collective::all_gather_ring<T>(ring, packs, input, collective::to_shards<T>{out, all, at.count});
      break;
    case operation_kind::broadcast: collective::broadcast_ring<T>(ring, at.root, packs, input, output); break;
    case operation_kind::reduce: collective::reduce_ring<T>(ring, at.root, packs, input, output, sum{}); break;
  }
}

template <protocol Protocol>
__global__ void run(device_comm comm, channel::fifo_handle<Protocol> fifos, operation_kind what, vectors at) {
  const team ranks = comm.lsa();
  channel::session ring{block{}, comm, fifos, channel::from_previous(ranks, blockIdx.x),
                        channel::to_next(ranks, blockIdx.x)};
  run_on(ring, ranks, what, at);
}

template <protocol Protocol>
__global__ void run_in_order(device_comm comm, channel::fifo_handle<Protocol> fifos, operation_kind what, vectors at,
                             ring_order order) {
  collective::ring_place ring{block{}, comm, comm.lsa(), order, fifos, blockIdx.x};
  run_on(ring, comm.lsa(), what, at);
}

/// Elements that the output has then, the value of each, and whether this rank has any.
struct expectation {
  std::uint64_t count;
  bool has_result;
  std::function<std::int32_t(std::uint64_t)> value;
};

expectation expected(operation_kind what, int rank, int ranks, std::uint64_t count, int root) {
  const auto total = [=](std::uint64_t i) { return sum_of(ranks, i); };
  switch (what) {
    case operation_kind::reduce_scatter:
      return {count, true,
              [=](std::uint64_t i) { return sum_of(ranks, static_cast<std::uint64_t>(rank) * count + i); }};
    case operation_kind::all_gather:
      return {count * static_cast<std::uint64_t>(ranks), true,
              [=](std::uint64_t i) { return input_of(static_cast<int>(i / count), i % count); }};
    case operation_kind::broadcast: return {count, true, [=](std::uint64_t i) { return input_of(root, i); }};
    case operation_kind::reduce: return {count, rank == root, total};
    default: return {count, true, total};
  }
}

constexpr std::int32_t poison = -1;

/// Some order of so many members.
std::vector<int> shuffled_members(int ranks) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::shuffle(members.begin(), members.end(), std::mt19937(static_cast<unsigned>(ranks)));
  return members;
}

template <protocol Protocol>
void check(int ranks, std::uint64_t count, std::size_t offset, bool in_order = false) {
  INFO(to_string(Protocol) << ", " << ranks << " ranks, " << count << " elements, offset " << offset
                           << (in_order ? ", in an order of its own" : ""));
  test::on_ranks(ranks, [=](host::communicator& comm) {
    auto needs = comm.requirements();
    const std::uint32_t slots = count % 2 == 0 ? 2 : 4;
    const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), blocks, 30, slots});
    const auto device_comm = comm.create_device_comm(needs);
    const auto size = static_cast<std::uint64_t>(ranks);
    const std::uint64_t room = offset + count * size + 4;
    const auto output = comm.allocate(room * sizeof(std::int32_t));
    const sym_ptr<std::int32_t> out{output.window(), offset * sizeof(std::int32_t)};
    std::vector<std::int32_t> values(offset + count * size);
    for (std::uint64_t i = 0; i < count * size; ++i) values[offset + i] = input_of(comm.rank(), i);
    const test::device_array<std::int32_t> input(values);
    const channel::ring_table order(comm.lsa(), shuffled_members(ranks));
    for (const operation_kind what : operations) {
      const int root = ranks - 1 - static_cast<int>(count % size);
      std::vector<std::int32_t> before(room, poison);
      if (what == operation_kind::all_reduce_in_place)
        for (std::uint64_t i = 0; i < count; ++i) before[offset + i] = input_of(comm.rank(), i);
      check_cuda(cudaMemcpyAsync(out.local() - offset, before.data(), room * sizeof(std::int32_t), cudaMemcpyDefault,
                                 cudaStreamPerThread),
                 "copy");
      test::finish("copy");
      comm.barrier();  // the next rank may write here now
      const launch_config shape{.grid = blocks, .block = threads, .stream = cudaStreamPerThread};
      const vectors at{input.get() + offset, out, count, root};
      if (in_order) {
        launch(run_in_order<Protocol>, shape, device_comm.get(), fifos, what, at, order.order());
      } else {
        launch(run<Protocol>, shape, device_comm.get(), fifos, what, at);
      }
      test::finish("ring");
      device_comm.check();
      std::vector<std::int32_t> after(room);
      check_cuda(cudaMemcpyAsync(after.data(), out.local() - offset, room * sizeof(std::int32_t), cudaMemcpyDefault,
                                 cudaStreamPerThread),
                 "copy");
      test::finish("copy");
      const expectation is = expected(what, comm.rank(), ranks, count, root);
      for (std::uint64_t i = 0; i < room; ++i) {
        const bool inside = is.has_result && i >= offset && i < offset + is.count;
        test::require(after[i] == (inside ? is.value(i - offset) : poison), [&] {
          return "operation " + std::to_string(static_cast<int>(what)) + ", rank " + std::to_string(comm.rank()) +
                 ": element " + std::to_string(i) + " is " + std::to_string(after[i]);
        });
      }
    }
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
