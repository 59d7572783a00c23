/// Products with an all-gather before them, or a reduce-scatter or all-reduce after, in one kernel; and the two apart.
#include "perf/matrix_products.hpp"
#include "perf/product_kernels.cuh"
#include "perf/random_data.hpp"
#include "perf/random_element.cuh"

#include <algorithm>
#include <stdexcept>

namespace perf {
namespace {

using namespace devcomm;
using element = fused::element;

#if defined(DEVCOMM_SIMULATOR)
constexpr bool is_simulated = true;
#else
constexpr bool is_simulated = false;
#endif

/// In plain loops: what the simulator runs, and no figure for anybody else.
struct plain_loops {
  using product = gemm::reference_product<gemm::rows_of<element>, gemm::rows_of<element>>;
  static constexpr const char* name = "plain_loops";
  static constexpr gemm::tile_shape shape{32, 32, 16};
  static constexpr unsigned threads = 64, groups = 1, cluster = 1, shared_bytes = 0;

  static std::string why_not(const work&) { return ""; }
  static product make(const gemm::problem_shape& problem, const element* a, const element* b) {
    return {{a, problem.k}, {b, problem.n}, problem.k, shape.k};
  }
};

class loops_product final : public local_product {
 public:
  [[nodiscard]] std::string name() const override { return plain_loops::name; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  void start(const work& what, void* c) override {
    const gemm::problem_shape problem = problem_of(what);
    const gemm::tile_order order{gemm::tile_grid::by_tiles(problem, plain_loops::shape, 1), 0, gemm::first_owner::self};
    launch(fused::multiply<plain_loops::product>, {.grid = 3, .block = plain_loops::threads, .stream = what.stream},
           order, plain_loops::make(problem, static_cast<const element*>(what.input), matrix_b<element>(what)),
           gemm::to_matrix<element>{static_cast<element*>(c), problem.n});
  }
};

/// A product and a collective, one after the other: what fusing has to beat.
class separate_product final : public algorithm {
 public:
  separate_product(product_kind kind, std::shared_ptr<local_product> product, std::unique_ptr<algorithm> collective)
      : kind_(kind), product_(std::move(product)), collective_(std::move(collective)) {}

  [[nodiscard]] std::string implementation() const override {
    return collective_ ? collective_->implementation() : "devcomm";
  }
  [[nodiscard]] std::string name() const override {
    return collective_ ? "separate_" + collective_->whole_name() : std::string("product");
  }
  [[nodiscard]] std::string protocol() const override { return product_->name(); }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (what.type != data_type::bf16) return "products are of bf16";
    const std::string reason = product_->why_not(what);
    return !reason.empty() || !collective_ ? reason : collective_->why_not(collective_work(what));
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return collective_ ? collective_->shapes(collective_work(what)) : std::vector<launch_shape>{{}};
  }
  [[nodiscard]] launch_shape fitted(const work& what) const override {
    return collective_ ? collective_->fitted(collective_work(what)) : what.shape;
  }
  [[nodiscard]] std::byte* memory() override { return collective_ ? collective_->memory() : nullptr; }
  void start(const work& what) override {
    const work moved = collective_work(what);
    if (kind_ == product_kind::ag_gemm) collective_->start(moved);
    product_->start(what, kind_ == product_kind::gemm || kind_ == product_kind::ag_gemm ? what.output : moved.input);
    if (kind_ == product_kind::gemm_rs || kind_ == product_kind::gemm_ar) collective_->start(moved);
  }
  void check() override {
    if (collective_) collective_->check();
  }

 private:
  /// What the collective has to do: gather A where it lies, or sum the products.
  [[nodiscard]] work collective_work(const work& what) const {
    work moved = what;
    const product_places places(what);
    auto* const input = static_cast<std::byte*>(what.input);
    if (kind_ == product_kind::ag_gemm) {
      const gemm::problem_shape problem = problem_of(what);
      moved.bytes = std::uint64_t{problem.m} * problem.k * bytes_of(what.type);
      moved.output = input;
      moved.input = moved.shard_of(input);
      moved.in_place = true;
    } else {
      moved.input = input + places.product;
    }
    return moved;
  }

  product_kind kind_;
  std::shared_ptr<local_product> product_;
  std::unique_ptr<algorithm> collective_;  // null: a product alone
};

// --- whether they are right ---

constexpr int of_b = 1000;  // pseudo ranks of random_element

/// Counts, of `count` elements of C from `first` on, those that are too far from the products of `ranks` ranks; every
/// `step`-th is looked at.
__global__ void count_wrong_elements(const element* c, std::uint64_t first, std::uint64_t count, std::uint64_t step,
                                     gemm::problem_shape problem, int first_rank, int ranks, std::uint32_t shard_rows,
                                     std::uint64_t seed, unsigned long long* wrong) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i * step < count; i += stride) {
    const std::uint64_t at = first + i * step;
    const std::uint64_t row = at / problem.n, column = at % problem.n;
    double sum = 0, parts = 0, magnitude = 0;
    for (int r = first_rank; r < first_rank + ranks; ++r) {
      // A gathered A has the rows of their owners.
      const int of_a = shard_rows == 0 ? r : static_cast<int>(row / shard_rows);
      double part = 0;
      for (std::uint32_t j = 0; j < problem.k; ++j) {
        const double product =
            to_double(random_element<element>(seed, of_a, row * problem.k + j)) *
            to_double(random_element<element>(seed, of_b + r, std::uint64_t{j} * problem.n + column));
        part += product;
        magnitude += product < 0 ? -product : product;
      }
      sum += part;
      parts += part < 0 ? -part : part;
    }
    const double off = to_double(c[i * step]) - sum;
    if (!((off < 0 ? -off : off) <= (2 * parts + (sum < 0 ? -sum : sum)) * rounding<element> + magnitude * 1e-5))
      atomicAdd(wrong, 1ull);
  }
}

class product_operation final : public operation {
 public:
  product_operation(product_kind kind, const char* name, const char* about, const char* collective)
      : kind_(kind), name_(name), about_(about), collective_(collective) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::string about() const override { return about_; }
  /// Of C's bytes; an operand's are others.
  [[nodiscard]] double bus_factor(int ranks) const override {
    const double others = (ranks - 1.0) / ranks;
    if (kind_ == product_kind::gemm_ar) return 2 * others;
    return kind_ == product_kind::gemm_rs ? others : 0;
  }
  /// Whole rows of C, as many for each rank.
  [[nodiscard]] std::uint64_t granularity(const work& what) const override {
    if (what.hidden * bytes_of(what.type) % 16 != 0 || what.depth * bytes_of(what.type) % 16 != 0)
      throw usage_error("--hidden " + std::to_string(what.hidden) + " --depth " + std::to_string(what.depth) +
                        ": rows of matrices fill packs of 16 bytes");
    return what.hidden * bytes_of(what.type) * static_cast<std::uint64_t>(what.ranks);
  }
  [[nodiscard]] std::uint64_t region(const work& what) const override { return product_places(what).end; }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  /// Nobody has measured on which shapes fusing pays: the fused way, by the best main loop that there is.
  [[nodiscard]] choice choose(const work& what, unsigned) const override {
    const char* const fused = kind_ == product_kind::gemm      ? "product"
                              : kind_ == product_kind::ag_gemm ? "fused_copies"
                              : kind_ == product_kind::gemm_rs ? "fused"
                              : what.bytes <= (1u << 20)       ? "fused_one_shot"
                                                               : "fused_two_shot";
    return {fused, is_simulated ? plain_loops::name : "sm90", {}, "not measured yet"};
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    std::shared_ptr<local_product> product;
    if (is_simulated) {
      fused::add_products<plain_loops>(kind_, context, made);
      product = std::make_shared<loops_product>();
    } else {
      add_sm90_products(kind_, context, made);
      product = make_blas_product();
    }
    if (collective_ == nullptr) {
      if (!is_simulated) made.push_back(std::make_unique<separate_product>(kind_, product, nullptr));
      return made;
    }
    for (auto& one : collective().make_algorithms(context))
      made.push_back(std::make_unique<separate_product>(kind_, product, std::move(one)));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    algorithms made;
    if (collective_ == nullptr) throw std::runtime_error("NCCL has no matrix product");
    const std::shared_ptr<local_product> product = make_blas_product();
    for (auto& one : collective().make_nccl_algorithms(context))
      made.push_back(std::make_unique<separate_product>(kind_, product, std::move(one)));
    return made;
  }
  void fill(const work& what, std::uint64_t seed) const override {
    const gemm::problem_shape problem = problem_of(what);
    const std::uint64_t in_a = std::uint64_t{problem.m} * problem.k;
    fill_random(what.input, in_a, what.type, what.rank, seed, what.stream);
    fill_random(matrix_b<element>(what), std::uint64_t{problem.k} * problem.n, what.type, of_b + what.rank, seed,
                what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    const gemm::problem_shape problem = problem_of(what);
    const bool sums = kind_ == product_kind::gemm_rs || kind_ == product_kind::gemm_ar;
    const bool scattered = kind_ == product_kind::gemm_rs;
    const std::uint64_t count = scattered ? what.shard() : what.count();
    const std::uint64_t first = scattered ? static_cast<std::uint64_t>(what.rank) * count : 0;
    const std::uint64_t step =
        std::max<std::uint64_t>(1, count / (1u << 16)) | 1;  // so that all columns have their turn
    const auto shard_rows = kind_ == product_kind::ag_gemm ? problem.m / static_cast<std::uint32_t>(what.ranks) : 0u;
    return count_on_device(what.stream, [&](unsigned long long* wrong) {
      launch(count_wrong_elements, {.grid = is_simulated ? 2u : 256u, .block = 64, .stream = what.stream},
             static_cast<const element*>(what.output), first, count, step, problem, sums ? 0 : what.rank,
             sums ? what.ranks : 1, shard_rows, seed, wrong);
    });
  }

 private:
  [[nodiscard]] const operation& collective() const {
    for (const auto& one : operations())
      if (one->name() == collective_) return *one;
    throw std::logic_error(std::string("no operation ") + collective_);
  }

  product_kind kind_;
  const char* name_;
  const char* about_;
  const char* collective_;  // null: none
};

const bool are_registered =
    register_operation(std::make_unique<product_operation>(product_kind::gemm, "gemm",
                                                           "a matrix product on each rank; bytes of C", nullptr)) &&
    register_operation(std::make_unique<product_operation>(
        product_kind::ag_gemm, "ag_gemm", "a product whose A is sharded by rows; bytes of C", "all_gather")) &&
    register_operation(std::make_unique<product_operation>(
        product_kind::gemm_rs, "gemm_rs", "a product, and a shard of the sum over ranks; bytes of the sum",
        "reduce_scatter")) &&
    register_operation(std::make_unique<product_operation>(
        product_kind::gemm_ar, "gemm_ar", "a product, and its sum over ranks; bytes of C", "all_reduce"));

}  // namespace
}  // namespace perf
