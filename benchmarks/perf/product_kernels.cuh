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

// --- one rank alone: what hooks cost, and what a link would add ---

/// As member `rank` of two, both of which are this rank.
DEVCOMM_DEVICE inline device_comm twice(const device_comm& comm, int rank) {
  device_comm both = comm;
  both.lsa_size = both.resources.lsa_size = 2;
  both.resources.lsa_rank = rank;
  both.resources.stride = 0;
  return both;
}

/// A link to a peer that takes one transfer at a time. A model: its start-up times, what comes the other way, and what
/// the transfers take of this GPU's memory are left out.
struct paced_link {
  double rate;           ///< GB/s, which are bytes in a nanosecond
  std::uint64_t* clear;  ///< when all that was sent has arrived

  /// When `bytes` that are sent now have arrived.
  DEVCOMM_DEVICE std::uint64_t send(std::uint64_t bytes) const {
    const auto takes = static_cast<std::uint64_t>(static_cast<double>(bytes) / rate);
    std::uint64_t before = arch::load<memory_order::relaxed, scope::device>(clear);
    for (;;) {
      const std::uint64_t now = arch::global_time();
      const std::uint64_t arrival = (before > now ? before : now) + takes;
      const std::uint64_t found = arch::compare_exchange<scope::device>(clear, before, arrival);
      if (found == before) return arrival;
      before = found;
    }
  }
};
DEVCOMM_DEVICE inline void wait_until(std::uint64_t time) {
  while (arch::global_time() < time) arch::sleep(20);
}

/// A gate whose chunks, all of which are there, open when the link would have brought them.
template <class Group>
class paced_gate {
 public:
  DEVCOMM_DEVICE paced_gate(Group group, const gemm::flag_access& flags, const gemm::operand_chunks& chunks,
                            double rate)
      : gate_(group, flags, chunks), chunks_(chunks), rate_(rate), begin_(arch::global_time()) {}
  DEVCOMM_DEVICE void wait(const gemm::tile& t, std::uint32_t k) {
    if (t.owner != 0) {  // as gate finds the tile's last chunk
      const std::uint32_t last = (t.row - chunks_.grid().first_row(t.owner) + t.rows - 1) / chunks_.rows();
      const std::uint32_t number = chunks_.number(0, last, k / chunks_.k());
      const std::uint64_t bytes = (number + 1ull) * chunks_.rows() * chunks_.k() * sizeof(element);
      wait_until(begin_ + static_cast<std::uint64_t>(static_cast<double>(bytes) / rate_));
    }
    gate_.wait(t, k);
  }

 private:
  gemm::gate<Group> gate_;
  gemm::operand_chunks chunks_;
  double rate_;
  std::uint64_t begin_;
};

/// All gates poll, and are open; each tile is announced to this rank.
template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply_hooked(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks,
                    gemm::partial_handle<element> partials, gemm::tile_grid grid, gemm::tile_order order,
                    const __grid_constant__ Product product, gemm::to_matrix<element> output) {
  const auto make_gate = [&](auto group) {
    return gemm::gate<decltype(group)>{group, gemm::flag_access{twice(comm, 1), flags}, chunks};
  };
  devcomm::detail::compute_tiles(product, order, devcomm::detail::block_roles{0}, make_gate,
                                 [&](auto workers, const auto& for_each_tile) {
                                   const gemm::session launch{workers.all, comm, partials.flags};
                                   const std::uint32_t index = arch::block_rank() * workers.groups + workers.index;
                                   gemm::publisher publisher{workers.group, comm, launch, partials, grid, index};
                                   for_each_tile([&](const gemm::tile& t, const auto& store_to) {
                                     static_cast<void>(publisher.begin());
                                     store_to(output);
                                     publisher.end(t);
                                   });
                                 });
}

/// Half of the rows of A come by a link.
template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply_arriving(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks, gemm::tile_order order,
                      const __grid_constant__ Product product, gemm::to_matrix<element> output, double rate) {
  const auto make_gate = [&](auto group) {
    return paced_gate<decltype(group)>{group, gemm::flag_access{twice(comm, 0), flags}, chunks, rate};
  };
  devcomm::detail::compute_tiles(product, order, devcomm::detail::block_roles{0}, make_gate,
                                 [&](auto, const auto& for_each_tile) {
                                   for_each_tile([&](const gemm::tile&, const auto& store_to) { store_to(output); });
                                 });
}

/// The peer's tiles, and where `to_all` the sums of this rank's, go by a link; ends when all have arrived.
template <class Product>
__global__ void __launch_bounds__(384, 1)
    multiply_leaving(device_comm comm, gemm::partial_handle<element> partials, gemm::tile_grid grid,
                     gemm::tile_order order, const __grid_constant__ Product product, gemm::to_matrix<element> output,
                     paced_link link, bool to_all) {
  const auto open = [](auto) { return gemm::no_gate{}; };
  devcomm::detail::compute_tiles(product, order, devcomm::detail::block_roles{0}, open,
                                 [&](auto workers, const auto& for_each_tile) {
                                   const gemm::session launch{workers.all, comm, partials.flags};
                                   const std::uint32_t index = arch::block_rank() * workers.groups + workers.index;
                                   gemm::publisher publisher{workers.group, comm, launch, partials, grid, index};
                                   std::uint64_t arrival = 0;
                                   for_each_tile([&](const gemm::tile& t, const auto& store_to) {
                                     static_cast<void>(publisher.begin());
                                     store_to(output);
                                     gemm::tile published = t;
                                     published.index += t.owner == 0 ? 0 : order.grid().tiles_of(0);
                                     published.owner = 0;
                                     publisher.end(published);
                                     if (workers.group.thread_rank() == 0 && (t.owner != 0 || to_all))
                                       arrival = link.send(std::uint64_t{t.rows} * t.columns * sizeof(element));
                                   });
                                   wait_until(arrival);
                                 });
}

/// What is made for one shape, when it is first called: on all ranks together.
struct prepared {
  std::optional<host::device_communicator> device_comm;
  gemm::flag_handle flags{};
  gemm::partial_handle<element> partials{};
  buffer_handle<std::uint64_t> link{};
  std::optional<gemm::operand_copies> copies;
};

enum class variant { local, idle, hooked, stored, copied, arriving, scattered, one_shot, two_shot, leaving };

template <class Way>
class product_algorithm final : public device_algorithm {
 public:
  /// `rate`: of a link, in GB/s.
  product_algorithm(const rank_context& context, variant which, unsigned rate, bool sums_for_all)
      : device_algorithm(context), which_(which), rate_(rate), sums_for_all_(sums_for_all) {}

  [[nodiscard]] std::string name() const override {
    switch (which_) {
      case variant::local: return "product";
      case variant::idle: return "hooks_idle";
      case variant::hooked: return "hooks_working";
      case variant::arriving:
      case variant::leaving: return "paced_" + std::to_string(rate_);
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
    if (is_of_one_rank() && what.ranks != 1) return "a model for one rank alone";
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
    const auto first = which_ == variant::stored || which_ == variant::copied || which_ == variant::arriving
                           ? gemm::first_owner::self
                           : gemm::first_owner::next;
    const unsigned parts = which_ == variant::two_shot ? 4 : 1;
    const gemm::tile_order order{grid, grid.members() == 1 ? 0 : what.rank, first, parts, Way::cluster};
    auto* const c = static_cast<element*>(what.output);
    const gemm::to_matrix<element> whole{c, problem.n};
    using type = typename Way::product;
    const unsigned senders = 2 * Way::cluster;
    switch (which_) {
      case variant::local: return launch(multiply<type>, config, order, product, whole);
      case variant::idle:
        return launch(multiply_copied<type>, config, with.device_comm->get(), with.flags, chunks_of(grid), order,
                      product, whole);
      case variant::hooked:
        return launch(multiply_hooked<type>, config, with.device_comm->get(), with.flags, chunks_of(doubled(grid)),
                      with.partials, grid, order, product, whole);
      case variant::arriving:
        return launch(multiply_arriving<type>, config, with.device_comm->get(), with.flags, chunks_of(grid), order,
                      product, whole, static_cast<double>(rate_));
      case variant::leaving:
        return launch(multiply_leaving<type>, config, with.device_comm->get(), with.partials, whole_tiles(grid), order,
                      product, whole,
                      paced_link{static_cast<double>(rate_), with.device_comm->get().buffer(with.link).local()},
                      sums_for_all_);
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
    const int ranks = which_ == variant::arriving || which_ == variant::leaving ? 2 : comm().size();
    if (which_ == variant::local || which_ == variant::hooked || which_ == variant::one_shot)
      return gemm::tile_grid::by_tiles(problem, Way::shape, 1);
    if (which_ == variant::two_shot) return gemm::tile_grid::by_tiles(problem, Way::shape, ranks);
    return gemm::tile_grid::by_rows(problem, Way::shape, ranks);
  }
  /// Chunks of a row of tiles, of a quarter of K.
  [[nodiscard]] static gemm::operand_chunks chunks_of(const gemm::tile_grid& grid) {
    const std::uint32_t steps = gemm::divide_up(gemm::divide_up(grid.problem().k, grid.shape().k), 4);
    return {grid, grid.shape().m, std::max(steps, 1u) * grid.shape().k};
  }
  /// Two members, of which the first has all rows of `grid`.
  [[nodiscard]] static gemm::tile_grid doubled(const gemm::tile_grid& grid) {
    const gemm::problem_shape problem = grid.problem();
    return gemm::tile_grid::by_rows({2 * problem.m, problem.n, problem.k}, grid.shape(), 2);
  }
  /// One member, with as many tiles as the two of `grid` have.
  [[nodiscard]] static gemm::tile_grid whole_tiles(const gemm::tile_grid& grid) {
    const gemm::problem_shape problem = grid.problem();
    const std::uint32_t rows = 2 * gemm::divide_up(grid.shard_rows(), grid.shape().m) * grid.shape().m;
    return gemm::tile_grid::by_tiles({rows, problem.n, problem.k}, grid.shape(), 1);
  }
  [[nodiscard]] bool is_of_one_rank() const {
    return which_ == variant::idle || which_ == variant::hooked || which_ == variant::arriving ||
           which_ == variant::leaving;
  }
  prepared& prepared_for(const gemm::problem_shape& problem, unsigned blocks) {
    prepared& made = prepared_[{problem.m, problem.n, problem.k, blocks}];
    if (made.device_comm || which_ == variant::local) return made;
    const gemm::tile_grid grid = grid_of(problem);
    requirements needs = comm().requirements().lsa_barriers(blocks * Way::groups);
    gemm::operand_copy_handle copying{};
    if (which_ == variant::hooked || which_ == variant::arriving) {
      const gemm::operand_chunks chunks = chunks_of(which_ == variant::hooked ? doubled(grid) : grid);
      made.flags = needs.add(gemm::flags{{0, 2, 0, 1}, chunks.count(), blocks});
    }
    if (which_ == variant::hooked || which_ == variant::leaving) {
      const gemm::tile_grid tiles = which_ == variant::leaving ? whole_tiles(grid) : grid;
      made.partials = needs.add(gemm::partial_tiles<element>{comm().lsa(), tiles, blocks});
      made.link = needs.add_buffer<std::uint64_t>(1);
    } else if (which_ == variant::stored || which_ == variant::copied || which_ == variant::idle) {
      made.flags = needs.add(gemm::flags{comm().lsa(), chunks_of(grid).count(), blocks});
      if (which_ == variant::copied) copying = needs.add(gemm::operand_copy_signals{comm().lsa()});
    } else if (which_ != variant::arriving) {
      made.partials = needs.add(gemm::partial_tiles<element>{comm().lsa(), grid, blocks});
    }
    made.device_comm = comm().create_device_comm(needs);
    if (which_ == variant::hooked || which_ == variant::arriving)  // all chunks are there, in every launch
      check_cuda(cudaMemset(made.device_comm->get().resources.local + made.flags.offset, 0x7f,
                            made.flags.count * sizeof(std::uint64_t)),
                 "cudaMemset");
    if (which_ == variant::copied) made.copies.emplace(made.device_comm->get(), copying, made.flags, chunks_of(grid));
    return made;
  }

  variant which_;
  unsigned rate_;
  bool sums_for_all_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, unsigned>, prepared> prepared_;
};

template <class Way>
void add_products(product_kind kind, const rank_context& context, algorithms& to) {
  const auto add = [&](variant which, unsigned rate = 0) {
    to.push_back(std::make_unique<product_algorithm<Way>>(context, which, rate, kind == product_kind::gemm_ar));
  };
  constexpr unsigned nvlink = 356;  // GB/s, as devcomm-perf limits measured it on 2 H200s
  switch (kind) {
    case product_kind::gemm: return add(variant::local), add(variant::idle), add(variant::hooked);
    case product_kind::ag_gemm:
      add(variant::stored), add(variant::copied);
      for (const unsigned rate : {50u, 100u, nvlink}) add(variant::arriving, rate);
      return;
    case product_kind::gemm_rs: return add(variant::scattered), add(variant::leaving, nvlink);
    case product_kind::gemm_ar: return add(variant::one_shot), add(variant::two_shot), add(variant::leaving, nvlink);
  }
}

}  // namespace perf::fused
