/// Products with a collective inside, around the reference product, against one in double precision.
#include <devcomm/devcomm.cuh>

#include "gemm/product_cases.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace devcomm;
using namespace product_test;

extern __shared__ __align__(16) unsigned char gemm_test_rows[];

namespace {

constexpr unsigned threads = 64;
constexpr unsigned max_blocks = 4;
constexpr gemm::tile_shape shape{16, 12, 8};

template <class T>
using reference = gemm::reference_product<gemm::rows_of<T>, gemm::rows_of<T>>;

template <class T>
struct plain_loops {
  using product = reference<T>;
  using operand = T;
  static constexpr bool transposed = false;
  static constexpr gemm::tile_shape shape = ::shape;
  static constexpr unsigned threads = ::threads, groups = 1, cluster = 1, shared_bytes = 0;

  static product make(const gemm::problem_shape& problem, const T* a, const T* b) {
    return {{a, problem.k}, {b, problem.n}, problem.k, shape.k};
  }
};

constexpr gemm::problem_shape problems[] = {{48, 24, 16}, {37, 29, 21}, {5, 3, 1}, {1, 40, 9}};

template <class T>
__global__ void run_gathered(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks,
                             gemm::tile_order order, reference<T> product, gemm::to_matrix<T, finish<T>> output) {
  gemm::all_gather(comm, flags, chunks, order, product, output);
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
      if (grid.members() == 1) {
        product(block{}, t, open, gemm::to_publisher_of_all{publisher, t});
        publisher.end_on_all(t);
      } else {
        product(block{}, t, open, gemm::to_publisher{publisher, t, t.owner});
        publisher.end(t);
      }
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

/// By copy engines; the shard changes between launches, and with `rounds` in one graph.
template <class T>
void copied_gather_case(host::communicator& comm, const gemm::problem_shape& problem, std::uint32_t chunk_rows,
                        std::uint32_t chunk_k) {
  using with_loops = plain_loops<T>;
  const auto grid = gemm::tile_grid::by_rows(problem, shape, comm.size(), 2);
  const gemm::operand_chunks chunks{grid, chunk_rows, chunk_k};
  requirements needs = comm.requirements();
  const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), max_blocks});
  const auto handle = needs.add(gemm::operand_copy_signals{comm.lsa()});
  const auto device_comm = comm.create_device_comm(needs);
  gemm::operand_copies copies{device_comm.get(), handle, flags, chunks};
  const bench<with_loops, T> with(comm, problem);
  const std::uint64_t elements = std::uint64_t{problem.m} * problem.k;
  const auto window = comm.allocate(elements * sizeof(T), "operand");
  T* const operand = window.pointer<T>().local();
  const std::uint64_t begin = std::uint64_t{grid.first_row(comm.rank())} * problem.k;
  const std::uint64_t end = std::uint64_t{grid.first_row(comm.rank() + 1)} * problem.k;
  const test::device_array<T> mine(matrix<T>(comm.rank(), 0, elements)), zeros(elements);
  const test::device_array<T> c(std::uint64_t{problem.m} * problem.n, 0xff);
  const auto product = with_loops::make(problem, operand, with.b());
  const gemm::to_matrix<T, finish<T>> output{c.get(), problem.n, 0, with.epilogue()};
  const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::self};
  launches<with_loops>::run([&](launch_config config, unsigned) {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    config.stream = stream;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    const auto set_shard = [&](const T* from) {
      check_cuda(cudaMemcpyAsync(operand + begin, from + begin, (end - begin) * sizeof(T), cudaMemcpyDefault, stream),
                 "cudaMemcpyAsync");
    };
    for (const T* const shard : {zeros.get(), mine.get()}) {  // the first launch's copies may still read the shard
      set_shard(shard);
      copies.begin(window.pointer<T>(), stream);
      launch(run_gathered<T>, config, device_comm.get(), flags, chunks, order, product, output);
      copies.end(stream);
    }
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
    for (int times = 0; times < 2; ++times) check_cuda(cudaGraphLaunch(ready, stream), "cudaGraphLaunch");
    check_cuda(cudaStreamSynchronize(stream), "a product whose operand is copied");
    device_comm.check();
    with.expect_gathered(c.read(), grid, "all-gather by copy engines");
    check_cuda(cudaGraphExecDestroy(ready), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  });
  comm.barrier();
}

template <class T>
void all_gather_in_place_case(host::communicator& comm, const gemm::problem_shape& problem) {
  const auto grid = gemm::tile_grid::by_rows(problem, shape, comm.size(), 2);
  requirements needs = comm.requirements().lsa_barriers(max_blocks);
  const auto flags = needs.add(gemm::flags{comm.lsa(), static_cast<std::uint32_t>(comm.size()), max_blocks});
  const auto device_comm = comm.create_device_comm(needs);
  const bench<plain_loops<T>, T> with(comm, problem);
  const std::uint64_t shard = std::uint64_t{grid.shard_rows()} * problem.k;
  const auto window = comm.allocate(shard * sizeof(T), "shard");
  const std::vector<T> all = matrix<T>(comm.rank(), 0, std::uint64_t{problem.m} * problem.k);
  const std::uint64_t begin = std::uint64_t{grid.first_row(comm.rank())} * problem.k;
  const std::uint64_t end = std::uint64_t{grid.first_row(comm.rank() + 1)} * problem.k;
  const test::device_array<T> c(std::uint64_t{problem.m} * problem.n, 0xff);
  const gemm::reference_product<gemm::rows_of_peers<T>, gemm::rows_of<T>> product{
      {window.pointer<T>(), problem.k, grid.shard_rows()}, {with.b(), problem.n}, problem.k, shape.k};
  const gemm::to_matrix<T, finish<T>> output{c.get(), problem.n, 0, with.epilogue()};
  const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::self};
  launches<plain_loops<T>>::run([&](const launch_config& config, unsigned) {
    check_cuda(cudaMemcpyAsync(window.pointer<T>().local(), all.data() + begin, (end - begin) * sizeof(T),
                               cudaMemcpyDefault, cudaStreamPerThread),
               "cudaMemcpyAsync");
    launch(run_all_gather_in_place<T>, config, device_comm.get(), flags, order, product, output);
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
  const bench<plain_loops<T>, T> with(comm, problem);
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
         device_comm.get(), partials, order, plain_loops<T>::make(problem, with.a(), with.b()), residual.get(),
         weight.get(), normed.get());
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
      for (const auto& problem : problems) reduce_scatter_case<plain_loops<float>, float>(comm, problem);
      reduce_scatter_case<plain_loops<__nv_bfloat16>, __nv_bfloat16>(comm, problems[1]);
    });
  }
}

TEST_CASE("a product's all-reduce gives all ranks the sum, in one shot and in two") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const bool one_shot : {true, false}) {
        for (const auto& problem : problems) all_reduce_case<plain_loops<float>, float>(comm, problem, one_shot);
        all_reduce_case<plain_loops<__nv_bfloat16>, __nv_bfloat16>(comm, problems[1], one_shot);
      }
    });
  }
}

TEST_CASE("a product with a gathered operand waits for each chunk that it loads") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const auto& problem : problems) {
        all_gather_case<plain_loops<float>, float>(comm, problem, 4, 8);
        all_gather_case<plain_loops<float>, float>(comm, problem, 16, problem.k);
        all_gather_in_place_case<float>(comm, problem);
      }
      all_gather_case<plain_loops<__nv_bfloat16>, __nv_bfloat16>(comm, problems[1], 7, 16);
      all_gather_in_place_case<__nv_bfloat16>(comm, problems[1]);
    });
  }
}

TEST_CASE("a product whose operand copy engines gather waits for each chunk that it loads") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      for (const auto& problem : problems) copied_gather_case<float>(comm, problem, 4, 8);
      copied_gather_case<__nv_bfloat16>(comm, problems[1], 7, 16);
    });
  }
}
