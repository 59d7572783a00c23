/// CUDA's cooperative groups in devcomm's calls: what the simulator takes, nvcc takes as well.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cooperative_groups.h>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>

namespace cg = cooperative_groups;

namespace {

using namespace devcomm;

// These take the short way of a barrier, and vote by a barrier of the block.
static_assert(detail::starts_with_warp<cg::thread_block> && detail::starts_with_warp<cg::thread_block_tile<32>>);
static_assert(!detail::starts_with_warp<cg::thread_block_tile<16>> && !detail::starts_with_warp<cg::coalesced_group>);
static_assert(!detail::starts_with_warp<cg::grid_group> && !detail::starts_with_warp<cg::cluster_group>);
static_assert(detail::can_vote<cg::thread_block> && !detail::can_vote<cg::grid_group>);

constexpr unsigned group_blocks = 2;
constexpr unsigned group_threads = 64;
constexpr unsigned group_words = group_blocks * group_threads;

struct whole_grid {
  static constexpr bool cooperative = true;
  __device__ static auto make() { return cg::this_grid(); }
  __device__ static unsigned index() { return 0; }
};
struct whole_block {
  static constexpr bool cooperative = false;
  __device__ static auto make() { return cg::this_thread_block(); }
  __device__ static unsigned index() { return blockIdx.x; }
};
template <unsigned Size>
struct tiles {
  static constexpr bool cooperative = false;
  __device__ static auto make() { return cg::tiled_partition<Size>(cg::this_thread_block()); }
  __device__ static unsigned index() { return (blockIdx.x * blockDim.x + threadIdx.x) / Size; }
};
struct coalesced_lanes {
  static constexpr bool cooperative = false;
  __device__ static auto make() { return cg::coalesced_threads(); }
  __device__ static unsigned index() { return (blockIdx.x * blockDim.x + threadIdx.x) / 32; }
};

/// Every thread fills a word, its group meets the peers', takes a signal, and copies what the next rank has filled.
template <class Groups>
__global__ void meet_by(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint32_t> words,
                        std::uint32_t* out) {
  const auto group = Groups::make();
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  const auto size = static_cast<unsigned>(group.size());
  const unsigned first = mine - static_cast<unsigned>(group.thread_rank());
  const int next = (comm.rank + 1) % comm.lsa_size;
  words.local()[mine] = static_cast<std::uint32_t>(comm.rank) * 1000 + mine;
  lsa::barrier_session barrier{group, comm, Groups::index()};
  barrier.sync();
  lsa::signal_session signal{group, comm, signals, Groups::index()};
  signal.add(next, 1);
  signal.take((comm.rank + comm.lsa_size - 1) % comm.lsa_size);
  copy(group, out + first, words.lsa(next) + first, size);
  barrier.sync();
}

template <class Groups>
void check_group(host::communicator& comm) {
  auto needs = comm.requirements().lsa_barriers(group_words);
  const auto signals = needs.add(lsa::signals{comm.lsa(), group_words});
  const auto device = comm.create_device_comm(needs);
  const auto memory = comm.allocate(group_words * sizeof(std::uint32_t), "words");
  const test::device_array<std::uint32_t> out(group_words);
  comm.barrier();
  launch(
      meet_by<Groups>,
      {.grid = group_blocks, .block = group_threads, .stream = cudaStreamPerThread, .cooperative = Groups::cooperative},
      device.get(), signals, memory.template pointer<std::uint32_t>(), out.get());
  test::finish("meet_by");
  device.check();
  const auto got = out.read();
  const auto next = static_cast<std::uint32_t>((comm.rank() + 1) % comm.size());
  for (std::uint32_t i = 0; i < group_words; ++i)
    test::require(got[i] == next * 1000 + i,
                  [&] { return "word " + std::to_string(i) + " is " + std::to_string(got[i]); });
  comm.barrier();
}

}  // namespace

TEST_CASE("CUDA's groups take part in sessions and copies") {
  test::on_ranks(test::ranks_that_meet(2), [](host::communicator& comm) {
    check_group<whole_grid>(comm);
    check_group<whole_block>(comm);
    check_group<tiles<32>>(comm);
    check_group<tiles<4>>(comm);
    check_group<coalesced_lanes>(comm);
  });
}
