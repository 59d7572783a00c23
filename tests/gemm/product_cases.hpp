/// \file product_cases.hpp
/// Products with a collective inside against one in double precision, around any product:
///
///     struct way {
///       using product = ...;
///       using operand = ...;  // elements of A and B
///       static constexpr bool transposed;  // B is stored by columns
///       static constexpr gemm::tile_shape shape;
///       static constexpr unsigned threads, groups, cluster, shared_bytes;  // as gemm::sm90_product has them
///       static product make(gemm::problem_shape, const T* a, const T* b);
///     };
#pragma once

#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>

#include <cmath>
#include <string>
#include <vector>

namespace product_test {

using namespace devcomm;

/// Element `i` of matrix `which` of a rank: small halves, so that sums of some of them are exact in every type.
inline float value(int rank, int which, std::uint64_t i) {
  return static_cast<float>(
             static_cast<int>((i * 7 + static_cast<std::uint64_t>(rank) * 5 + static_cast<std::uint64_t>(which) * 3) %
                              9) -
             4) /
         2;
}

template <class T>
std::vector<T> matrix(int rank, int which, std::uint64_t elements) {
  std::vector<T> made;
  for (std::uint64_t i = 0; i < elements; ++i) made.push_back(static_cast<T>(value(rank, which, i)));
  return made;
}

/// C of a rank in double precision, A's rows from `first` of those of `a_rank`.
inline double element(const gemm::problem_shape& problem, int a_rank, int b_rank, std::uint32_t row,
                      std::uint32_t column) {
  double sum = 0;
  for (std::uint32_t j = 0; j < problem.k; ++j)
    sum += static_cast<double>(value(a_rank, 0, std::uint64_t{row} * problem.k + j)) *
           static_cast<double>(value(b_rank, 1, std::uint64_t{j} * problem.n + column));
  return sum;
}

inline double rounding_of(float) { return 1e-6; }
inline double rounding_of(__nv_bfloat16) { return 1.0 / 128; }

template <class T>
void expect_near(T got, double expected, double scale, const std::string& what) {
  test::require(std::abs(static_cast<double>(static_cast<float>(got)) - expected) <= rounding_of(T{}) * scale, [&] {
    return what + ": got " + std::to_string(static_cast<float>(got)) + " instead of " + std::to_string(expected);
  });
}

/// Bias, ReLU and residual.
template <class T>
using finish = gemm::epilogue<T, gemm::relu>;

template <class T, class Product>
__global__ void __launch_bounds__(384, 1)
    run_reduce_scatter(device_comm comm, gemm::partial_handle<T> partials, gemm::tile_order order,
                       const __grid_constant__ Product product, gemm::to_matrix<T, finish<T>> output,
                       unsigned communicating) {
  gemm::reduce_scatter(comm, partials, order, product, output, communicating);
}

template <class T, class Product>
__global__ void __launch_bounds__(384, 1) run_one_shot(device_comm comm, gemm::partial_handle<T> partials,
                                                       gemm::tile_order order, const __grid_constant__ Product product,
                                                       gemm::to_matrices<T, finish<T>> output, unsigned communicating) {
  gemm::all_reduce_one_shot(comm, partials, order, product,
                            gemm::to_matrix<T, finish<T>>{output.data.local(), output.stride, 0, output.finish},
                            communicating);
}

template <class T, class Product>
__global__ void __launch_bounds__(384, 1) run_two_shot(device_comm comm, gemm::partial_handle<T> partials,
                                                       gemm::tile_order order, const __grid_constant__ Product product,
                                                       gemm::to_matrices<T, finish<T>> output, unsigned communicating) {
  gemm::all_reduce_two_shot(comm, partials, order, product, output, communicating);
}

template <class T, class U, class Product>
__global__ void __launch_bounds__(384, 1)
    run_all_gather(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks, sym_ptr<U> operand,
                   gemm::tile_order order, const __grid_constant__ Product product,
                   gemm::to_matrix<T, finish<T>> output, unsigned communicating) {
  gemm::all_gather(comm, flags, chunks, operand, order, product, output, communicating);
}

/// What the sums become: bias and residual are those of rank 0 on every rank.
inline double finished(double sum, std::uint32_t n, std::uint32_t row, std::uint32_t column) {
  const double biased = sum + static_cast<double>(value(0, 2, column));
  return (biased < 0 ? 0 : biased) + static_cast<double>(value(0, 3, std::uint64_t{row} * n + column));
}

/// Matrices of a rank, and what is expected of its results.
template <class Way, class T>
class bench {
  using operand = typename Way::operand;

 public:
  bench(host::communicator& comm, const gemm::problem_shape& problem)
      : comm_(comm),
        problem_(problem),
        a_(matrix<operand>(comm.rank(), 0, std::uint64_t{problem.m} * problem.k)),
        b_(of_b(comm.rank(), problem)),
        bias_(matrix<T>(0, 2, problem.n)),
        residual_(matrix<T>(0, 3, std::uint64_t{problem.m} * problem.n)) {}

  [[nodiscard]] const operand* a() const { return a_.get(); }
  [[nodiscard]] const operand* b() const { return b_.get(); }
  [[nodiscard]] finish<T> epilogue(std::uint32_t first_row = 0) const {
    return {bias_.get(), residual_.get() + std::uint64_t{first_row} * problem_.n, problem_.n, first_row};
  }

  /// The sum over all ranks of their own A times their own B, after the epilogue.
  void expect_sums(const std::vector<T>& got, std::uint32_t first_row, const std::string& what) const {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto row = first_row + static_cast<std::uint32_t>(i / problem_.n);
      const auto column = static_cast<std::uint32_t>(i % problem_.n);
      double sum = 0;
      double scale = 8;
      for (int r = 0; r < comm_.size(); ++r) {
        const double part = element(problem_, r, r, row, column);
        sum += part;
        scale += std::abs(part);
      }
      expect_near(got[i], finished(sum, problem_.n, row, column), scale,
                  what + ", row " + std::to_string(row) + ", column " + std::to_string(column));
    }
  }
  /// A gathered from all ranks, each row from its owner, times this rank's B.
  void expect_gathered(const std::vector<T>& got, const gemm::tile_grid& grid, const std::string& what) const {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto row = static_cast<std::uint32_t>(i / problem_.n);
      const auto column = static_cast<std::uint32_t>(i % problem_.n);
      const int owner = static_cast<int>(row / grid.shard_rows());
      const double sum = element(problem_, owner, comm_.rank(), row, column);
      expect_near(got[i], finished(sum, problem_.n, row, column), 8 + std::abs(sum),
                  what + ", row " + std::to_string(row) + ", column " + std::to_string(column));
    }
  }

 private:
  static std::vector<operand> of_b(int rank, const gemm::problem_shape& problem) {
    const auto rows = matrix<operand>(rank, 1, std::uint64_t{problem.k} * problem.n);
    if (!Way::transposed) return rows;
    std::vector<operand> columns;
    for (std::uint64_t i = 0; i < rows.size(); ++i) columns.push_back(rows[i % problem.k * problem.n + i / problem.k]);
    return columns;
  }

  host::communicator& comm_;
  gemm::problem_shape problem_;
  test::device_array<operand> a_;
  test::device_array<operand> b_;
  test::device_array<T> bias_;
  test::device_array<T> residual_;
};

/// The launches of a case: on 2 to 4 clusters, so that blocks find the epochs of others, with and without blocks that
/// only communicate.
template <class Way>
struct launches {
  static constexpr unsigned max_blocks = 4 * Way::cluster;
  static constexpr unsigned barriers = max_blocks * Way::groups;

  template <class Launch>
  static void run(const Launch& launch) {
    for (unsigned i = 0; i < 3; ++i) {
      const launch_config config{.grid = max_blocks - i * Way::cluster,
                                 .block = Way::threads,
                                 .shared_bytes = Way::shared_bytes,
                                 .stream = cudaStreamPerThread,
                                 .cluster = Way::cluster};
      launch(config, i % 2 * Way::cluster);
    }
  }
};

template <class Way, class T>
void reduce_scatter_case(host::communicator& comm, const gemm::problem_shape& problem) {
  const auto grid = gemm::tile_grid::by_rows(problem, Way::shape, comm.size(), 2);
  requirements needs = comm.requirements().lsa_barriers(launches<Way>::barriers);
  const auto partials = needs.add(gemm::partial_tiles<T>{comm.lsa(), grid, launches<Way>::max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<Way, T> with(comm, problem);
  const std::uint32_t first = grid.first_row(comm.rank());
  const test::device_array<T> shard(std::uint64_t{grid.first_row(comm.rank() + 1) - first} * problem.n, 0xff);
  const auto product = Way::make(problem, with.a(), with.b());
  const gemm::to_matrix<T, finish<T>> output{shard.get(), problem.n, first, with.epilogue(first)};
  launches<Way>::run([&](const launch_config& config, unsigned communicating) {
    const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::next, 1 + communicating / Way::cluster,
                                 Way::cluster};
    launch(run_reduce_scatter<T, typename Way::product>, config, device_comm.get(), partials, order, product, output,
           communicating);
    test::finish("gemm::reduce_scatter");
    device_comm.check();
    with.expect_sums(shard.read(), first, "reduce-scatter");
  });
}

template <class Way, class T>
void all_reduce_case(host::communicator& comm, const gemm::problem_shape& problem, bool one_shot) {
  const auto grid = gemm::tile_grid::by_tiles(problem, Way::shape, one_shot ? 1 : comm.size(), 2);
  requirements needs = comm.requirements().lsa_barriers(launches<Way>::barriers);
  const auto partials = needs.add(gemm::partial_tiles<T>{comm.lsa(), grid, launches<Way>::max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<Way, T> with(comm, problem);
  const std::uint64_t count = std::uint64_t{problem.m} * problem.n;
  const auto window = comm.allocate(count * sizeof(T), "output");
  const auto product = Way::make(problem, with.a(), with.b());
  const gemm::to_matrices<T, finish<T>> output{window.pointer<T>(), problem.n, with.epilogue()};
  std::vector<T> got(count);
  launches<Way>::run([&](const launch_config& config, unsigned communicating) {
    const gemm::tile_order order{grid, one_shot ? 0 : comm.rank(), gemm::first_owner::next,
                                 1 + communicating / Way::cluster, Way::cluster};
    launch(one_shot ? run_one_shot<T, typename Way::product> : run_two_shot<T, typename Way::product>, config,
           device_comm.get(), partials, order, product, output, communicating);
    check_cuda(cudaMemcpyAsync(got.data(), window.pointer<T>().local(), count * sizeof(T), cudaMemcpyDefault,
                               cudaStreamPerThread),
               "cudaMemcpyAsync");
    test::finish("gemm::all_reduce");
    device_comm.check();
    with.expect_sums(got, 0, one_shot ? "one-shot all-reduce" : "two-shot all-reduce");
  });
  comm.barrier();  // peers write to the window until their launches end
}

template <class Way, class T>
void all_gather_case(host::communicator& comm, const gemm::problem_shape& problem, std::uint32_t chunk_rows,
                     std::uint32_t chunk_k) {
  using operand = typename Way::operand;
  const auto grid = gemm::tile_grid::by_rows(problem, Way::shape, comm.size(), 2);
  const gemm::operand_chunks chunks{grid, chunk_rows, chunk_k};
  requirements needs = comm.requirements().lsa_barriers(launches<Way>::barriers);
  const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), launches<Way>::max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<Way, T> with(comm, problem);
  const std::uint64_t elements = std::uint64_t{problem.m} * problem.k;
  const auto window = comm.allocate(elements * sizeof(operand), "operand");
  operand* const gathered = window.pointer<operand>().local();
  const std::uint64_t begin = std::uint64_t{grid.first_row(comm.rank())} * problem.k;
  const std::uint64_t end = std::uint64_t{grid.first_row(comm.rank() + 1)} * problem.k;
  const std::vector<operand> mine = matrix<operand>(comm.rank(), 0, elements);
  const test::device_array<T> c(std::uint64_t{problem.m} * problem.n, 0xff);
  const auto product = Way::make(problem, gathered, with.b());
  const gemm::to_matrix<T, finish<T>> output{c.get(), problem.n, 0, with.epilogue()};
  const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::self, 1, Way::cluster};
  launches<Way>::run([&](const launch_config& config, unsigned communicating) {
    // Only this rank's shard: peers may write the rest once they see that the launch has begun.
    check_cuda(cudaMemcpyAsync(gathered + begin, mine.data() + begin, (end - begin) * sizeof(operand),
                               cudaMemcpyDefault, cudaStreamPerThread),
               "cudaMemcpyAsync");
    launch(run_all_gather<T, operand, typename Way::product>, config, device_comm.get(), flags, chunks,
           window.pointer<operand>(), order, product, output, communicating + Way::cluster);
    test::finish("gemm::all_gather");
    device_comm.check();
    with.expect_gathered(c.read(), grid, "all-gather");
  });
  comm.barrier();
}

}  // namespace product_test
