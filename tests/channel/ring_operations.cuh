/// \file ring_operations.cuh
/// The collectives round a ring, against references of integers.
#pragma once

#include <devcomm/devcomm.cuh>

#include <devcomm/host/communicator.hpp>

#include "support/ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace ring_test {

using namespace devcomm;
using channel::protocol;

constexpr unsigned threads = 64;
constexpr unsigned blocks = 2;

/// Element `i` of the input of `rank`.
__host__ __device__ std::int32_t input_of(int rank, std::uint64_t i) {
  return static_cast<std::int32_t>((static_cast<std::uint64_t>(rank) + 1) * 1000003u + i * 7919u) & 0xffffff;
}

inline std::int32_t sum_of(int ranks, std::uint64_t i) {
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
__global__ void run(device_comm comm, channel::fifo_handle<Protocol> fifos, team ranks, operation_kind what,
                    vectors at) {
  channel::session ring{
      block{}, comm, ranks, fifos, channel::from_previous(ranks, blockIdx.x), channel::to_next(ranks, blockIdx.x)};
  run_on(ring, ranks, what, at);
}

template <protocol Protocol>
__global__ void run_in_order(device_comm comm, channel::fifo_handle<Protocol> fifos, team ranks, operation_kind what,
                             vectors at, ring_order order) {
  collective::ring_position ring{block{}, comm, ranks, order, fifos, blockIdx.x};
  run_on(ring, ranks, what, at);
}

/// Elements that the output has then, the value of each, and whether this rank has any.
struct expectation {
  std::uint64_t count;
  bool has_result;
  std::function<std::int32_t(std::uint64_t)> value;
};

inline expectation expected(operation_kind what, int rank, int ranks, std::uint64_t count, int root) {
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
inline std::vector<int> shuffled_members(int ranks) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::shuffle(members.begin(), members.end(), std::mt19937(static_cast<unsigned>(ranks)));
  return members;
}

/// Every collective over `members`, with inputs and outputs of `count` elements, or shards of so many, that lie
/// `offset` elements behind an alignment.
template <protocol Protocol>
void require_rings(host::communicator& comm, const host::device_communicator& device_comm,
                   const channel::fifo_handle<Protocol>& fifos, const team& members, std::uint64_t count,
                   std::size_t offset, bool in_order) {
  const auto size = static_cast<std::uint64_t>(members.size);
  const std::uint64_t room = offset + count * size + 4;
  const auto output = comm.allocate(room * sizeof(std::int32_t));
  const sym_ptr<std::int32_t> out{output.window(), offset * sizeof(std::int32_t)};
  std::vector<std::int32_t> values(offset + count * size);
  for (std::uint64_t i = 0; i < count * size; ++i) values[offset + i] = input_of(members.rank, i);
  const test::device_array<std::int32_t> input(values);
  const channel::ring_table order(members, shuffled_members(members.size));
  for (const operation_kind what : operations) {
    const int root = members.size - 1 - static_cast<int>(count % size);
    std::vector<std::int32_t> before(room, poison);
    if (what == operation_kind::all_reduce_in_place)
      for (std::uint64_t i = 0; i < count; ++i) before[offset + i] = input_of(members.rank, i);
    check_cuda(cudaMemcpyAsync(out.local() - offset, before.data(), room * sizeof(std::int32_t), cudaMemcpyDefault,
                               cudaStreamPerThread),
               "copy");
    test::finish("copy");
    comm.barrier();  // the next rank may write here now
    const launch_config shape{.grid = blocks, .block = threads, .stream = cudaStreamPerThread};
    const vectors at{input.get() + offset, out, count, root};
    if (in_order) {
      launch(run_in_order<Protocol>, shape, device_comm.get(), fifos, members, what, at, order.order());
    } else {
      launch(run<Protocol>, shape, device_comm.get(), fifos, members, what, at);
    }
    test::finish("ring");
    device_comm.check();
    std::vector<std::int32_t> after(room);
    check_cuda(cudaMemcpyAsync(after.data(), out.local() - offset, room * sizeof(std::int32_t), cudaMemcpyDefault,
                               cudaStreamPerThread),
               "copy");
    test::finish("copy");
    const expectation is = expected(what, members.rank, members.size, count, root);
    for (std::uint64_t i = 0; i < room; ++i) {
      const bool inside = is.has_result && i >= offset && i < offset + is.count;
      test::require(after[i] == (inside ? is.value(i - offset) : poison), [&] {
        return "operation " + std::to_string(static_cast<int>(what)) + ", rank " + std::to_string(comm.rank()) +
               ": element " + std::to_string(i) + " is " + std::to_string(after[i]);
      });
    }
  }
  comm.barrier();  // the order's memory is freed, which waits for kernels that need this rank's part of the network
}

}  // namespace ring_test
