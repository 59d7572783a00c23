/// Tokens to experts on all ranks, and the way there and back; routed at random, and in 8 bits with scales.
#include "perf/device_algorithm.hpp"
#include "perf/random_data.hpp"
#include "perf/random_element.cuh"

#include <devcomm/devcomm.cuh>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

namespace perf {
namespace {

using namespace devcomm;
using sum_type = __nv_bfloat16;

#if defined(DEVCOMM_SIMULATOR)
constexpr bool simulated = true;
#else
constexpr bool simulated = false;
#endif
constexpr std::uint32_t top_k = simulated ? 2 : 8;
constexpr std::uint32_t alignment = simulated ? 4 : 128;  // of an expert's rows, as grouped products have it
constexpr std::uint32_t in_group = simulated ? 8 : 128;   // elements with one scale

constexpr std::uint32_t experts_of(int ranks) {
  const auto size = static_cast<std::uint32_t>(ranks);
  return (simulated ? 4 : std::max(256 / size, 1u)) * size;
}
/// Different experts for one token.
DEVCOMM_HOST_DEVICE std::int32_t expert_of(std::uint64_t word, std::uint32_t k, std::uint32_t experts) {
  const std::uint64_t step = 1 + (word >> 32) % ((experts - 1) / (top_k - 1));
  return static_cast<std::int32_t>((word % experts + k * step) % experts);
}
constexpr std::uint64_t routing_seed = 7;

__global__ void route(int rank, std::uint32_t tokens, std::uint32_t experts, std::int32_t* chosen, float* weights) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < tokens * top_k; i += gridDim.x * blockDim.x) {
    chosen[i] = expert_of(mix(routing_seed, rank, i / top_k), i % top_k, experts);
    weights[i] = 1.0f / top_k;
  }
}

template <class U>
__global__ void __launch_bounds__(1024)
    dispatch(device_comm comm, moe::exchange_handle<sum_type> exchange, moe::routing routed, moe::token_rows<U> tokens,
             moe::expert_rows<U> to) {
  moe::dispatch_send(comm, exchange, routed, tokens);
  static_cast<void>(moe::dispatch_receive(comm, exchange, tokens, to));
}
/// The same, over and over without the way back: nobody sends anew before all have received.
template <class U>
__global__ void __launch_bounds__(1024)
    dispatch_alone(device_comm comm, moe::exchange_handle<sum_type> exchange, moe::routing routed,
                   moe::token_rows<U> tokens, moe::expert_rows<U> to) {
  lsa::barrier_session{block{}, comm, blockIdx.x}.sync(memory_order::acq_rel);
  const gemm::session round{block{}, comm, exchange.flags};
  moe::dispatch_send(comm, exchange, routed, tokens);
  static_cast<void>(moe::dispatch_receive(comm, exchange, tokens, to));
}
__global__ void __launch_bounds__(1024) combine(device_comm comm, moe::exchange_handle<sum_type> exchange,
                                                moe::routing routed, const sum_type* rows, sum_type* output) {
  moe::combine_send(comm, exchange, rows);
  static_cast<void>(moe::combine_receive(comm, exchange, routed, output));
}

/// Where things lie, in bytes from the begin of a call's inputs or outputs. A call's bytes are those of its tokens, as
/// elements of two bytes.
template <class U>
struct token_places {
  std::uint32_t tokens, hidden, experts, capacity;
  std::uint64_t row_bytes, scales;  // of a row: its bytes, and how many scales
  std::uint64_t token_scales, input_end, row_scales, output_end;

  explicit token_places(const work& what)
      : tokens(static_cast<std::uint32_t>(what.count() / what.hidden)),
        hidden(static_cast<std::uint32_t>(what.hidden)),
        experts(experts_of(what.ranks)),
        row_bytes(what.hidden * sizeof(U)),
        scales(sizeof(U) == 1 ? what.hidden / in_group : 0) {
    const std::uint32_t local = experts / static_cast<std::uint32_t>(what.ranks);
    capacity = static_cast<std::uint32_t>(what.ranks) * tokens * std::min(top_k, local) + local * alignment;
    const auto behind = [](std::uint64_t bytes) { return (bytes + 255) / 256 * 256; };
    token_scales = behind(tokens * row_bytes);
    input_end = token_scales + tokens * scales * sizeof(float);
    row_scales = behind(capacity * row_bytes);
    output_end = row_scales + capacity * scales * sizeof(float);
  }
};
std::byte* at(void* base, std::uint64_t offset) { return static_cast<std::byte*>(base) + offset; }

/// `IsRound`: to the experts, which return what they get, and back; else only to them.
template <class U, bool IsRound>
class moe_algorithm final : public device_algorithm {
 public:
  using device_algorithm::device_algorithm;

  [[nodiscard]] std::string name() const override { return IsRound ? "round" : "dispatch"; }
  [[nodiscard]] std::string protocol() const override { return "pull"; }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (what.type != data_type::bf16) return "a call's bytes are those of its tokens in bf16";
    if (what.ranks > static_cast<int>(moe::max_ranks)) return "an exchange has at most 64 ranks";
    return what.hidden % in_group != 0 && sizeof(U) == 1 ? "a token in 8 bits is no whole number of groups" : "";
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work&) const override {
    if (simulated) return {{3, 64}};
    const auto all = std::min(static_cast<unsigned>(comm().properties().multiprocessors), max_blocks);
    return {{all, 1024}, {all, 512}, {64, 1024}, {32, 1024}, {16, 1024}};
  }
  [[nodiscard]] launch_shape fitted(const work& what) const override {
    return what.shape.blocks != 0 ? what.shape : shapes(what)[0];
  }
  void start(const work& what) override {
    const token_places<U> places(what);
    prepared& with = prepared_for(places, what.stream);
    work call = what;
    call.shape = fitted(what);
    call.dependent = false;
    const launch_config config = shape_of(call);
    const moe::routing routed{with.chosen(), with.weights(places), places.tokens};
    const moe::token_rows<U> tokens{in_window<U>(what.input), in_window<float>(at(what.input, places.token_scales)),
                                    static_cast<std::uint32_t>(places.scales)};
    std::byte* const rows =
        IsRound ? static_cast<std::byte*>(with.scratch->data()) : static_cast<std::byte*>(what.output);
    const moe::expert_rows<U> to{
        reinterpret_cast<U*>(rows), places.capacity,     alignment,
        with.offsets(places),       with.counts(places), reinterpret_cast<float*>(at(rows, places.row_scales))};
    if constexpr (IsRound) {
      launch(dispatch<U>, config, with.device_comm->get(), with.exchange, routed, tokens, to);
      launch(combine, config, with.device_comm->get(), with.exchange, routed, reinterpret_cast<const sum_type*>(rows),
             static_cast<sum_type*>(what.output));
    } else {
      launch(dispatch_alone<U>, config, with.device_comm->get(), with.exchange, routed, tokens, to);
    }
  }
  void check() override {
    for (auto& [shape, one] : prepared_) one.device_comm->check();
  }

 private:
  /// What is made for one shape, when it is first called: on all ranks together.
  struct prepared {
    std::optional<host::device_communicator> device_comm;
    std::optional<host::symmetric_memory> numbers, scratch;
    moe::exchange_handle<sum_type> exchange{};

    [[nodiscard]] std::int32_t* chosen() const { return static_cast<std::int32_t*>(numbers->data()); }
    [[nodiscard]] float* weights(const token_places<U>& places) const {
      return reinterpret_cast<float*>(chosen() + std::uint64_t{places.tokens} * top_k);
    }
    [[nodiscard]] std::uint32_t* offsets(const token_places<U>& places) const {
      return reinterpret_cast<std::uint32_t*>(weights(places) + std::uint64_t{places.tokens} * top_k);
    }
    [[nodiscard]] std::uint32_t* counts(const token_places<U>& places) const {
      return offsets(places) + exchange.local_experts() + 1;
    }
  };
  prepared& prepared_for(const token_places<U>& places, cudaStream_t stream) {
    prepared& made = prepared_[{places.tokens, places.hidden}];
    if (made.device_comm) return made;
    requirements needs = comm().requirements().lsa_barriers(max_blocks);
    made.exchange = needs.add(moe::exchange<sum_type>{
        comm().lsa(), {places.tokens, places.experts, top_k, places.hidden}, max_blocks, simulated ? 4u : 64u});
    made.device_comm = comm().create_device_comm(needs);
    made.numbers = comm().allocate(
        (std::uint64_t{places.tokens} * top_k * 2 + made.exchange.local_experts() * 2 + 1) * 4, "routing");
    if (IsRound) made.scratch = comm().allocate(places.output_end, "rows");
    launch(route, {.grid = simulated ? 1u : 64u, .block = 64, .stream = stream}, comm().rank(), places.tokens,
           places.experts, made.chosen(), made.weights(places));
    return made;
  }

  std::map<std::pair<std::uint32_t, std::uint32_t>, prepared> prepared_;
};

/// Counts words of two bytes of the rows of this rank's experts that are not those of their tokens: a block an expert.
template <class U>
__global__ void count_wrong_rows(const std::uint16_t* rows, const std::uint16_t* scales, token_places<U> places,
                                 int rank, int ranks, std::uint64_t seed, unsigned long long* wrong) {
  const std::uint32_t local = places.experts / static_cast<std::uint32_t>(ranks);
  const auto first = static_cast<std::int32_t>(local) * rank;
  const std::uint64_t words = places.row_bytes / 2, scale_words = places.scales * 2;
  for (std::uint32_t e = blockIdx.x; e < local; e += gridDim.x) {
    std::uint64_t row = 0;  // of the first expert, then of this one
    std::uint32_t count = 0;
    for (std::uint32_t before = 0; before <= e; ++before) {
      row += (count + alignment - 1) / alignment * alignment;
      count = 0;
      for (int r = 0; r < ranks; ++r)
        for (std::uint32_t t = 0; t < places.tokens; ++t) {
          const std::uint64_t word = mix(routing_seed, r, t);
          bool is_here = false;
          for (std::uint32_t k = 0; k < top_k; ++k)
            is_here = is_here || expert_of(word, k, places.experts) == first + static_cast<std::int32_t>(before);
          if (!is_here) continue;
          if (before == e) {
            const auto differs = [&](const std::uint16_t* have, std::uint64_t begin, std::uint64_t count_of_words) {
              for (std::uint64_t i = threadIdx.x; i < count_of_words; i += blockDim.x) {
                const auto right = random_element<__nv_bfloat16>(seed, r, begin + t * count_of_words + i);
                std::uint16_t bits = 0;
                devcomm::detail::copy_bytes(&bits, &right, sizeof(bits));
                if (have[(row + count) * count_of_words + i] != bits) atomicAdd(wrong, 1ull);
              }
            };
            differs(rows, 0, words);
            differs(scales, places.token_scales / 2, scale_words);
          }
          ++count;
        }
    }
  }
}
/// Counts elements of the output that are further from their token's than two roundings of sums.
__global__ void count_wrong_sums_of_experts(const sum_type* output, std::uint64_t count, int rank, std::uint64_t seed,
                                            unsigned long long* wrong) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    const double right = to_double(random_element<sum_type>(seed, rank, i));
    const double off = to_double(output[i]) - right;
    if (!((off < 0 ? -off : off) <= 2 * rounding<sum_type> * (right < 0 ? -right : right))) atomicAdd(wrong, 1ull);
  }
}

template <class U, bool IsRound>
class moe_operation final : public operation {
 public:
  moe_operation(const char* name, const char* about) : name_(name), about_(about) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::string about() const override { return about_; }
  /// What a rank sends depends on its routing.
  [[nodiscard]] double bus_factor(int) const override { return 0; }
  [[nodiscard]] std::uint64_t granularity(const work& what) const override {
    if (what.hidden * sizeof(U) % 16 != 0)
      throw usage_error("--hidden " + std::to_string(what.hidden) + ": a token fills packs of 16 bytes");
    return what.hidden * bytes_of(what.type);
  }
  [[nodiscard]] std::uint64_t region(const work& what) const override {
    const token_places<U> places(what);
    return std::max({places.input_end, places.output_end, what.bytes});
  }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] choice choose(const work&, unsigned) const override {
    return {IsRound ? "round" : "dispatch", "pull", {}, "the only way"};
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<moe_algorithm<U, IsRound>>(context));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context&) const override {
    throw std::runtime_error("NCCL has no dispatch of tokens");
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, token_places<U>(what).input_end / 2, what.type, what.rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    const token_places<U> places(what);
    return count_on_device(what.stream, [&](unsigned long long* wrong) {
      const launch_config config{.grid = simulated ? 2u : 256u, .block = 64, .stream = what.stream};
      if (IsRound) {
        launch(count_wrong_sums_of_experts, config, static_cast<const sum_type*>(what.output), what.count(), what.rank,
               seed, wrong);
      } else {
        launch(count_wrong_rows<U>, config, static_cast<const std::uint16_t*>(what.output),
               reinterpret_cast<const std::uint16_t*>(at(what.output, places.row_scales)), places, what.rank,
               what.ranks, seed, wrong);
      }
    });
  }

 private:
  const char* name_;
  const char* about_;
};

const bool are_registered =
    register_operation(std::make_unique<moe_operation<__nv_bfloat16, false>>(
        "moe_dispatch", "tokens of --hidden to 8 of 256 experts; bytes of a rank's tokens")) &&
    register_operation(std::make_unique<moe_operation<__nv_fp8_e4m3, false>>(
        "moe_dispatch_fp8", "the same in 8 bits with scales; bytes of a rank's tokens in bf16")) &&
    register_operation(std::make_unique<moe_operation<__nv_bfloat16, true>>(
        "moe_round", "tokens to experts, and the weighted sums back; bytes of a rank's tokens"));

}  // namespace
}  // namespace perf
