/// A tensor-parallel MLP with its activations sharded by rows between layers, in two kernels: `y = relu(x W1) W2 + x`.
///
///     up      gathers x while it multiplies by this rank's columns of W1; ReLU            gemm::all_gather
///     down    multiplies by this rank's rows of W2; each rank gets its rows of the sum    gemm::reduce_scatter
///
/// The main loop, `gemm::reference_product`, is what you would replace, as docs/fusion.md says.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/captured_graph.hpp"
#include "common/check.hpp"

using namespace devcomm;

constexpr gemm::tile_shape shape{16, 16, 8};
constexpr unsigned blocks = 4;

template <class T>
using main_loop = gemm::reference_product<gemm::rows_of<T>, gemm::rows_of<T>>;
template <class T>
using with_relu = gemm::to_matrix<T, gemm::epilogue<T, gemm::relu>>;
template <class T>
using with_residual = gemm::to_matrix<T, gemm::epilogue<T>>;

template <class T>
__global__ void up(device_comm comm, gemm::flag_handle flags, gemm::operand_chunks chunks, sym_ptr<T> x,
                   gemm::tile_order order, main_loop<T> multiply, with_relu<T> hidden) {
  gemm::all_gather(comm, flags, chunks, x, order, multiply, hidden, 1);
}

template <class T>
__global__ void down(device_comm comm, gemm::partial_handle<T> partials, gemm::tile_order order, main_loop<T> multiply,
                     with_residual<T> y) {
  gemm::reduce_scatter(comm, partials, order, multiply, y);
}

/// `tokens` rows of `width`; `wide` columns of the hidden layer on each rank.
template <class T>
void run_case(host::communicator& comm, std::uint32_t tokens, std::uint32_t width, std::uint32_t wide) {
  const gemm::problem_shape up_shape{tokens, wide, width}, down_shape{tokens, width, wide};
  const auto up_grid = gemm::tile_grid::by_rows(up_shape, shape, comm.size());
  const auto down_grid = gemm::tile_grid::by_rows(down_shape, shape, comm.size());
  const gemm::operand_chunks chunks{up_grid, 8, width};
  requirements needs = comm.requirements().lsa_barriers(blocks).with(lsa::whole_world{});
  const auto flags = needs.add(gemm::flags{comm.lsa(), chunks.count(), blocks});
  const auto partials = needs.add(gemm::partial_tiles<T>{comm.lsa(), down_grid, blocks});
  const host::device_communicator device_comm = comm.create_device_comm(needs);

  const std::size_t in_x = std::size_t{tokens} * width, in_weights = std::size_t{width} * wide;
  const host::symmetric_memory window = comm.allocate(in_x * sizeof(T));
  const sym_ptr<T> x = window.pointer<T>();
  const auto memory = example::device_array((2 * in_weights + std::size_t{tokens} * wide + in_x) * sizeof(T));
  T* const w1 = reinterpret_cast<T*>(memory.get());
  T* const w2 = w1 + in_weights;
  T* const hidden = w2 + in_weights;
  T* const y = hidden + std::size_t{tokens} * wide;
  const std::uint32_t first = up_grid.first_row(comm.rank()), end = up_grid.first_row(comm.rank() + 1);
  T* const my_x = x.local() + std::size_t{first} * width;
  const std::size_t mine = std::size_t{end - first} * width;

  // Hidden column c of each rank is one of x, and goes back to the same.
  example::fill(w1, in_weights, [&](std::uint64_t i) { return i / wide == i % wide % width ? 1.0f : 0.0f; });
  example::fill(w2, in_weights, [&](std::uint64_t i) { return i / width % width == i % width ? 1.0f : 0.0f; });

  const gemm::tile_order own_first{up_grid, comm.rank(), gemm::first_owner::self};
  const gemm::tile_order own_last{down_grid, comm.rank(), gemm::first_owner::next};
  const main_loop<T> times_w1{{x.local(), width}, {w1, wide}, width, shape.k};
  const main_loop<T> times_w2{{hidden, wide}, {w2, width}, wide, shape.k};
  const with_relu<T> to_hidden{hidden, wide};
  const with_residual<T> to_y{y, width, first, {nullptr, my_x, width, first}};
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  {
    const example::captured_graph graph(stream, [&](cudaStream_t to) {
      const launch_config config{.grid = blocks, .block = 64, .stream = to};
      launch(up<T>, config, device_comm.get(), flags, chunks, x, own_first, times_w1, to_hidden);
      launch(down<T>, config, device_comm.get(), partials, own_last, times_w2, to_y);
    });
    for (int round = 0; round < 3; ++round) {
      example::fill(my_x, mine, [&](std::uint64_t i) { return example::value(comm.rank(), i, round); });
      graph.replay();
      check_cuda(cudaStreamSynchronize(stream), "up and down");
      device_comm.check();
      example::expect(y, mine, example::type_name<T>(), [&](std::uint64_t i) {
        const float x_value = example::value(comm.rank(), i, round);
        const auto copies =
            static_cast<float>((wide - i % width + width - 1) / width * static_cast<unsigned>(comm.size()));
        return (x_value > 0 ? x_value * copies : 0) + x_value;
      });
    }
  }
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  comm.barrier();  // peers may still write to the window
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      run_case<float>(comm, 64, 32, 48);
      run_case<float>(comm, 13, 20, 24);
      run_case<__nv_bfloat16>(comm, 40, 16, 16);
      if (comm.rank() == 0)
        std::printf("tensor_parallel_mlp: 3 cases correct on %d ranks (%s)\n", comm.size(),
                    comm.properties().device_name.c_str());
    });
  });
}
