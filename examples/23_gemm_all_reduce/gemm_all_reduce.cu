/// A matrix product and its all-reduce in one kernel, as in the second half of a tensor-parallel MLP: each rank has
/// some columns of A and rows of B, and all ranks get the sum of their products, with bias and residual. Each tile
/// leaves as soon as it is computed. The main loop, `gemm::reference_product`, is what you would replace.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/captured_graph.hpp"
#include "common/check.hpp"

using namespace devcomm;

constexpr gemm::tile_shape shape{16, 32, 16};

template <class T>
using main_loop = gemm::reference_product<gemm::rows_of<T>, gemm::rows_of<T>>;
template <class T>
using finish = gemm::epilogue<T>;

/// The tiles of one rank's block: computed, sent to their owners, summed there, and stored to all ranks.
template <class T>
__global__ void gemm_all_reduce(device_comm comm, gemm::partial_handle<T> partials, gemm::tile_order order,
                                main_loop<T> multiply, gemm::to_matrices<T, finish<T>> output) {
  const gemm::session session{block{}, comm, partials.flags};
  const gemm::tile_grid& grid = order.grid();
  const int rank = comm.lsa_rank();
  {
    gemm::publisher publisher{block{}, comm, session, partials, grid};
    gemm::no_gate open;  // operands are there before the launch
    for (std::uint32_t i = blockIdx.x; i < order.size(); i += gridDim.x) {
      const gemm::tile t = order[i];
      multiply(block{}, t, open, gemm::to_publisher{publisher, t, t.owner});
      publisher.end(t);
    }
  }
  gemm::reducer reducer{block{}, comm, session, partials};
  for (std::uint32_t i = blockIdx.x; i < grid.tiles_of(rank); i += gridDim.x) {
    const gemm::tile t = grid.at(rank, i);
    if (!reducer.reduce(t, output)) return;
    reducer.set_result(t);
  }
  reducer.wait_for_results(grid, blockIdx.x, gridDim.x);
}

template <class T>
void run_case(host::communicator& comm, const gemm::problem_shape& problem) {
  constexpr unsigned blocks = 4;
  const std::size_t in_a = std::size_t{problem.m} * problem.k;
  const std::size_t in_b = std::size_t{problem.k} * problem.n;
  const std::size_t in_c = std::size_t{problem.m} * problem.n;
  const auto grid = gemm::tile_grid::by_tiles(problem, shape, comm.size());
  requirements needs = comm.requirements().lsa_barriers(blocks).with(lsa::whole_world{});
  const auto partials = needs.add(gemm::partial_tiles<T>{comm.lsa(), grid, blocks});
  const host::device_communicator device_comm = comm.create_device_comm(needs);
  const host::symmetric_memory window = comm.allocate(in_c * sizeof(T));
  const auto memory = example::device_array((in_a + in_b + problem.n + in_c) * sizeof(T));
  T* const a = reinterpret_cast<T*>(memory.get());
  T* const b = a + in_a;
  T* const bias = b + in_b;
  T* const residual = bias + problem.n;
  example::fill(b, in_b, [&](std::uint64_t i) { return i / problem.n == i % problem.n % problem.k ? 1.0f : 0.0f; });
  example::fill(bias, problem.n, [](std::uint64_t i) { return example::value(100, i); });
  example::fill(residual, in_c, [](std::uint64_t i) { return example::value(101, i); });

  const sym_ptr<T> c = window.pointer<T>();
  const gemm::tile_order order{grid, comm.rank(), gemm::first_owner::next, 2};
  const gemm::to_matrices<T, finish<T>> output{c, problem.n, {bias, residual, problem.n}};
  const main_loop<T> multiply{{a, problem.k}, {b, problem.n}, problem.k, shape.k};
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  {
    const example::captured_graph graph(stream, [&](cudaStream_t to) {
      launch(gemm_all_reduce<T>, {.grid = blocks, .block = 64, .stream = to}, device_comm.get(), partials, order,
             multiply, output);
    });
    for (int round = 0; round < 3; ++round) {
      example::fill(a, in_a, [&](std::uint64_t i) { return example::value(comm.rank(), i, round); });
      graph.replay();
      check_cuda(cudaStreamSynchronize(stream), "gemm_all_reduce");
      device_comm.check();
      // B selects columns of A.
      example::expect(c.local(), in_c, example::type_name<T>(), [&](std::uint64_t i) {
        const std::uint64_t from = i / problem.n * problem.k + i % problem.n % problem.k;
        return example::sum_of_values(comm.size(), from, round) + example::value(100, i % problem.n) +
               example::value(101, i);
      });
    }
  }
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  comm.barrier();  // peers may still write to the window
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      for (const gemm::problem_shape& problem : {gemm::problem_shape{64, 96, 32}, {33, 50, 20}, {1, 8, 16}}) {
        run_case<float>(comm, problem);
        run_case<__nv_bfloat16>(comm, problem);
      }
      if (comm.rank() == 0)
        std::printf("gemm_all_reduce: 6 cases correct on %d ranks (%s)\n", comm.size(),
                    comm.properties().device_name.c_str());
    });
  });
}
