/// \file operations.cuh
/// Products with a collective inside: all-gather before, reduce-scatter or all-reduce after. Each is a loop over tiles
/// around a product of the caller's; reference_product.cuh says how a product is called.
///
/// *Blocks*: all resident at once, the same grid on all ranks; `requirements::lsa_barriers` has a barrier for each. The
/// first `communication_blocks` of them compute no tiles: blocks start in order, so that none that computes keeps them
/// from starting.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/gemm/operand.cuh>
#include <devcomm/gemm/output.cuh>
#include <devcomm/gemm/partials.hpp>
#include <devcomm/gemm/publish.cuh>
#include <devcomm/gemm/reduce.cuh>
#include <devcomm/gemm/reference_product.cuh>
#include <devcomm/gemm/session.cuh>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/group.cuh>

namespace devcomm::detail {

/// How the blocks of a grid divide computing and communicating.
struct block_roles {
  bool computes;
  uint32_t first;  ///< of the calling block among those of its role
  uint32_t step;   ///< how many these are

  DEVCOMM_DEVICE explicit block_roles(uint32_t communication_blocks)
      : computes(arch::block_rank() >= communication_blocks),
        first(computes ? arch::block_rank() - communication_blocks : arch::block_rank()),
        step(computes ? arch::grid_blocks() - communication_blocks : communication_blocks) {
    DEVCOMM_ASSERT_OF(communication_blocks < arch::grid_blocks(), "communication blocks", communication_blocks,
                      arch::grid_blocks(), "a grid needs at least one block that computes tiles");
  }
};

/// Computes this block's tiles, and publishes them.
template <class T, class Product>
DEVCOMM_DEVICE void publish_tiles(const device_comm& comm, const gemm::flag_access& flags,
                                  const gemm::partial_handle<T>& partials, const gemm::tile_order& order,
                                  const block_roles& role, const Product& product) {
  using publisher_type = gemm::publisher<T, block>;
  publisher_type publisher{block{}, comm, flags, partials, order.grid()};
  gemm::no_gate open;
  const bool to_all = order.grid().members() == 1;
  for (uint32_t i = role.first; i < order.size(); i += role.step) {
    const gemm::tile t = order[i];
    const gemm::to_publisher<publisher_type> output{publisher, t,
                                                    to_all ? gemm::to_publisher<publisher_type>::all_members : t.owner};
    product(block{}, t, open, output);
    if (to_all) {
      publisher.end_on_all(t);
    } else {
      publisher.end(t);
    }
  }
}

}  // namespace devcomm::detail

namespace devcomm::gemm {

/// Each rank has a product of its own for the whole of C; this rank gets the sum of its shard of rows.
///
///     const gemm::tile_order order{grid, comm.lsa().rank, gemm::first_owner::next};  // grid: by_rows
///     const gemm::to_matrix<T> output{shard, n, grid.first_row(comm.lsa().rank)};
///     gemm::reduce_scatter(comm, partials, order, product, output);
///
/// Tiles travel as `T`; sums are in rank order, rounded once, and `output` is called for them. Sums are formed by all
/// blocks after their tiles, or by the communication blocks meanwhile.
///
/// *Collective* over the grid, on every rank of the LSA team, with the same shapes. After a failure the output is
/// undefined; `host::device_communicator::check` says what failed.
template <class T, class Product, class Output>
DEVCOMM_DEVICE void reduce_scatter(const device_comm& comm, const partial_handle<T>& partials, const tile_order& order,
                                   const Product& product, const Output& output, uint32_t communication_blocks = 0) {
  const session<block> launch{block{}, comm, partials.flags};
  const detail::block_roles role{communication_blocks};
  if (role.computes) detail::publish_tiles(comm, launch, partials, order, role, product);
  if (role.computes && communication_blocks != 0) return;
  const int rank = comm.lsa_rank();
  reducer<T, block> sums{block{}, comm, launch, partials};
  for (uint32_t i = role.first; i < order.grid().tiles_of(rank); i += role.step)
    if (!sums.reduce(order.grid().at(rank, i), output)) return;
}

/// The same, and every rank gets the whole sum.
///
/// With a grid of one member (one-shot) tiles go to all ranks, each of which sums all of them: one trip over the links,
/// `members` times the bytes. With a grid by tiles of all members (two-shot) the owner of a tile sums it and stores the
/// result to all ranks; more `parts` of the order let it begin earlier. Either way all ranks get the same bits.
///
/// The output is in a window, rows of `n` elements, at the same place on every rank.
///
///     const gemm::tile_order order{grid, grid.members() == 1 ? 0 : comm.lsa().rank, gemm::first_owner::next, 4};
///     gemm::all_reduce(comm, partials, order, product, gemm::to_matrices<T>{window.pointer<T>(), n});
///
/// *Lifetime*: the output is complete when the launch is. Peers write to it from the beginning of this rank's launch
/// on.
template <class T, class Product, class U, class Epilogue>
DEVCOMM_DEVICE void all_reduce(const device_comm& comm, const partial_handle<T>& partials, const tile_order& order,
                               const Product& product, const to_matrices<U, Epilogue>& output,
                               uint32_t communication_blocks = 0) {
  const session<block> launch{block{}, comm, partials.flags};
  const detail::block_roles role{communication_blocks};
  if (role.computes) detail::publish_tiles(comm, launch, partials, order, role, product);
  if (role.computes && communication_blocks != 0) return;
  const tile_grid& grid = order.grid();
  const team members = comm.lsa();
  const block group;
  reducer<T, block> sums{group, comm, launch, partials};
  if (grid.members() == 1) {
    const to_matrix<U, Epilogue> own{output.data.local(), output.stride, 0, output.finish};
    for (uint32_t i = role.first; i < grid.size(); i += role.step)
      if (!sums.reduce(grid.at(0, i), own)) return;
    return;
  }
  for (uint32_t i = role.first; i < grid.tiles_of(members.rank); i += role.step) {
    const tile t = grid.at(members.rank, i);
    if (!sums.reduce(t, output)) return;
    sums.set_result(t);
  }
  sums.wait_for_results(grid, role.first, role.step);
}

/// The rows of A are sharded; each rank gathers them while it computes its own columns of C, all rows of them.
///
///     const gemm::tile_order order{grid, comm.lsa().rank, gemm::first_owner::self};  // grid: by_rows
///     const gemm::operand_chunks chunks{grid, 128, k};
///     gemm::all_gather(comm, flags, chunks, window.pointer<T>(), order, product, gemm::to_matrix<T>{c, n}, 4);
///
/// `operand` is the whole of A, rows of `k` elements, at the same place of a window on every rank, and has this rank's
/// shard in place before the launch. The communication blocks, at least one, store it to the peers.
///
/// *Lifetime*: peers write to the operand from the beginning of this rank's launch on.
template <class T, class Product, class Output>
DEVCOMM_DEVICE void all_gather(const device_comm& comm, flag_handle flags, const operand_chunks& chunks,
                               const sym_ptr<T>& operand, const tile_order& order, const Product& product,
                               const Output& output, uint32_t communication_blocks) {
  DEVCOMM_ASSERT(communication_blocks > 0, "an all-gather by stores needs at least one communication block");
  const session<block> launch{block{}, comm, flags};
  const detail::block_roles role{communication_blocks};
  if (!role.computes) {
    operand_sender<block> sender{block{}, comm, launch, chunks, arch::block_rank()};
    return sender.send(operand, role.first, role.step);
  }
  gate<block> arrived{block{}, launch, chunks};
  for (uint32_t i = role.first; i < order.size(); i += role.step) product(block{}, order[i], arrived, output);
}

/// The same without a copy: the product reads each shard where it is, by `rows_of_peers`, so that no block is left to
/// communication, and operands that are read several times travel as often. There is a flag for each member:
/// `gemm::flags{comm.lsa(), members, blocks}`.
///
/// The launch ends when all ranks have read this rank's shard.
template <class Product, class Output>
DEVCOMM_DEVICE void all_gather_in_place(const device_comm& comm, flag_handle flags, const tile_order& order,
                                        const Product& product, const Output& output) {
  const session<block> launch{block{}, comm, flags};
  const block group;
  const tile_grid& grid = order.grid();
  if (arch::block_rank() == 0) {  // what earlier launches wrote of the shard is there
    for (auto m = static_cast<int>(group.thread_rank()); m < grid.members(); m += static_cast<int>(group.size()))
      if (m != comm.lsa_rank()) launch.set(m, static_cast<uint32_t>(comm.lsa_rank()));
  }
  const operand_chunks shards{grid, grid.problem().m + 1, grid.problem().k + grid.shape().k};
  gate<block> arrived{group, launch, shards};
  lsa::barrier_session<block> end{group, comm, arch::block_rank()};
  for (uint32_t i = arch::block_rank(); i < order.size(); i += arch::grid_blocks())
    product(group, order[i], arrived, output);
  end.sync(memory_order::acq_rel);
}

}  // namespace devcomm::gemm
