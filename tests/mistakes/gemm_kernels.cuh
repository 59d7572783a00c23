/// \file gemm_kernels.cuh
/// Matrix products whose tiles, operands or shared memory are used too early.
#pragma once

#include "mistakes/mistakes.hpp"

#include <cuda/ptx>

namespace mistakes {
namespace {

using namespace devcomm;

constexpr gemm::tile_shape tile_elements{4, 16, 4};
constexpr gemm::problem_shape product_elements{24, 16, 8};

enum class slip {
  none,
  no_begin,        ///< tiles are stored before the peer's launch has begun
  early,           ///< a thread says that the tile is there when it has stored its own part
  twice,           ///< a tile is changed after it was published
  no_wait,         ///< the owner sums without a wait
  rows_of_others,  ///< blocks sum tiles of other blocks, too
};

/// Rank `rank`'s element `e` of a tile.
__host__ __device__ float element(int rank, const gemm::tile& t, std::uint32_t e) {
  return static_cast<float>(static_cast<std::uint32_t>(rank) * 1000 + t.row * 16 + e);
}

/// Each rank stores its tiles to their owners, which sum them.
__global__ void sum_tiles(device_comm comm, gemm::partial_handle<float> partials, gemm::tile_order order, float* sums,
                          slip made) {
  const gemm::session session{block{}, comm, partials.flags};
  const gemm::tile_grid& grid = order.grid();
  {
    gemm::publisher publisher{block{}, comm, session, partials, grid};
    for (std::uint32_t i = blockIdx.x; i < order.size(); i += gridDim.x) {
      const gemm::tile t = order[i];
      bool may_store = made == slip::no_begin || publisher.begin();
      float* const rows = publisher.on(t.owner, t);
      const auto store = [&] {
        for (std::uint32_t e = threadIdx.x; may_store && e < t.rows * t.columns; e += blockDim.x)
          rows[e] = element(comm.rank, t, e);
      };
      store();
      if (made == slip::no_begin) may_store = publisher.begin();
      if (made == slip::early) {
        if (threadIdx.x == 0) session.set(t.owner, partials.tile_flag(comm.rank, t.index));
      } else {
        publisher.end(t);
      }
      if (made == slip::twice) store();
    }
  }
  gemm::reducer reducer{block{}, comm, session, partials};
  const gemm::to_matrix<float> output{sums, grid.problem().n, grid.first_row(comm.rank)};
  const std::uint32_t step = made == slip::rows_of_others ? 1 : gridDim.x;
  for (std::uint32_t i = blockIdx.x; i < grid.tiles_of(comm.rank); i += step) {
    const gemm::tile t = grid.at(comm.rank, i);
    if (made != slip::no_wait) {
      reducer.reduce(t, output);
      continue;
    }
    const float* const own = comm.buffer(partials.tiles).local();
    for (std::uint32_t e = threadIdx.x; e < t.rows * t.columns; e += blockDim.x) {
      float sum = 0;
      for (int source = 0; source < comm.lsa_size; ++source) sum += own[partials.first(source, t.index) + e];
      sums[(t.row - grid.first_row(comm.rank)) * grid.problem().n + e] = sum;
    }
  }
}

void sum_with(communicator& comm, bool wrong, slip made) {
  const auto grid = gemm::tile_grid::by_rows(product_elements, tile_elements, comm.size());
  auto needs = comm.requirements().lsa_barriers(blocks);
  const auto partials = needs.add(gemm::partial_tiles<float>{comm.lsa(), grid, blocks});
  const auto device = comm.create_device_comm(needs);
  const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::next};
  const std::uint32_t first = grid.first_row(comm.rank());
  const test::device_array<float> sums(std::size_t{grid.first_row(comm.rank() + 1) - first} * grid.problem().n);
  for (int i = 0; i < 2; ++i)
    devcomm::launch(sum_tiles, bench::config(), device.get(), partials, order, sums.get(), wrong ? made : slip::none);
  test::finish("sum_tiles");
  device.check();
  const auto got = sums.read();
  for (std::size_t i = 0; i < got.size(); ++i) {
    float expected = 0;
    for (int rank = 0; rank < comm.size(); ++rank)
      expected += element(rank, {first, 0, 0, 0, 0, 0}, static_cast<std::uint32_t>(i));
    test::require(got[i] == expected, [&] { return "wrong result: rank " + std::to_string(comm.rank()); });
  }
}

/// Rows of A come from the peers; each tile adds up the elements of its rows, step by step.
__global__ void sum_rows(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks, sym_ptr<float> a,
                         float* sums, bool wrong) {
  const gemm::session session{block{}, comm, flags};
  const gemm::tile_grid& grid = chunks.grid();
  if (blockIdx.x == 1) {
    gemm::operand_sender sender{block{}, comm, session, chunks, 0};
    return sender.send(a, 0, 1);
  }
  gemm::gate gate{block{}, session, chunks};
  const gemm::tile_order order{grid, comm.rank, gemm::first_owner::self};
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const gemm::tile t = order[i];
    float sum = 0;
    for (std::uint32_t k = 0; k < grid.problem().k; k += grid.shape().k) {
      gate.wait(t, wrong ? 0 : k);
      if (threadIdx.x >= t.rows) continue;
      for (std::uint32_t j = k; j < k + grid.shape().k; ++j)
        sum += a.local()[std::uint64_t{t.row + threadIdx.x} * grid.problem().k + j];
    }
    if (threadIdx.x < t.rows) sums[t.row + threadIdx.x] = sum;
  }
}

void gate_of_other_chunk(communicator& comm, bool wrong) {
  const auto grid = gemm::tile_grid::by_rows(product_elements, tile_elements, comm.size());
  const gemm::operand_chunks chunks{grid, 4, 4};
  auto needs = comm.requirements().lsa_barriers(1);
  const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), blocks});
  const auto device = comm.create_device_comm(needs);
  const auto memory = comm.allocate(std::size_t{24} * 8 * sizeof(float), "operand");
  const test::device_array<float> sums(24);
  launch(sum_rows, bench::config(), device.get(), flags, chunks, memory.pointer<float>(), sums.get(), wrong);
  test::finish("sum_rows");
  device.check();
  comm.barrier();
}

/// A thread copies a row that a peer has stored into shared memory by a bulk copy, and all threads use it.
__global__ void load_by_bulk_copy(device_comm comm, gemm::flag_handle flags, sym_ptr<float> rows, float* out,
                                  bool wrong) {
  alignas(128) __shared__ float row[threads];
  __shared__ std::uint64_t full;
  const int next = (comm.rank + 1) % comm.lsa_size;
  const gemm::session session{block{}, comm, flags};
  if (threadIdx.x == 0) {
    cuda::ptx::mbarrier_init(&full, 1);
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }
  rows.lsa(next)[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    session.set(next, 0);
    const int previous = (comm.rank + comm.lsa_size - 1) % comm.lsa_size;
    if (session.wait(operation::gemm_operand, 0, 0, previous) == status::success) {
      if (!wrong) cuda::ptx::fence_proxy_async();
      cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared, &full,
                                           sizeof row);
      cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global, row, rows.local(), sizeof row, &full);
    }
  }
  while (!cuda::ptx::mbarrier_try_wait_parity(&full, 0)) {
  }
  out[threadIdx.x] = row[threadIdx.x];
}

void load_without_proxy_fence(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto flags = needs.add(gemm::flags{comm.lsa(), 1, 1});
  const auto device = comm.create_device_comm(needs);
  const auto memory = comm.allocate(threads * sizeof(float), "rows");
  const test::device_array<float> out(threads);
  launch(load_by_bulk_copy, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device.get(), flags,
         memory.pointer<float>(), out.get(), wrong);
  test::finish("load_by_bulk_copy");
  device.check();
  comm.barrier();
}

enum class store_slip { none, no_fence, reused };

/// Tiles go to their owners from shared memory, by bulk copies of the kernel's own.
__global__ void store_by_bulk_copies(device_comm comm, gemm::partial_handle<float> partials, gemm::tile_order order,
                                     float* sums, store_slip made) {
  alignas(128) __shared__ float rows[tile_elements.m * tile_elements.n];
  const gemm::session session{block{}, comm, partials.flags};
  const gemm::tile_grid& grid = order.grid();
  {
    gemm::publisher publisher{block{}, comm, session, partials, grid};
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      const gemm::tile t = order[i];
      for (std::uint32_t e = threadIdx.x; e < t.rows * t.columns; e += blockDim.x) rows[e] = element(comm.rank, t, e);
      if (made != store_slip::no_fence) cuda::ptx::fence_proxy_async();
      __syncthreads();
      if (publisher.begin() && threadIdx.x == 0) {
        cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, publisher.on(t.owner, t), rows,
                                 t.rows * tile_elements.n * static_cast<std::uint32_t>(sizeof(float)));
        cuda::ptx::cp_async_bulk_commit_group();
        if (made != store_slip::reused) cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>());
      }
      if (made != store_slip::reused) publisher.end(t);
    }
    if (made == store_slip::reused) {  // the tiles are there before their flags, but the copies read what came later
      if (threadIdx.x == 0) cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>());
      for (std::uint32_t i = 0; i < order.size(); ++i) publisher.end(order[i]);
    }
  }
  gemm::reducer reducer{block{}, comm, session, partials};
  for (std::uint32_t i = 0; i < grid.tiles_of(comm.rank); ++i)
    reducer.reduce(grid.at(comm.rank, i), gemm::to_matrix<float>{sums, grid.problem().n, grid.first_row(comm.rank)});
}

void store_with(communicator& comm, bool wrong, store_slip made) {
  const auto grid = gemm::tile_grid::by_rows(product_elements, tile_elements, comm.size());
  auto needs = comm.requirements().lsa_barriers(1);
  const auto partials = needs.add(gemm::partial_tiles<float>{comm.lsa(), grid, 1});
  const auto device = comm.create_device_comm(needs);
  const test::device_array<float> sums(std::size_t{grid.shard_rows()} * grid.problem().n);
  const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::next};
  launch(store_by_bulk_copies, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device.get(), partials,
         order, sums.get(), wrong ? made : store_slip::none);
  test::finish("store_by_bulk_copies");
  device.check();
}

std::vector<mistake> gemm_kernels() {
  return {{"tile_before_launch", [](communicator& comm, bool wrong) { sum_with(comm, wrong, slip::no_begin); }},
          {"tile_published_early", [](communicator& comm, bool wrong) { sum_with(comm, wrong, slip::early); }},
          {"tile_changed_later", [](communicator& comm, bool wrong) { sum_with(comm, wrong, slip::twice); }},
          {"tile_not_awaited", [](communicator& comm, bool wrong) { sum_with(comm, wrong, slip::no_wait); }},
          {"tile_counted_twice", [](communicator& comm, bool wrong) { sum_with(comm, wrong, slip::rows_of_others); }},
          {"gate_of_other_chunk", gate_of_other_chunk},
          {"load_without_proxy_fence", load_without_proxy_fence},
          {"store_without_proxy_fence",
           [](communicator& comm, bool wrong) { store_with(comm, wrong, store_slip::no_fence); }},
          {"shared_tile_reused", [](communicator& comm, bool wrong) { store_with(comm, wrong, store_slip::reused); }}};
}

}  // namespace
}  // namespace mistakes
