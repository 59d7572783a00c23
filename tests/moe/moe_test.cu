/// Tokens to experts on other ranks and back, against sums in double precision.
#include <devcomm/devcomm.cuh>

#ifdef DEVCOMM_SIMULATOR
#  include <devcomm/simulator/simulator.hpp>
#endif

#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned max_blocks = 3;
constexpr std::uint32_t hidden = 32;
constexpr std::uint32_t scales = 3;  // of a token

/// Element `i` of a rank's token in a round: small integers, exact in every type.
DEVCOMM_HOST_DEVICE float element_of(int rank, std::uint32_t token, std::uint32_t i, int round) {
  return static_cast<float>(
             (static_cast<std::uint32_t>(rank) * 5 + token * 3 + i * 7 + static_cast<std::uint32_t>(round)) % 9) -
         4;
}
DEVCOMM_HOST_DEVICE float scale_of(int rank, std::uint32_t token, std::uint32_t i, int round) {
  return element_of(rank, token, i + 100, round);
}

/// How tokens are routed.
enum class routes { random, one_expert, few_ranks, none };

struct routed {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
  std::uint32_t tokens;
};

routed make_routes(routes how, int rank, int round, std::uint32_t tokens, const moe::exchange_shape& shape) {
  std::mt19937 random(static_cast<unsigned>(rank * 31 + round * 7 + 1));
  routed made{{}, {}, tokens};
  for (std::uint32_t t = 0; t < tokens; ++t) {
    std::vector<std::int32_t> all(shape.experts);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    for (std::uint32_t k = 0; k < shape.top_k; ++k) {
      std::int32_t expert = all[k];
      if (how == routes::one_expert) expert = k == 0 ? static_cast<std::int32_t>(shape.experts) - 1 : -1;
      if (how == routes::few_ranks) expert = k < 2 ? static_cast<std::int32_t>(k) : -1;
      if (how == routes::none || random() % 9 == 0) expert = -1;
      made.experts.push_back(expert);
      made.weights.push_back(static_cast<float>(random() % 8) / 4);
    }
  }
  return made;
}

/// The rows that experts get, in their order: rank and token.
struct place {
  int rank;
  std::uint32_t token;
};
std::vector<std::vector<place>> expected_rows(const std::vector<routed>& all, const moe::exchange_shape& shape) {
  std::vector<std::vector<place>> made(shape.experts);
  for (std::size_t r = 0; r < all.size(); ++r)
    for (std::uint32_t t = 0; t < all[r].tokens; ++t)
      for (std::uint32_t k = 0; k < shape.top_k; ++k)
        if (const std::int32_t expert = all[r].experts[t * shape.top_k + k]; expert >= 0)
          made[static_cast<std::size_t>(expert)].push_back({static_cast<int>(r), t});
  return made;
}

template <class Exchange, class U>
__global__ void send(device_comm comm, Exchange exchange, moe::routing route, moe::token_rows<U> tokens) {
  moe::dispatch_send(comm, exchange, route, tokens);
}
template <class Exchange, class U>
__global__ void receive(device_comm comm, Exchange exchange, moe::token_rows<U> tokens, moe::expert_rows<U> to) {
  static_cast<void>(moe::dispatch_receive(comm, exchange, tokens, to));
}
/// Expert `e` multiplies by `e + 1`.
template <class T, class U>
__global__ void experts(moe::expert_rows<U> rows, std::uint32_t first_expert, std::uint32_t count, T* results) {
  for (std::uint32_t e = 0; e < count; ++e)
    for (std::uint32_t i = threadIdx.x; i < rows.counts[e] * hidden; i += blockDim.x) {
      const std::uint32_t at = rows.offsets[e] * hidden + i;
      results[at] = static_cast<T>(static_cast<float>(rows.rows[at]) * static_cast<float>(first_expert + e + 1));
    }
}
template <class Exchange, class T>
__global__ void send_back(device_comm comm, Exchange exchange, const T* outputs) {
  moe::combine_send(comm, exchange, outputs);
}
template <class Exchange, class T>
__global__ void receive_back(device_comm comm, Exchange exchange, moe::routing route, T* output) {
  static_cast<void>(moe::combine_receive(comm, exchange, route, output));
}

template <class T>
const moe::exchange_handle<T>& handle_of(const moe::exchange_handle<T>& exchange) {
  return exchange;
}
template <class T>
const moe::exchange_handle<T>& handle_of(const moe::over_hosts<T>& both) {
  return both.exchange;
}

/// Asks for an exchange of this host's ranks, or of all hosts'.
template <class T>
requirements needs_of(const host::communicator& comm, const moe::exchange_shape& shape, std::uint32_t chunks,
                      std::uint32_t, moe::exchange_handle<T>& made) {
  requirements needs = comm.requirements();
  made = needs.add(moe::exchange<T>{comm.lsa(), shape, max_blocks, chunks});
  return needs;
}
template <class T>
requirements needs_of(const host::communicator& comm, const moe::exchange_shape& shape, std::uint32_t chunks,
                      std::uint32_t row_bytes, moe::over_hosts<T>& made) {
  requirements needs = comm.requirements();
  made.exchange = needs.add(moe::exchange<T>{comm.world(), shape, max_blocks, chunks, row_bytes});
  made.contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2, .signals = 1, .depth = 16});
  return needs;
}

/// Tokens of `U`, sums of `T`; on one host, or over several.
template <class T, class U, class Exchange = moe::exchange_handle<T>>
class program {
 public:
  program(host::communicator& comm, const moe::exchange_shape& shape, std::uint32_t chunks, std::uint32_t alignment)
      : comm_(comm),
        shape_(shape),
        device_(
            comm.create_device_comm(needs_of(comm, shape, chunks, hidden * sizeof(U) + scales * sizeof(float), both_))),
        exchange_(handle_of(both_)),
        window_(comm.allocate(shape.max_tokens * (hidden * sizeof(U) + scales * sizeof(float)), "tokens")),
        capacity_(static_cast<std::uint32_t>(exchange_.max_rows()) + exchange_.local_experts() * alignment),
        rows_(std::uint64_t{capacity_} * hidden),
        results_(std::uint64_t{capacity_} * hidden),
        row_scales_(std::uint64_t{capacity_} * scales),
        offsets_(exchange_.local_experts() + 1),
        counts_(exchange_.local_experts()),
        output_(std::uint64_t{shape.max_tokens} * hidden),
        to_{rows_.get(), capacity_, alignment, offsets_.get(), counts_.get(), row_scales_.get()} {}

  /// All ranks' tokens go to their experts and come back. Halves on grids of different sizes.
  void round(const std::vector<routed>& all, int number) {
    const routed& mine = all[static_cast<std::size_t>(comm_.rank())];
    const test::device_array<std::int32_t> expert_of(mine.experts.empty() ? std::vector<std::int32_t>(1)
                                                                          : mine.experts);
    const test::device_array<float> weight_of(mine.weights.empty() ? std::vector<float>(1) : mine.weights);
    const moe::routing route{expert_of.get(), weight_of.get(), mine.tokens};
    const sym_ptr<U> tokens = window_.template pointer<U>();
    const std::uint64_t of_rows = std::uint64_t{shape_.max_tokens} * hidden * sizeof(U);
    const sym_ptr<float> token_scales{tokens.memory, tokens.offset + of_rows};
    fill(mine.tokens, number, tokens.local(), token_scales.local());
    const unsigned blocks = max_blocks - static_cast<unsigned>(number + comm_.rank()) % max_blocks;
    const auto config = [&](unsigned more) {
      return launch_config{.grid = (blocks + more) % max_blocks + 1, .block = threads, .stream = cudaStreamPerThread};
    };
    const moe::token_rows<U> sent{tokens, token_scales, scales};
    launch(send<Exchange, U>, config(0), device_.get(), both_, route, sent);
    launch(receive<Exchange, U>, config(1), device_.get(), both_, sent, to_);
    const std::uint32_t experts_here = exchange_.local_experts();
    const std::uint32_t first = static_cast<std::uint32_t>(comm_.rank()) * experts_here;
    const auto got_rows = [&] { return rows_.read(); };
    const auto offsets = (test::finish("dispatch"), device_.check(), offsets_.read());
    check_rows(all, number, got_rows(), row_scales_.read(), offsets, first);
    launch(experts<T, U>, {.block = 32, .stream = cudaStreamPerThread}, to_, first, experts_here, results_.get());
    launch(send_back<Exchange, T>, config(2), device_.get(), both_, static_cast<const T*>(results_.get()));
    launch(receive_back<Exchange, T>, config(0), device_.get(), both_, route, output_.get());
    test::finish("combine");
    device_.check();
    check_output(mine, number);
  }

 private:
  void fill(std::uint32_t tokens, int number, U* rows, float* row_scales) const {
    std::vector<U> values;
    std::vector<float> of_tokens;
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t i = 0; i < hidden; ++i)
        values.push_back(static_cast<U>(element_of(comm_.rank(), t, i, number)));
      for (std::uint32_t i = 0; i < scales; ++i) of_tokens.push_back(scale_of(comm_.rank(), t, i, number));
    }
    if (tokens == 0) return;
    check_cuda(cudaMemcpyAsync(rows, values.data(), values.size() * sizeof(U), cudaMemcpyDefault, cudaStreamPerThread),
               "cudaMemcpyAsync");
    check_cuda(cudaMemcpyAsync(row_scales, of_tokens.data(), of_tokens.size() * sizeof(float), cudaMemcpyDefault,
                               cudaStreamPerThread),
               "cudaMemcpyAsync");
  }
  void check_rows(const std::vector<routed>& all, int number, const std::vector<U>& got,
                  const std::vector<float>& got_scales, const std::vector<std::uint32_t>& offsets,
                  std::uint32_t first) const {
    const auto expected = expected_rows(all, shape_);
    std::uint32_t row = 0;
    const auto counts = counts_.read();
    for (std::uint32_t e = 0; e < exchange_.local_experts(); ++e) {
      const std::vector<place>& places = expected[first + e];
      test::require(offsets[e] == row && counts[e] == places.size(), "where an expert's rows begin, or how many");
      for (std::size_t j = 0; j < places.size(); ++j) {
        for (std::uint32_t i = 0; i < hidden; ++i)
          test::require(
              static_cast<float>(got[(row + j) * hidden + i]) == element_of(places[j].rank, places[j].token, i, number),
              [&] { return "row " + std::to_string(j) + " of expert " + std::to_string(first + e); });
        for (std::uint32_t i = 0; i < scales; ++i)
          test::require(
              got_scales[(row + j) * scales + i] == scale_of(places[j].rank, places[j].token, i, number),
              [&] { return "scales of row " + std::to_string(j) + " of expert " + std::to_string(first + e); });
      }
      row += (static_cast<std::uint32_t>(places.size()) + to_.alignment - 1) / to_.alignment * to_.alignment;
    }
    test::require(offsets[exchange_.local_experts()] == row, "where all rows end");
  }
  void check_output(const routed& mine, int number) const {
    const auto got = output_.read();
    for (std::uint32_t t = 0; t < mine.tokens; ++t) {
      for (std::uint32_t i = 0; i < hidden; ++i) {
        double sum = 0, scale = 0;
        for (std::uint32_t k = 0; k < shape_.top_k; ++k) {
          const std::uint32_t at = t * shape_.top_k + k;
          if (mine.experts[at] < 0) continue;
          const double part = static_cast<double>(mine.weights[at]) * (mine.experts[at] + 1) *
                              static_cast<double>(element_of(comm_.rank(), t, i, number));
          sum += part;
          scale += std::abs(part);
        }
        const double close = sizeof(T) == 4 ? 1e-6 : 1.0 / 64;
        test::require(
            std::abs(static_cast<double>(static_cast<float>(got[t * hidden + i])) - sum) <= close * scale, [&] {
              return "token " + std::to_string(t) + ", element " + std::to_string(i) + ": got " +
                     std::to_string(static_cast<float>(got[t * hidden + i])) + " instead of " + std::to_string(sum);
            });
      }
    }
  }

  host::communicator& comm_;
  moe::exchange_shape shape_;
  Exchange both_{};
  host::device_communicator device_;
  const moe::exchange_handle<T>& exchange_;
  host::symmetric_memory window_;
  std::uint32_t capacity_;
  test::device_array<U> rows_;
  test::device_array<T> results_;
  test::device_array<float> row_scales_;
  test::device_array<std::uint32_t> offsets_;
  test::device_array<std::uint32_t> counts_;
  test::device_array<T> output_;
  moe::expert_rows<U> to_;
};

/// Tokens of each rank in a round: as many as there is room for on one, none on another.
std::uint32_t tokens_of(int rank, int round, std::uint32_t max_tokens) {
  return (static_cast<std::uint32_t>(rank) * 3 + static_cast<std::uint32_t>(round) * 5) % (max_tokens + 1);
}

template <class T, class U, class Exchange = moe::exchange_handle<T>>
void rounds(host::communicator& comm, std::uint32_t max_tokens, std::uint32_t experts_of_rank, std::uint32_t top_k,
            std::uint32_t chunks, std::uint32_t alignment) {
  const moe::exchange_shape shape{max_tokens, experts_of_rank * static_cast<std::uint32_t>(comm.size()), top_k, hidden};
  program<T, U, Exchange> run(comm, shape, chunks, alignment);
  int number = 0;
  for (const routes how : {routes::random, routes::one_expert, routes::few_ranks, routes::none, routes::random}) {
    std::vector<routed> all;
    for (int r = 0; r < comm.size(); ++r)
      all.push_back(make_routes(how, r, number, tokens_of(r, number, max_tokens), shape));
    run.round(all, number++);
  }
}

}  // namespace

TEST_CASE("tokens reach their experts by expert, rank and token, and come back as weighted sums") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      rounds<float, float>(comm, 13, 3, 2, 4, 1);
      rounds<__nv_bfloat16, __nv_bfloat16>(comm, 6, 2, 2, 8, 4);
      rounds<__nv_bfloat16, __nv_fp8_e4m3>(comm, 6, 2, 2, 3, 4);
    });
  }
}

TEST_CASE("tokens reach experts on other hosts, and come back") {
  struct shape {
    int ranks;
    int lsa_size;
    const char* peers = "";  // which simulated GPUs reach each other; empty: all
  };
  for (const shape& s : {shape{2, 2}, {2, 1}, {3, 1}, {4, 2}, {8, 4}, {4, 0, "0,2/1,3"}}) {
#ifdef DEVCOMM_SIMULATOR
    simulator::set_peers(s.peers);
#else
    if (*s.peers != '\0') continue;
#endif
    host::communicator_options options;
    options.lsa_size = s.lsa_size;
    test::on_ranks(
        s.ranks,
        [](host::communicator& comm) {
          rounds<float, float, moe::over_hosts<float>>(comm, 13, 3, 2, 4, 1);
          rounds<__nv_bfloat16, __nv_fp8_e4m3, moe::over_hosts<__nv_bfloat16>>(comm, 40, 2, 2, 1, 4);
        },
        options);
  }
#ifdef DEVCOMM_SIMULATOR
  simulator::set_peers("");
#endif
}

namespace {

host::communicator_options impatient() {
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(40);
  return options;
}

void require_said(const host::device_communicator& comm, const std::string& text) {
  std::string said;
  try {
    comm.check();
  } catch (const host::kernel_error& error) {
    said = error.what();
  }
  test::require(said.find(text) != std::string::npos, "it said: " + said);
}

template <class Exchange>
__global__ void outcome_of_receive(device_comm comm, Exchange exchange, moe::token_rows<float> tokens,
                                   moe::expert_rows<float> to, status* outcome) {
  const status got = moe::dispatch_receive(comm, exchange, tokens, to);
  if (threadIdx.x == 0) outcome[blockIdx.x] = got;
}
/// All tokens of both ranks go to the second expert of rank 1, of two; rank 1 has room for `capacity` rows.
template <class Exchange = moe::exchange_handle<float>>
void send_to_one(host::communicator& comm, std::uint32_t capacity, bool is_there, const std::string& said,
                 status expected) {
  constexpr moe::exchange_shape shape{5, 4, 1, hidden};
  Exchange exchange{};
  const auto device = comm.create_device_comm(needs_of(comm, shape, 3, 0, exchange));
  const auto window = comm.allocate(shape.max_tokens * hidden * sizeof(float), "tokens");
  const test::device_array<std::int32_t> experts(std::vector<std::int32_t>(shape.max_tokens, 3));
  const test::device_array<float> weights(std::vector<float>(shape.max_tokens, 1)), rows(10 * hidden, 0xff),
      output(shape.max_tokens * hidden);
  const test::device_array<std::uint32_t> offsets(3);
  const test::device_array<status> outcomes(2, 0xff);
  const launch_config two{.grid = 2, .block = threads, .stream = cudaStreamPerThread};
  const moe::routing route{experts.get(), weights.get(), shape.max_tokens};
  if (is_there) {
    const moe::token_rows<float> tokens{window.pointer<float>()};
    launch(send<Exchange, float>, two, device.get(), exchange, route, tokens);
    launch(outcome_of_receive<Exchange>, two, device.get(), exchange, tokens,
           moe::expert_rows<float>{rows.get(), capacity, 1, offsets.get(), nullptr}, outcomes.get());
    test::finish("dispatch");
    const auto got = outcomes.read();
    test::require(got[0] == expected, "another outcome");
    // A block that still waits when another finds no room ends with it.
    test::require(got[1] == expected || (expected == status::truncated && got[1] == status::aborted),
                  "another outcome of the second block");
    if (expected != status::success) require_said(device, said);
    if (expected == status::truncated)
      for (const float value : rows.read()) test::require(std::isnan(value), "a row was stored");
  }
  comm.barrier();
}

}  // namespace

TEST_CASE("rows that do not fit are named, and none is stored") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        send_to_one(comm, 9, true,
                    "expert 3: its rows end at 10, and moe::expert_rows has room for 9: give it more capacity",
                    comm.rank() == 0 ? status::success : status::truncated);
      },
      impatient());
  auto hosts = impatient();
  hosts.lsa_size = 1;
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        send_to_one<moe::over_hosts<float>>(comm, 9, true, "expert 3: its rows end at 10",
                                            comm.rank() == 0 ? status::success : status::truncated);
      },
      hosts);
}

TEST_CASE("a rank that does not send its tokens is named") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        send_to_one(comm, 10, comm.rank() == 0, " waited for rank 1 to reach epoch 1 and last saw 0: timeout",
                    status::aborted);
      },
      impatient());
}

TEST_CASE("a rank on another host that does not send its tokens is named") {
  auto options = impatient();
  options.lsa_size = 1;
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        send_to_one<moe::over_hosts<float>>(
            comm, 10, comm.rank() == 0, " waited for rank 1 to reach epoch 1 and last saw 0: timeout", status::aborted);
      },
      options);
}
