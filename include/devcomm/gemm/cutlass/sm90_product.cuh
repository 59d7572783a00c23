/// \file sm90_product.cuh
/// Tiles of a matrix product by a CUTLASS main loop for Hopper, with devcomm's order, gate and outputs around it.
///
/// Needs CUTLASS 4 on the include path, and a compiler for sm_90a with `-DNDEBUG`, without which its assertions become
/// calls between matrix instructions.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/gemm/cutlass/fragment.cuh>
#include <devcomm/gemm/reference_product.cuh>
#include <devcomm/gemm/tile_order.hpp>
#include <devcomm/group.cuh>

#include <cutlass/cutlass.h>

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/layout/matrix.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/pipeline/pipeline.hpp>

namespace devcomm::detail {

/// The steps of K, each behind its gate. CUTLASS's loader reads it in the one thread that issues copies.
template <class Gate>
struct gated_steps {
  Gate& gate;
  const gemm::tile& t;
  uint32_t k;  ///< of a step
  int step = 0;
  bool is_open = false;

  DEVCOMM_DEVICE int operator*() {
    if (!is_open) gate.wait(t, static_cast<uint32_t>(step) * k);
    is_open = true;
    return step;
  }
  DEVCOMM_DEVICE gated_steps& operator++() {
    ++step;
    is_open = false;
    return *this;
  }
};

}  // namespace devcomm::detail

namespace devcomm::gemm {

/// Shared memory that a product needs beside its stages: give it to `StageCountAutoCarveout`.
inline constexpr int sm90_carveout = 3 * 1024;

/// A main loop for elements of CUTLASS's type `T`: A of `m` rows of `k` elements and B of `k` rows of `n` (with
/// `LayoutB = ColumnMajor`, which 8-bit types need, of `n` rows of `k`), and as many stages as fit. `Tile` is
/// `cute::Shape<cute::Int<M>, cute::Int<N>, cute::Int<K>>`, for each block; `Cluster` blocks with the same columns
/// share what they load of B.
template <class T, class Tile, int Cluster = 1, class Schedule = ::cutlass::gemm::KernelTmaWarpSpecializedPingpong,
          class LayoutB = ::cutlass::layout::RowMajor>
using sm90_mainloop = typename ::cutlass::gemm::collective::CollectiveBuilder<
    ::cutlass::arch::Sm90, ::cutlass::arch::OpClassTensorOp, T, ::cutlass::layout::RowMajor, 16 / sizeof(T), T, LayoutB,
    16 / sizeof(T), float, Tile, cute::Shape<cute::Int<Cluster>, cute::_1, cute::_1>,
    ::cutlass::gemm::collective::StageCountAutoCarveout<sm90_carveout>, Schedule>::CollectiveOp;

/// A product by `Mainloop`, which CUTLASS's `CollectiveBuilder` makes for Hopper with the schedule
/// `KernelTmaWarpSpecializedCooperative` or `...Pingpong` and A and B of any types and layouts that it takes. It goes
/// into the operations of operations.cuh:
///
///     using product = gemm::sm90_product<gemm::sm90_mainloop<cutlass::bfloat16_t, cute::Shape<_128, _128, _64>>>;
///
///     __global__ void __launch_bounds__(product::threads, 1)
///         multiply_and_scatter(..., const __grid_constant__ product multiply) {
///       gemm::reduce_scatter(comm, partials, order, multiply, output);
///     }
///
/// Grids have tiles of `shape`, orders are for clusters of `cluster` blocks. Blocks have `threads` threads,
/// `shared_bytes` of dynamic shared memory, and `groups` groups of threads that hold tiles, so that
/// `requirements::lsa_barriers` needs `groups` for each block. They, and communication blocks, come in whole clusters,
/// along x.
///
/// Hardware barriers 13 to 15 are its own.
template <class Mainloop>
class sm90_product {
  using cute_shape = typename Mainloop::TileShape;
  using cluster_shape = typename Mainloop::DispatchPolicy::ClusterShape;
  using schedule = typename Mainloop::DispatchPolicy::Schedule;
  using pipeline = typename Mainloop::MainloopPipeline;
  using pipeline_state = typename Mainloop::PipelineState;

  static constexpr bool is_pingpong = cute::is_base_of_v<::cutlass::gemm::KernelTmaWarpSpecializedPingpong, schedule>;
  static_assert(is_pingpong || cute::is_base_of_v<::cutlass::gemm::KernelTmaWarpSpecializedCooperative, schedule>,
                "the schedule of the main loop is KernelTmaWarpSpecializedCooperative or ...Pingpong");
  static_assert(cute::size<1>(cluster_shape{}) == 1 && cute::size<2>(cluster_shape{}) == 1,
                "the blocks of a cluster have rows of tiles below each other: its shape is Shape<N, _1, _1>");

  using order_barrier = ::cutlass::OrderedSequenceBarrier<1, 2>;

  struct storage {
    alignas(1024) typename Mainloop::TensorStorage tensors;
    alignas(16) typename Mainloop::PipelineStorage pipeline;
    alignas(16) typename order_barrier::SharedStorage order;
  };

 public:
  static constexpr uint32_t groups = is_pingpong ? 2 : 1;
  static constexpr uint32_t cluster = cute::size<0>(cluster_shape{});
  static constexpr uint32_t threads = 3 * ::cutlass::NumThreadsPerWarpGroup;
  static constexpr size_t shared_bytes = sizeof(storage) + alignof(storage);
  static_assert(shared_bytes <= 227 * 1024, "the main loop has too many stages: see sm90_carveout");

  static constexpr tile_shape shape{cute::size<0>(cute_shape{}), cute::size<1>(cute_shape{}),
                                    cute::size<2>(cute_shape{})};

  /// On the host. `operands` has pointers and strides. *Requires* `can_implement(problem, operands)`.
  sm90_product(problem_shape problem, const typename Mainloop::Arguments& operands)
      : mainloop_(Mainloop::to_underlying_arguments(sizes(problem), operands, nullptr)), problem_(problem) {
    DEVCOMM_ASSERT(can_implement(problem, operands),
                   "rows of A and B begin at multiples of 16 bytes, and K has at least one element");
  }
  /// Whether rows of A and B are as TMA needs them: multiples of 16 bytes.
  static bool can_implement(problem_shape problem, const typename Mainloop::Arguments& operands) {
    return problem.k > 0 && Mainloop::can_implement(sizes(problem), operands);
  }

  /// Computes the tiles `first`, `first + step`, ... of `order`; both count blocks, of whole clusters.
  /// `make_gate(group)` makes the gate of the thread that loads. `part(workers, for_each_tile)` is called by each group
  /// of threads that hold tiles, see `detail::compute_tiles`.
  template <class MakeGate, class Part>
  DEVCOMM_DEVICE void run(const tile_order& order, uint32_t first, uint32_t step, const MakeGate& make_gate,
                          const Part& part) const {
    DEVCOMM_ASSERT(order.cluster() == cluster, "give tile_order the cluster of the product: sm90_product::cluster");
    DEVCOMM_ASSERT(order.grid().shape().m == shape.m && order.grid().shape().n == shape.n &&
                       order.grid().shape().k == shape.k && order.grid().problem().k == problem_.k,
                   "the grid is one of another shape of tiles, or of another problem, than the product");
    DEVCOMM_ASSERT(arch::block_threads() == threads && first % cluster == 0 && step % cluster == 0,
                   "a block has sm90_product::threads threads, and communication blocks come in whole clusters");
    storage& shared = dynamic_shared();
    const int warp_group = ::cutlass::canonical_warp_group_idx();
    const bool loads = warp_group == 0 && ::cutlass::canonical_warp_idx_sync() == 0;
    const auto in_group = static_cast<int>(arch::thread_rank() % ::cutlass::NumThreadsPerWarpGroup);

    typename pipeline::Params roles;
    roles.transaction_bytes = mainloop_.tma_transaction_bytes;
    if (loads) roles.role = pipeline::ThreadCategory::Producer;
    if (warp_group != 0) roles.role = pipeline::ThreadCategory::Consumer;
    roles.is_leader = in_group == 0;
    roles.num_consumers = workers_of_group;
    roles.num_producers = Mainloop::NumProducerThreadEvents;
    pipeline stages{shared.pipeline, roles, cluster_shape{}};
    order_barrier turns{shared.order, {static_cast<uint32_t>(warp_group == 2), ::cutlass::NumThreadsPerWarpGroup}};
    if constexpr (cluster > 1) {
      cute::cluster_arrive_relaxed();
      cute::cluster_wait();
    } else {
      arch::sync_block();
    }

    // Each role finds its tiles itself: what is computed before they part is in registers of both.
    if (warp_group == 0) {
      ::cutlass::arch::warpgroup_reg_dealloc<load_registers>();
      if (loads) load({order, first / cluster, step / cluster}, stages, shared, make_gate);
    } else {
      ::cutlass::arch::warpgroup_reg_alloc<compute_registers>();
      const auto index = static_cast<uint32_t>(is_pingpong ? warp_group - 1 : 0);
      const warp_span all{4, 8, 15};
      const warp_span own{4 + 4 * index, 8 / groups, 13 + index};
      const auto for_each_tile = [&](const auto& finish) {
        compute({order, first / cluster, step / cluster}, index, stages, turns, shared, finish);
      };
      part(tile_workers<warp_span>{all, own, index, groups}, for_each_tile);
    }
  }

 private:
  static constexpr uint32_t workers_of_group = 2 * ::cutlass::NumThreadsPerWarpGroup / groups;
  static constexpr int accumulators =
      cute::size<0>(cute_shape{}) * cute::size<1>(cute_shape{}) / static_cast<int>(workers_of_group);
  // Of the 168 that each thread starts with. The loader also finds tiles and waits at gates.
  static constexpr uint32_t load_registers = accumulators <= 128 ? 72 : 40;
  static constexpr uint32_t compute_registers = accumulators <= 128 ? 216 : 232;
  static_assert(load_registers + 2 * compute_registers == 3 * 168, "registers that are freed are taken");

  DEVCOMM_HOST_DEVICE static auto sizes(problem_shape problem) {
    return cute::make_shape(static_cast<int>(problem.m), static_cast<int>(problem.n), static_cast<int>(problem.k), 1);
  }

  DEVCOMM_DEVICE static storage& dynamic_shared() {
    extern __shared__ char devcomm_sm90_shared[];
    const uint32_t offset = cute::cast_smem_ptr_to_uint(devcomm_sm90_shared);
    return *reinterpret_cast<storage*>(devcomm_sm90_shared + (0u - offset) % alignof(storage));
  }

  /// Clusters take tiles `first`, `first + step` and so on.
  struct cluster_tiles {
    const tile_order& order;
    uint32_t first;
    uint32_t step;

    DEVCOMM_DEVICE tile operator[](uint32_t i) const {
      if constexpr (cluster == 1) return order[i];
      return order.of_block(i, cute::block_rank_in_cluster());
    }
  };

  DEVCOMM_DEVICE int steps() const { return static_cast<int>(divide_up(problem_.k, shape.k)); }

  template <class MakeGate>
  DEVCOMM_DEVICE void load(const cluster_tiles& tiles, pipeline& stages, storage& shared,
                           const MakeGate& make_gate) const {
    using namespace cute;
    auto gate = make_gate(thread{});
    Mainloop mainloop;
    auto state = ::cutlass::make_producer_start_state<pipeline>();
    const auto [m, n, k, l] = sizes(problem_);
    const auto mA = mainloop_.tma_load_a.get_tma_tensor(make_shape(m, k, l));
    const auto mB = mainloop_.tma_load_b.get_tma_tensor(make_shape(n, k, l));
    const auto gB = local_tile(mB, cute_shape{}, make_coord(_, _, _), Step<X, _1, _1>{});
    for (uint32_t i = tiles.first; i < tiles.order.size(); i += tiles.step) {
      const tile t = tiles[i];
      const auto from_row = domain_offset(make_coord(static_cast<int>(t.row), 0, 0), mA);
      const auto gA = local_tile(from_row, cute_shape{}, make_coord(_, _, _), Step<_1, X, _1>{});
      mainloop.load(mainloop_, stages, state, cute::make_tuple(gA, gB),
                    make_coord(0, static_cast<int>(t.column / shape.n), _, 0),
                    detail::gated_steps<decltype(gate)>{gate, t, shape.k}, steps(), ::cutlass::canonical_lane_idx(),
                    cute::block_rank_in_cluster(), shared.tensors);
      state.advance(steps());
    }
    mainloop.load_tail(stages, state);
  }

  template <class Finish>
  DEVCOMM_DEVICE void compute(const cluster_tiles& tiles, uint32_t index, pipeline& stages, order_barrier& turns,
                              storage& shared, const Finish& finish) const {
    using namespace cute;
    using tiled_mma = typename Mainloop::TiledMma;
    Mainloop mainloop;
    pipeline_state state;
    if (index == 1) state.advance(steps());
    const int rank = static_cast<int>(arch::thread_rank() - threads / 3) % static_cast<int>(workers_of_group);
    for (uint32_t i = tiles.first + index * tiles.step; i < tiles.order.size(); i += groups * tiles.step) {
      const tile t = tiles[i];
      auto sums = partition_fragment_C(tiled_mma{}, take<0, 2>(cute_shape{}));
      if constexpr (is_pingpong) turns.wait();
      mainloop.mma(stages, state, sums, steps(), rank, shared.tensors, mainloop_);
      if constexpr (is_pingpong) turns.arrive();
      mainloop.mma_tail(stages, state, steps());
      state.advance(static_cast<uint32_t>(steps()) * groups);
      if (t.rows == 0) continue;
      finish(t, [&](const auto& output) {
        if (output.begin()) detail::store_fragment<cute_shape>(tiled_mma{}, sums, rank, t, output);
      });
    }
  }

  typename Mainloop::Params mainloop_;
  problem_shape problem_;
};

}  // namespace devcomm::gemm
