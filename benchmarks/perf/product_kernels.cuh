/// \file product_kernels.cuh
/// The fused ways, around any product of devcomm's. `Way` is
///
///     struct way {
///       using product = ...;
///       static constexpr const char* name;
///       static constexpr gemm::tile_shape shape;
///       static constexpr unsigned threads, groups, cluster, shared_bytes;  // as gemm::sm90_product has them
///       static std::string why_not(const work&);
///       static product make(gemm::problem_shape, const __nv_bfloat16* a, const __nv_bfloat16* b);
///     };
#pragma once

#include "perf/device_algorithm.hpp"
#include "perf/matrix_products.hpp"

#include <devcomm/devcomm.cuh>

#include <cuda_bf16.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace perf::fused {

using namespace devcomm;
using element = __nv_bfloat16;

template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply(gemm::tile_order order, const __grid_constant__ Product product, gemm::to_matrix<element> output) {
  const auto open = [](auto) { return gemm::no_gate{}; };
  devcomm::detail::compute_tiles(product, order, devcomm::detail::block_roles{0}, open,
                                 [&](auto, const auto& for_each_tile) {
                                   for_each_tile([&](const gemm::tile&, const auto& store_to) { store_to(output); });
                                 });
}

template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply_stored(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks, sym_ptr<element> a,
                    gemm::tile_order order, const __grid_constant__ Product product, gemm::to_matrix<element> output,
                    unsigned communication_blocks) {
  gemm::all_gather(comm, flags, chunks, a, order, product, output, communication_blocks);
}

template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply_copied(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks, gemm::tile_order order,
                    const __grid_constant__ Product product, gemm::to_matrix<element> output) {
  gemm::all_gather(comm, flags, chunks, order, product, output);
}

template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply_and_scatter(device_comm comm, gemm::partial_handle<element> partials, gemm::tile_order order,
                         const __grid_constant__ Product product, gemm::to_matrix<element> output) {
  gemm::reduce_scatter(comm, partials, order, product, output);
}

template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply_and_reduce_once(device_comm comm, gemm::partial_handle<element> partials, gemm::tile_order order,
                             const __grid_constant__ Product product, gemm::to_matrix<element> output) {
  gemm::all_reduce_one_shot(comm, partials, order, product, output);
}

template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply_and_reduce(device_comm comm, gemm::partial_handle<element> partials, gemm::tile_order order,
                        const __grid_constant__ Product product, gemm::to_matrices<element> output) {
  gemm::all_reduce_two_shot(comm, partials, order, product, output);
}

/// What is made for one shape, when it is first called: on all ranks together.
struct prepared {
  std::optional<host::device_communicator> device_comm;
  gemm::flag_handle flags{};
  gemm::partial_handle<element> partials{};
  std::optional<gemm::operand_copies> copies;
};

enum class variant { local, stored, copied, scattered, one_shot, two_shot };

template <class Way>
class product_algorithm final : public device_algorithm {
 public:
  product_algorithm(const rank_context& context, variant which) : device_algorithm(context), which_(which) {}

  [[nodiscard]] std::string name() const override {
    switch (which_) {
      case variant::local: return "product";
      case variant::stored: return "fused_stores";
      case variant::copied: return "fused_copies";
      case variant::scattered: return "fused";
      case variant::one_shot: return "fused_one_shot";
      case variant::two_shot: return "fused_two_shot";
    }
    return {};
  }
  [[nodiscard]] std::string protocol() const override { return Way::name; }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (what.type != data_type::bf16) return "products are of bf16";
    return Way::why_not(what);
  }
  /// All multiprocessors, in whole clusters.
  [[nodiscard]] std::vector<launch_shape> shapes(const work&) const override {
    const unsigned all = is_simulated() ? 3u : static_cast<unsigned>(comm().properties().multiprocessors);
    return {{std::max(Way::cluster, all / Way::cluster * Way::cluster), Way::threads}};
  }
  void start(const work& what) override {
    const gemm::problem_shape problem = problem_of(what);
    const auto* const a = static_cast<const element*>(what.input);
    const auto product = Way::make(problem, a, matrix_b<element>(what));
    launch_config config = shape_of(what);
    if (config.grid.x == 0) config.grid = shapes(what)[0].blocks;
    const unsigned blocks = config.grid.x;
    config.block = Way::threads;
    config.shared_bytes = Way::shared_bytes;
    config.cluster = Way::cluster;
    config.programmatic_dependent = false;
    prepared& with = prepared_for(problem, blocks);
    const gemm::tile_grid grid = grid_of(problem);
    const auto first =
        which_ == variant::stored || which_ == variant::copied ? gemm::first_owner::self : gemm::first_owner::next;
    const unsigned parts = which_ == variant::two_shot ? 4 : 1;
    const gemm::tile_order order{grid, grid.members() == 1 ? 0 : what.rank, first, parts, Way::cluster};
    auto* const c = static_cast<element*>(what.output);
    const gemm::to_matrix<element> whole{c, problem.n};
    using type = typename Way::product;
    const unsigned senders = 2 * Way::cluster;
    switch (which_) {
      case variant::local: return launch(multiply<type>, config, order, product, whole);
      case variant::stored:
        return launch(multiply_stored<type>, config, with.device_comm->get(), with.flags, chunks_of(grid),
                      in_window<element>(what.input), order, product, whole, std::min(senders, blocks - Way::cluster));
      case variant::copied:
        with.copies->begin(in_window<element>(what.input), what.stream);
        launch(multiply_copied<type>, config, with.device_comm->get(), with.flags, chunks_of(grid), order, product,
               whole);
        return with.copies->end(what.stream);
      case variant::scattered:
        return launch(multiply_and_scatter<type>, config, with.device_comm->get(), with.partials, order, product,
                      gemm::to_matrix<element>{c, problem.n, grid.first_row(what.rank)});
      case variant::one_shot:
        return launch(multiply_and_reduce_once<type>, config, with.device_comm->get(), with.partials, order, product,
                      whole);
      case variant::two_shot:
        return launch(multiply_and_reduce<type>, config, with.device_comm->get(), with.partials, order, product,
                      gemm::to_matrices<element>{in_window<element>(c), problem.n});
    }
  }
  void check() override {
    for (auto& [shape, one] : prepared_)
      if (one.device_comm) one.device_comm->check();
  }

 private:
  [[nodiscard]] gemm::tile_grid grid_of(const gemm::problem_shape& problem) const {
    const int ranks = comm().size();
    if (which_ == variant::local || which_ == variant::one_shot)
      return gemm::tile_grid::by_tiles(problem, Way::shape, 1);
    if (which_ == variant::two_shot) return gemm::tile_grid::by_tiles(problem, Way::shape, ranks);
    return gemm::tile_grid::by_rows(problem, Way::shape, ranks);
  }
  /// Chunks of a row of tiles, of a quarter of K.
  [[nodiscard]] static gemm::operand_chunks chunks_of(const gemm::tile_grid& grid) {
    const std::uint32_t steps = gemm::divide_up(gemm::divide_up(grid.problem().k, grid.shape().k), 4);
    return {grid, grid.shape().m, std::max(steps, 1u) * grid.shape().k};
  }
  prepared& prepared_for(const gemm::problem_shape& problem, unsigned blocks) {
    prepared& made = prepared_[{problem.m, problem.n, problem.k, blocks}];
    if (made.device_comm || which_ == variant::local) return made;
    const gemm::tile_grid grid = grid_of(problem);
    requirements needs = comm().requirements().lsa_barriers(blocks * Way::groups);
    gemm::operand_copy_handle copying{};
    if (which_ == variant::stored || which_ == variant::copied) {
      made.flags = needs.add(gemm::flags{comm().lsa(), chunks_of(grid).count(), blocks});
      if (which_ == variant::copied) copying = needs.add(gemm::operand_copy_signals{comm().lsa()});
    } else {
      made.partials = needs.add(gemm::partial_tiles<element>{comm().lsa(), grid, blocks});
    }
    made.device_comm = comm().create_device_comm(needs);
    if (which_ == variant::copied) made.copies.emplace(made.device_comm->get(), copying, made.flags, chunks_of(grid));
    return made;
  }

  variant which_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, unsigned>, prepared> prepared_;
};

template <class Way>
void add_products(product_kind kind, const rank_context& context, algorithms& to) {
  const auto add = [&](variant which) { to.push_back(std::make_unique<product_algorithm<Way>>(context, which)); };
  switch (kind) {
    case product_kind::gemm: return add(variant::local);
    case product_kind::ag_gemm: return add(variant::stored), add(variant::copied);
    case product_kind::gemm_rs: return add(variant::scattered);
    case product_kind::gemm_ar: return add(variant::one_shot), add(variant::two_shot);
  }
}

}  // namespace perf::fused
