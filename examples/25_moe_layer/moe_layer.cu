/// A mixture of experts over ranks: each rank has some of the experts, and each token goes to two of them. How many go
/// where is known on the device alone. Ranks may be on several hosts: DEVCOMM_LSA_SIZE=2 makes a host of each two.
///
///     route       two experts for each token, and their weights                    a kernel of this rank
///     dispatch    tokens to the ranks of their experts, rows by expert              moe::dispatch_send, _receive
///     experts     each its rows; here a product in plain loops                      a kernel of this rank
///     combine     weighted sums back to the tokens' ranks                           moe::combine_send, _receive
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/captured_graph.hpp"
#include "common/check.hpp"

using namespace devcomm;

constexpr unsigned blocks = 3;
constexpr unsigned threads = 64;
constexpr std::uint32_t top_k = 2;
constexpr std::uint32_t experts_of_rank = 3;
constexpr std::uint32_t max_tokens = 40;

/// The `k`-th expert of a token, and its weight. A real router takes the largest of what its own product gives.
__host__ __device__ std::int32_t expert_of(int rank, std::uint32_t token, std::uint32_t k, std::uint32_t experts) {
  return static_cast<std::int32_t>(
      (static_cast<std::uint32_t>(rank) * 5 + token * token + k * (1 + token % (experts - 1))) % experts);
}
__host__ __device__ float weight_of(std::uint32_t token, std::uint32_t k) { return (token + k) % 2 == 0 ? 0.5f : 2.0f; }
/// Expert `e` multiplies tokens by a matrix that moves elements by `e` and doubles them.
__host__ __device__ std::uint32_t moved(std::uint32_t column, std::uint32_t expert, std::uint32_t hidden) {
  return (column + expert) % hidden;
}

__global__ void route(int rank, std::uint32_t tokens, std::uint32_t experts, std::int32_t* chosen, float* weights) {
  for (std::uint32_t i = threadIdx.x; i < tokens * top_k; i += blockDim.x) {
    chosen[i] = expert_of(rank, i / top_k, i % top_k, experts);
    weights[i] = weight_of(i / top_k, i % top_k);
  }
}

template <class T>
__global__ void dispatch(device_comm comm, moe::over_hosts<T> exchange, moe::routing routed, moe::token_rows<T> tokens,
                         moe::expert_rows<T> to) {
  moe::dispatch_send(comm, exchange, routed, tokens);
  static_cast<void>(moe::dispatch_receive(comm, exchange, tokens, to));
}

/// `results = rows * weights[e]` for the rows of each expert; a block for each expert.
template <class T>
__global__ void run_experts(moe::expert_rows<T> to, const T* weights, std::uint32_t hidden, T* results) {
  const std::uint32_t e = blockIdx.x;
  const T* const matrix = weights + std::uint64_t{e} * hidden * hidden;
  for (std::uint32_t i = threadIdx.x; i < to.counts[e] * hidden; i += blockDim.x) {
    const std::uint64_t row = to.offsets[e] + i / hidden;
    float sum = 0;
    for (std::uint32_t j = 0; j < hidden; ++j)
      sum += static_cast<float>(to.rows[row * hidden + j]) * static_cast<float>(matrix[j * hidden + i % hidden]);
    results[row * hidden + i % hidden] = static_cast<T>(sum);
  }
}

template <class T>
__global__ void combine(device_comm comm, moe::over_hosts<T> exchange, moe::routing routed, const T* results,
                        T* output) {
  moe::combine_send(comm, exchange, results);
  static_cast<void>(moe::combine_receive(comm, exchange, routed, output));
}

template <class T>
void run_case(host::communicator& comm, std::uint32_t hidden) {
  const std::uint32_t experts = experts_of_rank * static_cast<std::uint32_t>(comm.size());
  const auto tokens = max_tokens - static_cast<std::uint32_t>(comm.rank() % 3) * 20;  // none, on one rank in three
  requirements needs = comm.requirements();
  moe::over_hosts<T> exchange{
      needs.add(moe::exchange<T>{comm.world(), {max_tokens, experts, top_k, hidden}, blocks, 8}), {}};
  if (comm.lsa().size < comm.size())  // else there may be no network
    exchange.contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2});
  const host::device_communicator device_comm = comm.create_device_comm(needs);
  const host::symmetric_memory window = comm.allocate(std::uint64_t{max_tokens} * hidden * sizeof(T));
  const auto capacity = static_cast<std::uint32_t>(exchange.exchange.max_rows()) + experts_of_rank * 4;
  const std::uint64_t in_rows = std::uint64_t{capacity} * hidden, in_tokens = std::uint64_t{max_tokens} * hidden;
  const std::uint64_t in_weights = std::uint64_t{experts_of_rank} * hidden * hidden;
  const auto memory = example::device_array((2 * in_rows + in_tokens + in_weights) * sizeof(T));
  T* const rows = reinterpret_cast<T*>(memory.get());
  T* const results = rows + in_rows;
  T* const output = results + in_rows;
  T* const weights = output + in_tokens;
  const auto numbers = example::device_array((max_tokens * top_k * 2 + experts_of_rank * 2 + 1) * 4);
  auto* const chosen = reinterpret_cast<std::int32_t*>(numbers.get());
  auto* const token_weights = reinterpret_cast<float*>(chosen + max_tokens * top_k);
  auto* const offsets = reinterpret_cast<std::uint32_t*>(token_weights + max_tokens * top_k);
  const moe::expert_rows<T> to{rows, capacity, 4, offsets, offsets + experts_of_rank + 1};
  const moe::routing routed{chosen, token_weights, tokens};
  example::fill(weights, in_weights, [&](std::uint64_t i) {
    const auto e =
        static_cast<std::uint32_t>(comm.rank()) * experts_of_rank + static_cast<std::uint32_t>(i / hidden / hidden);
    return i / hidden % hidden == moved(static_cast<std::uint32_t>(i % hidden), e, hidden) ? 2.0f : 0.0f;
  });
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  {
    const example::captured_graph graph(stream, [&](cudaStream_t on) {
      const launch_config all{.grid = blocks, .block = threads, .stream = on};
      launch(route, {.block = threads, .stream = on}, comm.rank(), tokens, experts, chosen, token_weights);
      launch(dispatch<T>, all, device_comm.get(), exchange, routed, moe::token_rows<T>{window.pointer<T>()}, to);
      launch(run_experts<T>, {.grid = experts_of_rank, .block = threads, .stream = on}, to,
             static_cast<const T*>(weights), hidden, results);
      launch(combine<T>, all, device_comm.get(), exchange, routed, static_cast<const T*>(results), output);
    });
    for (int round = 0; round < 3; ++round) {
      example::fill(window.pointer<T>().local(), std::uint64_t{tokens} * hidden,
                    [&](std::uint64_t i) { return example::value(comm.rank(), i, round); });
      graph.replay();
      check_cuda(cudaStreamSynchronize(stream), "an MoE layer");
      device_comm.check();
      example::expect(output, std::uint64_t{tokens} * hidden, example::type_name<T>(), [&](std::uint64_t i) {
        const auto token = static_cast<std::uint32_t>(i / hidden), column = static_cast<std::uint32_t>(i % hidden);
        float sum = 0;
        for (std::uint32_t k = 0; k < top_k; ++k) {
          const auto e = static_cast<std::uint32_t>(expert_of(comm.rank(), token, k, experts));
          sum += weight_of(token, k) * 2 *
                 example::value(comm.rank(), std::uint64_t{token} * hidden + moved(column, e, hidden), round);
        }
        return sum;
      });
    }
  }
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  comm.barrier();  // peers may still read from the window
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      run_case<float>(comm, 16);
      run_case<float>(comm, 36);
      run_case<__nv_bfloat16>(comm, 24);
      if (comm.rank() == 0)
        std::printf("moe_layer: 3 cases correct on %d ranks (%s)\n", comm.size(),
                    comm.properties().device_name.c_str());
    });
  });
}
