/// \file moe_kernels.cuh
/// Tokens whose rows, scales or numbers are used at the wrong time or place.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

constexpr moe::exchange_shape token_shape{8, 12, 2, 16};
constexpr std::uint32_t rows_of_rank = 32;

enum class token_slip {
  none,
  late_scales,  ///< scales are stored behind `dispatch_send`, so that experts get those of other tokens
  refilled,     ///< the next tokens are stored before the round is over
  stale_count,  ///< an expert reads how many rows it has before they are there
  overrun,      ///< the experts' rows have more capacity than memory
};

__global__ void fill_tokens(float* to, std::uint32_t count, float value) {
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = value;
}
__global__ void route_to_next(std::int32_t* experts, float* weights, int rank, int ranks) {
  for (std::uint32_t i = threadIdx.x; i < token_shape.max_tokens * token_shape.top_k; i += blockDim.x) {
    const int owner = (rank + static_cast<int>(i % 2)) % ranks;
    experts[i] = owner * static_cast<int>(token_shape.experts) / ranks;
    weights[i] = 1;
  }
}
__global__ void send_tokens(device_comm comm, moe::exchange_handle<float> exchange, moe::routing route,
                            moe::token_rows<float> tokens) {
  moe::dispatch_send(comm, exchange, route, tokens);
}
__global__ void receive_tokens(device_comm comm, moe::exchange_handle<float> exchange, moe::token_rows<float> tokens,
                               moe::expert_rows<float> to) {
  static_cast<void>(moe::dispatch_receive(comm, exchange, tokens, to));
}
__global__ void double_rows(moe::expert_rows<float> rows, std::uint32_t experts) {
  for (std::uint32_t i = threadIdx.x; i < rows.offsets[experts] * token_shape.hidden; i += blockDim.x)
    rows.rows[i] *= 2;
}
__global__ void return_tokens(device_comm comm, moe::exchange_handle<float> exchange, moe::routing route,
                              const float* rows, float* output) {
  moe::combine_send(comm, exchange, rows);
  static_cast<void>(moe::combine_receive(comm, exchange, route, output));
}

void exchange_with(communicator& comm, bool wrong, token_slip which) {
  const token_slip made = wrong ? which : token_slip::none;
  auto needs = comm.requirements();
  const auto exchange = needs.add(moe::exchange<float>{comm.lsa(), token_shape, 1, 2});
  const auto device = comm.create_device_comm(needs);
  constexpr std::uint32_t elements = token_shape.max_tokens * token_shape.hidden;
  const auto window = comm.allocate(elements * sizeof(float), "tokens");
  const auto scale_window = comm.allocate(token_shape.max_tokens * sizeof(float), "scales");
  const moe::token_rows<float> tokens{window.pointer<float>(), scale_window.pointer<float>(), 1};
  const test::device_array<std::int32_t> experts(token_shape.max_tokens * token_shape.top_k);
  const test::device_array<float> weights(token_shape.max_tokens * token_shape.top_k);
  const test::device_array<float> rows((made == token_slip::overrun ? 4 : rows_of_rank) * token_shape.hidden);
  const test::device_array<float> scales(rows_of_rank), output(elements);
  const test::device_array<std::uint32_t> offsets(exchange.local_experts() + 1), counts(exchange.local_experts());
  const moe::expert_rows<float> to{rows.get(), rows_of_rank, 1, offsets.get(), counts.get(), scales.get()};
  const moe::routing route{experts.get(), weights.get(), token_shape.max_tokens};
  const auto on = [](cudaStream_t stream) { return launch_config{.grid = 1, .block = threads, .stream = stream}; };
  const cudaStream_t stream = cudaStreamPerThread;
  cudaStream_t other = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const auto fill_scales = [&] {
    launch(fill_tokens, on(stream), tokens.scales.local(), token_shape.max_tokens, 0.5f);
  };
  launch(route_to_next, on(stream), experts.get(), weights.get(), comm.rank(), comm.size());
  launch(fill_tokens, on(stream), tokens.rows.local(), elements, 1.0f);
  if (made != token_slip::late_scales) fill_scales();
  launch(send_tokens, on(stream), device.get(), exchange, route, tokens);
  if (made == token_slip::late_scales) fill_scales();
  if (made == token_slip::refilled) launch(fill_tokens, on(stream), tokens.rows.local(), elements, 2.0f);
  launch(receive_tokens, on(stream), device.get(), exchange, tokens, to);
  launch(double_rows, on(made == token_slip::stale_count ? other : stream), to, exchange.local_experts());
  if (made == token_slip::stale_count) check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
  launch(return_tokens, on(stream), device.get(), exchange, route, static_cast<const float*>(rows.get()), output.get());
  test::finish("return_tokens");
  check_cuda(cudaStreamDestroy(other), "cudaStreamDestroy");
  device.check();
  comm.barrier();
}

std::vector<mistake> moe_kernels() {
  return {
      {"scales_of_other_token",
       [](communicator& comm, bool wrong) { exchange_with(comm, wrong, token_slip::late_scales); }},
      {"tokens_refilled_early",
       [](communicator& comm, bool wrong) { exchange_with(comm, wrong, token_slip::refilled); }},
      {"expert_count_stale",
       [](communicator& comm, bool wrong) { exchange_with(comm, wrong, token_slip::stale_count); }},
      {"rows_beyond_memory", [](communicator& comm, bool wrong) { exchange_with(comm, wrong, token_slip::overrun); }}};
}

}  // namespace
}  // namespace mistakes
