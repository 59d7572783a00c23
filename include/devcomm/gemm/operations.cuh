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

/// Whether a product has loops of its own, `run`, as `gemm::sm90_product` has.
template <class Product, class = void>
inline constexpr bool has_run = false;
template <class Product>
inline constexpr bool has_run<Product, void_t<decltype(Product::groups)>> = true;

/// Computes this block's tiles. The thread or group that loads makes its gate by `make_gate(group)`. Each group that
/// holds tiles calls `part(workers, for_each_tile)`, and that `for_each_tile(finish)`, once, which calls
/// `finish(t, store_to)` for each tile, and that `store_to(output)`, once.
template <class Product, class MakeGate, class Part>
DEVCOMM_DEVICE void compute_tiles(const Product& product, const gemm::tile_order& order, const block_roles& role,
                                  const MakeGate& make_gate, const Part& part) {
  if constexpr (has_run<Product>) {
    product.run(order, role.first, role.step, make_gate, part);
  } else {
    auto gate = make_gate(block{});
    const auto for_each_tile = [&](const auto& finish) {
      for (uint32_t i = role.first; i < order.size(); i += role.step) {
        const gemm::tile t = order[i];
        finish(t, [&](const auto& output) { product(block{}, t, gate, output); });
      }
    };
    part(gemm::tile_workers<block>{block{}, block{}, 0, 1}, for_each_tile);
  }
}

/// Computes all tiles, publishes them to their owners or to all ranks, and calls `sum_up(reducer, first, step)` for
/// what this rank has to sum: the tiles `first`, `first + step` and so on of it.
template <bool ToAll, class T, class Product, class SumUp>
DEVCOMM_DEVICE void publish_and_sum(const device_comm& comm, const gemm::partial_handle<T>& partials,
                                    const gemm::tile_order& order, const Product& product,
                                    uint32_t communication_blocks, const SumUp& sum_up) {
  const block_roles role{communication_blocks};
  if (!role.computes) {
    const gemm::session<block> launch{block{}, comm, partials.flags};
    gemm::reducer<T, block> sums{block{}, comm, launch, partials};
    return sum_up(sums, role.first, role.step);
  }
  const auto open = [](auto) { return gemm::no_gate{}; };
  compute_tiles(product, order, role, open, [&](auto workers, const auto& for_each_tile) {
    using group = decltype(workers.group);
    const gemm::session<group> launch{workers.all, comm, partials.flags};
    const uint32_t index = arch::block_rank() * workers.groups + workers.index;
    {
      gemm::publisher publisher{workers.group, comm, launch, partials, order.grid(), index};
      for_each_tile([&](const gemm::tile& t, const auto& store_to) {
        if constexpr (ToAll) {
          store_to(gemm::to_publisher_of_all{publisher, t});
          publisher.end_on_all(t);
        } else {
          store_to(gemm::to_publisher{publisher, t, t.owner});
          publisher.end(t);
        }
      });
    }
    if (communication_blocks != 0) return;
    gemm::reducer<T, group> sums{workers.group, comm, launch, partials};
    sum_up(sums, index, arch::grid_blocks() * workers.groups);
  });
}

/// Computes tiles of gathered operands, as blocks with this role.
template <class Product, class Output>
DEVCOMM_DEVICE void multiply_gathered(const device_comm& comm, gemm::flag_handle flags,
                                      const gemm::operand_chunks& chunks, const gemm::tile_order& order,
                                      const Product& product, const Output& output, const block_roles& role) {
  const auto make_gate = [&](auto group) {
    return gemm::gate<decltype(group)>{group, gemm::flag_access{comm, flags}, chunks};
  };
  compute_tiles(product, order, role, make_gate, [&](auto workers, const auto& for_each_tile) {
    const gemm::session launch{workers.all, comm, flags};
    for_each_tile([&](const gemm::tile&, const auto& store_to) { store_to(output); });
  });
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
  const auto sum_up = [&](auto& sums, uint32_t first, uint32_t step) {
    const int rank = comm.lsa_rank();
    for (uint32_t i = first; i < order.grid().tiles_of(rank); i += step)
      if (!sums.reduce(order.grid().at(rank, i), output)) return;
  };
  detail::publish_and_sum<false>(comm, partials, order, product, communication_blocks, sum_up);
}

/// The same, and every rank gets the whole sum: tiles go to all ranks, each of which sums all of them. One trip over
/// the links, with `members` times the bytes of two shots: for small products.
///
///     const gemm::tile_order order{grid, 0, gemm::first_owner::self};  // grid: by_tiles, of one member
///     gemm::all_reduce_one_shot(comm, partials, order, product, gemm::to_matrix<T>{c, n});
template <class T, class Product, class Output>
DEVCOMM_DEVICE void all_reduce_one_shot(const device_comm& comm, const partial_handle<T>& partials,
                                        const tile_order& order, const Product& product, const Output& output,
                                        uint32_t communication_blocks = 0) {
  const tile_grid& grid = order.grid();
  DEVCOMM_ASSERT(grid.members() == 1,
                 "the grid of an all-reduce in one shot has one member: tile_grid::by_tiles(..., 1)");
  const auto sum_up = [&](auto& sums, uint32_t first, uint32_t step) {
    for (uint32_t i = first; i < grid.size(); i += step)
      if (!sums.reduce(grid.at(0, i), output)) return;
  };
  detail::publish_and_sum<true>(comm, partials, order, product, communication_blocks, sum_up);
}

/// The same: the owner of a tile sums it and stores the result to all ranks. More `parts` of the order let it begin
/// earlier. All ranks get the same bits, and those of one shot.
///
/// The output is in a window, rows of `n` elements, at the same place on every rank.
///
///     const gemm::tile_order order{grid, comm.lsa().rank, gemm::first_owner::next, 4};  // grid: by_tiles, of all
///     members gemm::all_reduce_two_shot(comm, partials, order, product, gemm::to_matrices<T>{window.pointer<T>(), n});
///
/// *Lifetime*: the output is complete when the launch is. Peers write to it from the beginning of this rank's launch
/// on.
template <class T, class Product, class U, class Epilogue>
DEVCOMM_DEVICE void all_reduce_two_shot(const device_comm& comm, const partial_handle<T>& partials,
                                        const tile_order& order, const Product& product,
                                        const to_matrices<U, Epilogue>& output, uint32_t communication_blocks = 0) {
  const tile_grid& grid = order.grid();
  const int rank = comm.lsa_rank();
  DEVCOMM_ASSERT(grid.members() == comm.lsa().size,
                 "the members of the grid of an all-reduce in two shots are those of the LSA team: comm.lsa().size");
  const auto sum_up = [&](auto& sums, uint32_t first, uint32_t step) {
    for (uint32_t i = first; i < grid.tiles_of(rank); i += step) {
      const tile t = grid.at(rank, i);
      if (!sums.reduce(t, output)) return;
      sums.set_result(t);
    }
    sums.wait_for_results(grid, first, step);
  };
  detail::publish_and_sum<false>(comm, partials, order, product, communication_blocks, sum_up);
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
  const detail::block_roles role{communication_blocks};
  if (!role.computes) {
    const session<block> launch{block{}, comm, flags};
    operand_sender<block> sender{block{}, comm, launch, chunks, arch::block_rank()};
    return sender.send(operand, role.first, role.step);
  }
  detail::multiply_gathered(comm, flags, chunks, order, product, output, role);
}

/// The same where `operand_copies` gathers the operand: all blocks compute.
template <class Product, class Output>
DEVCOMM_DEVICE void all_gather(const device_comm& comm, flag_handle flags, const operand_chunks& chunks,
                               const tile_order& order, const Product& product, const Output& output) {
  detail::multiply_gathered(comm, flags, chunks, order, product, output, detail::block_roles{0});
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
