/// Products with a collective inside, around the reference product, against one in double precision.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstring>
#include <string>

using namespace devcomm;

extern __shared__ __align__(16) unsigned char gemm_test_rows[];

namespace {

constexpr unsigned threads = 64;
constexpr unsigned max_blocks = 4;
constexpr gemm::tile_shape shape{16, 12, 8};
constexpr gemm::problem_shape problems[] = {{48, 24, 16}, {37, 29, 21}, {5, 3, 1}, {1, 40, 9}};

/// Element `i` of matrix `which` of a rank: small halves, so that sums of some of them are exact in every type.
float value(int rank, int which, std::uint64_t i) {
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
double element(const gemm::problem_shape& problem, int a_rank, int b_rank, std::uint32_t row, std::uint32_t column) {
  double sum = 0;
  for (std::uint32_t j = 0; j < problem.k; ++j)
    sum += static_cast<double>(value(a_rank, 0, std::uint64_t{row} * problem.k + j)) *
           static_cast<double>(value(b_rank, 1, std::uint64_t{j} * problem.n + column));
  return sum;
}

double rounding_of(float) { return 1e-6; }
double rounding_of(__nv_bfloat16) { return 1.0 / 128; }

template <class T>
void expect_near(T got, double expected, double scale, const std::string& what) {
  test::require(std::abs(static_cast<double>(static_cast<float>(got)) - expected) <= rounding_of(T{}) * scale, [&] {
    return what + ": got " + std::to_string(static_cast<float>(got)) + " instead of " + std::to_string(expected);
  });
}

enum class way { all_blocks, own_blocks };

template <class T>
using reference = gemm::reference_product<gemm::rows_of<T>, gemm::rows_of<T>>;

/// Bias, ReLU and residual.
template <class T>
using finish = gemm::epilogue<T, gemm::relu>;

template <class T>
__global__ void run_reduce_scatter(device_comm comm, gemm::partial_handle<T> partials, gemm::tile_order order,
                                   reference<T> product, gemm::to_matrix<T, finish<T>> output, unsigned communicating) {
  gemm::reduce_scatter(comm, partials, order, product, output, communicating);
}

template <class T>
__global__ void run_all_reduce(device_comm comm, gemm::partial_handle<T> partials, gemm::tile_order order,
                               reference<T> product, gemm::to_matrices<T, finish<T>> output, unsigned communicating) {
  gemm::all_reduce(comm, partials, order, product, output, communicating);
}

template <class T>
__global__ void run_all_gather(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks,
                               sym_ptr<T> operand, gemm::tile_order order, reference<T> product,
                               gemm::to_matrix<T, finish<T>> output, unsigned communicating) {
  gemm::all_gather(comm, flags, chunks, operand, order, product, output, communicating);
}

template <class T>
__global__ void run_all_gather_in_place(device_comm comm, gemm::flag_handle flags, gemm::tile_order order,
                                        gemm::reference_product<gemm::rows_of_peers<T>, gemm::rows_of<T>> product,
                                        gemm::to_matrix<T, finish<T>> output) {
  gemm::all_gather_in_place(comm, flags, order, product, output);
}

/// Sums, residual and RMSNorm, of the rows that a rank owns; two rows at once.
template <class T>
__global__ void sum_and_normalize(device_comm comm, gemm::partial_handle<T> partials, gemm::tile_order order,
                                  reference<T> product, T* residual, const T* weight, T* normed) {
  const collective::norm_rows<T> norm{gemm_test_rows, 2, order.grid().problem().n};
  const gemm::session session{block{}, comm, partials.flags};
  const gemm::tile_grid& grid = order.grid();
  const int owner = grid.members() == 1 ? 0 : comm.lsa_rank();
  {
    gemm::publisher publisher{block{}, comm, session, partials, grid};
    gemm::no_gate open;
    for (std::uint32_t i = blockIdx.x; i < order.size(); i += gridDim.x) {
      const gemm::tile t = order[i];
      const bool to_all = grid.members() == 1;
      using output = gemm::to_publisher<gemm::publisher<T, block>>;
      product(block{}, t, open, output{publisher, t, to_all ? output::all_members : t.owner});
      if (to_all) publisher.end_on_all(t);
      if (!to_all) publisher.end(t);
    }
  }
  gemm::reducer reducer{block{}, comm, session, partials};
  const collective::to_rows<T> output{normed, grid.problem().n};
  for (std::uint32_t row = 2 * blockIdx.x; row < grid.rows_of(owner); row += 2 * gridDim.x) {
    const std::uint32_t rows = min(2u, grid.rows_of(owner) - row);
    if (!reducer.reduce_rows(grid, row, rows, norm.add_to(residual, row))) return;
    block{}.sync();
    for (std::uint32_t i = 0; i < rows; ++i) norm.normalize(block{}, i, weight, 1e-5f, output, row + i);
    block{}.sync();
  }
}

/// What the sums become: bias and residual are those of rank 0 on every rank.
double finished(double sum, std::uint32_t n, std::uint32_t row, std::uint32_t column) {
  const double biased = sum + static_cast<double>(value(0, 2, column));
  return (biased < 0 ? 0 : biased) + static_cast<double>(value(0, 3, std::uint64_t{row} * n + column));
}

/// Matrices of a rank, and what is expected of its results.
template <class T>
class bench {
 public:
  bench(host::communicator& comm, const gemm::problem_shape& problem)
      : comm_(comm),
        problem_(problem),
        a_(matrix<T>(comm.rank(), 0, std::uint64_t{problem.m} * problem.k)),
        b_(matrix<T>(comm.rank(), 1, std::uint64_t{problem.k} * problem.n)),
        bias_(matrix<T>(0, 2, problem.n)),
        residual_(matrix<T>(0, 3, std::uint64_t{problem.m} * problem.n)) {}

  [[nodiscard]] reference<T> product() const {
    return {{a_.get(), problem_.k}, {b_.get(), problem_.n}, problem_.k, shape.k};
  }
  [[nodiscard]] gemm::rows_of<T> b() const { return {b_.get(), problem_.n}; }
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
  host::communicator& comm_;
  gemm::problem_shape problem_;
  test::device_array<T> a_;
  test::device_array<T> b_;
  test::device_array<T> bias_;
  test::device_array<T> residual_;
};

constexpr int launches = 3;  // each with another grid, so that blocks find the epochs of others

/// Launches `kernel` a few times, on grids of different sizes, with 0 or 1 communication blocks.
template <class Launch>
void repeat(const Launch& launch) {
  for (int i = 0; i < launches; ++i) launch(max_blocks - static_cast<unsigned>(i) % 3, static_cast<unsigned>(i) % 2);
}

template <class T>
void reduce_scatter_case(host::communicator& comm, const gemm::problem_shape& problem) {
  const auto grid = gemm::tile_grid::by_rows(problem, shape, comm.size(), 2);
  requirements needs = comm.requirements().lsa_barriers(max_blocks);
  const auto partials = needs.add(gemm::partial_tiles<T>{comm.lsa(), grid, max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<T> with(comm, problem);
  const std::uint32_t first = grid.first_row(comm.rank());
  const test::device_array<T> shard(std::uint64_t{grid.first_row(comm.rank() + 1) - first} * problem.n, 0xff);
  const gemm::to_matrix<T, finish<T>> output{shard.get(), problem.n, first, with.epilogue(first)};
  repeat([&](unsigned blocks, unsigned communicating) {
    const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::next, 1 + communicating};
    launch(run_reduce_scatter<T>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
           partials, order, with.product(), output, communicating);
    test::finish("gemm::reduce_scatter");
    device_comm.check();
    with.expect_sums(shard.read(), first, "reduce-scatter");
  });
}

template <class T>
void all_reduce_case(host::communicator& comm, const gemm::problem_shape& problem, bool one_shot) {
  const auto grid = gemm::tile_grid::by_tiles(problem, shape, one_shot ? 1 : comm.size(), 2);
  requirements needs = comm.requirements().lsa_barriers(max_blocks);
  const auto partials = needs.add(gemm::partial_tiles<T>{comm.lsa(), grid, max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<T> with(comm, problem);
  const std::uint64_t count = std::uint64_t{problem.m} * problem.n;
  const auto window = comm.allocate(count * sizeof(T), "output");
  const gemm::to_matrices<T, finish<T>> output{window.pointer<T>(), problem.n, with.epilogue()};
  std::vector<T> got(count);
  repeat([&](unsigned blocks, unsigned communicating) {
    const gemm::tile_order order{grid, one_shot ? 0 : comm.rank(), gemm::first_owner::next, 1 + communicating};
    launch(run_all_reduce<T>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
           partials, order, with.product(), output, communicating);
    check_cuda(cudaMemcpyAsync(got.data(), window.pointer<T>().local(), count * sizeof(T), cudaMemcpyDefault,
                               cudaStreamPerThread),
               "cudaMemcpyAsync");
    test::finish("gemm::all_reduce");
    device_comm.check();
    with.expect_sums(got, 0, one_shot ? "one-shot all-reduce" : "two-shot all-reduce");
  });
  comm.barrier();  // peers write to the window until their launches end
}

template <class T>
void all_gather_case(host::communicator& comm, const gemm::problem_shape& problem, std::uint32_t chunk_rows,
                     std::uint32_t chunk_k) {
  const auto grid = gemm::tile_grid::by_rows(problem, shape, comm.size(), 2);
  const gemm::operand_chunks chunks{grid, chunk_rows, chunk_k};
  requirements needs = comm.requirements().lsa_barriers(max_blocks);
  const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<T> with(comm, problem);
  const std::uint64_t elements = std::uint64_t{problem.m} * problem.k;
  const auto window = comm.allocate(elements * sizeof(T), "operand");
  T* const operand = window.pointer<T>().local();
  const std::uint64_t begin = std::uint64_t{grid.first_row(comm.rank())} * problem.k;
  const std::uint64_t end = std::uint64_t{grid.first_row(comm.rank() + 1)} * problem.k;
  const std::vector<T> mine = matrix<T>(comm.rank(), 0, elements);
  const test::device_array<T> c(std::uint64_t{problem.m} * problem.n, 0xff);
  const reference<T> product{{operand, problem.k}, with.b(), problem.k, shape.k};
  const gemm::to_matrix<T, finish<T>> output{c.get(), problem.n, 0, with.epilogue()};
  const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::self};
  repeat([&](unsigned blocks, unsigned communicating) {
    // Only this rank's shard: peers may write the rest once they see that the launch has begun.
    check_cuda(cudaMemcpyAsync(operand + begin, mine.data() + begin, (end - begin) * sizeof(T), cudaMemcpyDefault,
                               cudaStreamPerThread),
               "cudaMemcpyAsync");
    launch(run_all_gather<T>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
           flags, chunks, window.pointer<T>(), order, product, output, 1 + communicating % (blocks - 1));
    test::finish("gemm::all_gather");
    device_comm.check();
    with.expect_gathered(c.read(), grid, "all-gather");
  });
  comm.barrier();
}

template <class T>
void all_gather_in_place_case(host::communicator& comm, const gemm::problem_shape& problem) {
  const auto grid = gemm::tile_grid::by_rows(problem, shape, comm.size(), 2);
  requirements needs = comm.requirements().lsa_barriers(max_blocks);
  const auto flags = needs.add(gemm::flags{comm.lsa(), static_cast<std::uint32_t>(comm.size()), max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<T> with(comm, problem);
  const std::uint64_t shard = std::uint64_t{grid.shard_rows()} * problem.k;
  const auto window = comm.allocate(shard * sizeof(T), "shard");
  const std::vector<T> all = matrix<T>(comm.rank(), 0, std::uint64_t{problem.m} * problem.k);
  const std::uint64_t begin = std::uint64_t{grid.first_row(comm.rank())} * problem.k;
  const std::uint64_t end = std::uint64_t{grid.first_row(comm.rank() + 1)} * problem.k;
  const test::device_array<T> c(std::uint64_t{problem.m} * problem.n, 0xff);
  const gemm::reference_product<gemm::rows_of_peers<T>, gemm::rows_of<T>> product{
      {window.pointer<T>(), problem.k, grid.shard_rows()}, with.b(), problem.k, shape.k};
  const gemm::to_matrix<T, finish<T>> output{c.get(), problem.n, 0, with.epilogue()};
  const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::self};
  repeat([&](unsigned blocks, unsigned) {
    check_cuda(cudaMemcpyAsync(window.pointer<T>().local(), all.data() + begin, (end - begin) * sizeof(T),
                               cudaMemcpyDefault, cudaStreamPerThread),
               "cudaMemcpyAsync");
    launch(run_all_gather_in_place<T>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
           device_comm.get(), flags, order, product, output);
    test::finish("gemm::all_gather_in_place");
    device_comm.check();
    with.expect_gathered(c.read(), grid, "all-gather in place");
  });
}

template <class T>
void norm_case(host::communicator& comm, const gemm::problem_shape& problem, bool to_all) {
  constexpr gemm::tile_shape whole_packs{16, 16, 8};
  const auto grid = to_all ? gemm::tile_grid::by_tiles(problem, whole_packs, 1, 2)
                           : gemm::tile_grid::by_rows(problem, whole_packs, comm.size(), 2);
  requirements needs = comm.requirements().lsa_barriers(max_blocks);
  const auto partials = needs.add(gemm::partial_tiles<T>{comm.lsa(), grid, max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<T> with(comm, problem);
  const int owner = to_all ? 0 : comm.rank();
  const std::uint32_t first = to_all ? 0 : grid.first_row(owner);
  const std::uint64_t count = std::uint64_t{grid.rows_of(owner)} * problem.n;
  const test::device_array<T> residual(count), normed(count), weight(matrix<T>(0, 4, problem.n));
  const gemm::tile_order order{grid, owner, gemm::first_owner::next};
  launch(sum_and_normalize<T>,
         {.grid = 3,
          .block = threads,
          .shared_bytes = collective::norm_rows<T>::bytes(2, problem.n),
          .stream = cudaStreamPerThread},
         device_comm.get(), partials, order, with.product(), residual.get(), weight.get(), normed.get());
  test::finish("sum_and_normalize");
  device_comm.check();
  const auto got = normed.read();
  for (std::uint32_t row = 0; row < grid.rows_of(owner); ++row) {
    std::vector<double> sums(problem.n);
    double squares = 0;
    for (std::uint32_t c = 0; c < problem.n; ++c) {
      for (int r = 0; r < comm.size(); ++r) sums[c] += element(problem, r, r, first + row, c);
      squares += sums[c] * sums[c];
    }
    const double scale = 1 / std::sqrt(squares / problem.n + 1e-5);
    for (std::uint32_t c = 0; c < problem.n; ++c)
      expect_near(got[std::size_t{row} * problem.n + c], sums[c] * scale * static_cast<double>(value(0, 4, c)), 8,
                  "a normalized row");
  }
}

}  // namespace

TEST_CASE("rows of a product's sums are normalized, by the owner of a shard or by all ranks") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const gemm::problem_shape& problem : {gemm::problem_shape{37, 40, 16}, {5, 16, 8}}) {
        for (const bool to_all : {false, true}) {
          norm_case<float>(comm, problem, to_all);
          norm_case<__nv_bfloat16>(comm, problem, to_all);
        }
      }
    });
  }
}

TEST_CASE("a product's reduce-scatter gives each rank its rows of the sum, for any number of ranks and any sizes") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const auto& problem : problems) reduce_scatter_case<float>(comm, problem);
      reduce_scatter_case<__nv_bfloat16>(comm, problems[1]);
    });
  }
}

TEST_CASE("a product's all-reduce gives all ranks the sum, in one shot and in two") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const bool one_shot : {true, false}) {
        for (const auto& problem : problems) all_reduce_case<float>(comm, problem, one_shot);
        all_reduce_case<__nv_bfloat16>(comm, problems[1], one_shot);
      }
    });
  }
}

TEST_CASE("a product with a gathered operand waits for each chunk that it loads") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const auto& problem : problems) {
        all_gather_case<float>(comm, problem, 4, 8);
        all_gather_case<float>(comm, problem, 16, problem.k);
        all_gather_in_place_case<float>(comm, problem);
      }
      all_gather_case<__nv_bfloat16>(comm, problems[1], 7, 16);
      all_gather_in_place_case<__nv_bfloat16>(comm, problems[1]);
    });
  }
}
