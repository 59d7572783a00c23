/// Gather, scatter and the exchange with neighbors: thin calls over groups of messages.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"
#include "support/watched.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned max_ranks = 8;
constexpr int sides = 4;

enum class movement { gather, scatter, halo };

struct moved {
  movement what;
  int root;
  const float* input;
  sym_ptr<float> output;
  std::uint64_t count;
  int rows;  // of the torus of ranks that exchange halos
};

/// The ranks around `rank` in a torus: west, east, north, south.
__host__ __device__ int neighbor(int side, int rank, int ranks, int rows) {
  const int columns = ranks / rows;
  const int row = rank / columns;
  const int column = rank % columns;
  switch (side) {
    case 0: return row * columns + (column + columns - 1) % columns;
    case 1: return row * columns + (column + 1) % columns;
    case 2: return (row + rows - 1) % rows * columns + column;
    default: return (row + 1) % rows * columns + column;
  }
}

__global__ void move(device_comm comm, channel::connection_handle connections, moved m) {
  __shared__ channel::message room[2 * max_ranks];
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  if (m.what == movement::gather) {
    collective::gather(session, m.root, m.input, m.output, m.count, room);
  } else if (m.what == movement::scatter) {
    collective::scatter(session, m.root, m.input, m.output, m.count, room);
  } else {
    collective::halo_side<float> around[sides];
    for (int s = 0; s < sides; ++s) {
      const auto at = static_cast<std::uint64_t>(s) * m.count;
      around[s] = {neighbor(s, comm.rank, comm.size, m.rows), m.input + at, m.output + static_cast<std::int64_t>(at),
                   m.count};
    }
    collective::halo_exchange(session, around, room);
  }
}

/// Element `i` of part `part` of what `rank` has.
float element(int rank, std::uint64_t part, std::uint64_t i) {
  return static_cast<float>(rank * 1000 + static_cast<int>(part) * 100000) + static_cast<float>(i % 997) / 1024;
}

void check(int ranks, movement what, std::uint64_t count) {
  INFO(ranks << " ranks, movement " << static_cast<int>(what) << ", " << count << " elements");
  test::on_ranks(ranks, [=](host::communicator& comm) {
    const auto size = static_cast<std::uint64_t>(ranks);
    const std::uint64_t parts = what == movement::halo ? sides : size;
    const std::uint64_t elements = parts * count;
    requirements needs = comm.requirements();
    const auto connections = needs.add(channel::connections{comm.lsa(), 2, 2, 512});
    const auto device_comm = comm.create_device_comm(needs);
    const auto window = comm.allocate(elements * sizeof(float) + 64);
    std::vector<float> input(elements);
    for (std::uint64_t i = 0; i < elements; ++i)
      input[i] = element(comm.rank(), i / (count + !count), i % (count + !count));
    const test::device_array<float> in(input);
    for (int root = 0; root < (what == movement::halo ? 1 : ranks); ++root) {
      check_cuda(cudaMemsetAsync(window.data(), 0, elements * sizeof(float) + 64, cudaStreamPerThread),
                 "cudaMemsetAsync");
      test::finish("cudaMemsetAsync");
      comm.barrier();
      const int rows = ranks % 2 == 0 ? 2 : 1;
      launch(move, {.grid = 2, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(), connections,
             moved{what, root, in.get(), {window.window(), 4}, count, rows});
      test::finish("move");
      device_comm.check();
      std::vector<float> got(elements + 16);
      check_cuda(cudaMemcpyAsync(got.data(), window.data(), got.size() * sizeof(float), cudaMemcpyDefault,
                                 cudaStreamPerThread),
                 "copy");
      test::finish("copy");
      std::vector<float> right(got.size());
      for (std::uint64_t part = 0; part < parts; ++part) {
        for (std::uint64_t i = 0; i < count; ++i) {
          float& at = right[1 + part * count + i];
          if (what == movement::gather && comm.rank() == root) at = element(static_cast<int>(part), 0, i);
          if (what == movement::scatter && part == 0) at = element(root, static_cast<std::uint64_t>(comm.rank()), i);
          if (what == movement::halo)
            at = element(neighbor(static_cast<int>(part), comm.rank(), ranks, rows), part ^ 1, i);
        }
      }
      test::require(got == right, "wrong elements on rank " + std::to_string(comm.rank()));
      comm.barrier();
    }
  });
}

}  // namespace

namespace {

/// The ends of the row have a side without a neighbor, and without a halo.
__global__ void move_in_row(device_comm comm, channel::connection_handle connections, const float* input,
                            sym_ptr<float> output) {
  __shared__ channel::message room[4];
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  const int right = comm.rank + 1 < comm.size ? comm.rank + 1 : -1;
  collective::halo_side<float> around[2] = {};
  for (int s = 0; s < 2; ++s) {
    const int peer = s == 0 ? comm.rank - 1 : right;
    around[s].peer = peer;
    if (peer >= 0) around[s] = {peer, input + s, output + s, 1};
  }
  collective::halo_exchange(session, around, room);
}

}  // namespace

TEST_CASE("a halo exchange in an open row leaves the sides without a neighbor alone") {
  test::on_ranks(3, [](host::communicator& comm) {
    requirements needs = comm.requirements();
    const auto connections = needs.add(channel::connections{comm.lsa(), 1, 2, 512});
    const auto device_comm = comm.create_device_comm(needs);
    const auto other = comm.allocate(64);  // so that no window in use has the id 0
    const auto memory = comm.allocate(64);
    check_cuda(cudaMemsetAsync(memory.data(), 0, 64, cudaStreamPerThread), "cudaMemsetAsync");
    const auto me = static_cast<float>(comm.rank());
    const test::device_array<float> in(std::vector<float>{10 * me + 1, 10 * me + 2});
    test::finish("cudaMemsetAsync");
    comm.barrier();
    launch(move_in_row, {.grid = 1, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(), connections,
           in.get(), sym_ptr<float>{memory.window(), 0});
    test::finish("move_in_row");
    device_comm.check();
    std::vector<float> got(2);
    check_cuda(cudaMemcpyAsync(got.data(), memory.data(), 2 * sizeof(float), cudaMemcpyDefault, cudaStreamPerThread),
               "copy");
    test::finish("copy");
    const std::vector<float> right = {comm.rank() == 0 ? 0 : 10 * (me - 1) + 2,
                                      comm.rank() == 2 ? 0 : 10 * (me + 1) + 1};
    test::require(got == right, "wrong halos on rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

TEST_CASE("gather, scatter and halo exchange bring every vector to its place") {
  for (const int ranks : test::is_watched ? std::vector{1, 2, 3, 4, 7} : test::rank_counts)
    for (const movement what : {movement::gather, movement::scatter, movement::halo})
      for (const std::uint64_t count : {0u, 1u, 33u, test::is_watched ? 700u : 3000u}) check(ranks, what, count);
}
